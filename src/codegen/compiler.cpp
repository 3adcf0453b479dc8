#include "codegen/compiler.h"

#include <llvm/ADT/SmallString.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include <set>

#include "codegen/emitter.h"
#include "common/check.h"

namespace glowplug::codegen {

struct Compiler::Machine {
  std::unique_ptr<llvm::TargetMachine> target;

  std::unique_ptr<llvm::Module> module(llvm::LLVMContext& context, const Target& target,
                                       const std::vector<const lower::Kernel*>& kernels) const;
  std::string emit(const Target& target, const std::vector<const lower::Kernel*>& kernels,
                   llvm::CodeGenFileType type) const;
};

namespace {

void initializeTargets() {
  static const bool done = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    return true;
  }();
  (void)done;
}

std::unique_ptr<llvm::TargetMachine> makeMachine(const Target& target) {
  initializeTargets();
  const llvm::Triple triple(target.triple);
  std::string problem;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, problem);
  GP_CHECK(found != nullptr, problem);
  llvm::TargetOptions options;
  // a * b + c is rounded twice unless the text says fma.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, target.cpu, "", options, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

}  // namespace

std::string symbolOf(const lower::Kernel& kernel, size_t nest) {
  return kernel.name + "." + std::to_string(nest);
}

std::unique_ptr<llvm::Module> Compiler::Machine::module(
    llvm::LLVMContext& context, const Target& info,
    const std::vector<const lower::Kernel*>& kernels) const {
  auto out = std::make_unique<llvm::Module>("glowplug", context);
  out->setTargetTriple(target->getTargetTriple());
  out->setDataLayout(target->createDataLayout());
  std::set<std::string> names;
  for (const lower::Kernel* kernel : kernels) {
    GP_CHECK(names.insert(kernel->name).second, "two kernels are named " + kernel->name);
    Emitter emitter(*out, info, *kernel);
    for (size_t nest = 0; nest < kernel->nests.size(); ++nest) {
      emitter.nest(nest, symbolOf(*kernel, nest));
    }
  }
  // In release builds too: it takes a fiftieth of the time that the machine code takes.
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  GP_CHECK(!llvm::verifyModule(*out, &stream), problem);
  return out;
}

std::string Compiler::Machine::emit(const Target& info,
                                    const std::vector<const lower::Kernel*>& kernels,
                                    llvm::CodeGenFileType type) const {
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> code = module(context, info, kernels);
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  GP_CHECK(!target->addPassesToEmitFile(passes, stream, nullptr, type), "no object files here");
  passes.run(*code);
  return std::string(bytes);
}

Compiler::Compiler(const Target& target)
    : target_(target), machine_(std::make_unique<Machine>(makeMachine(target))) {}

Compiler::~Compiler() = default;

std::string Compiler::object(const std::vector<const lower::Kernel*>& kernels) {
  return machine_->emit(target_, kernels, llvm::CodeGenFileType::ObjectFile);
}

std::string Compiler::assembly(const std::vector<const lower::Kernel*>& kernels) {
  return machine_->emit(target_, kernels, llvm::CodeGenFileType::AssemblyFile);
}

std::string Compiler::llvmText(const std::vector<const lower::Kernel*>& kernels) {
  llvm::LLVMContext context;
  std::string out;
  llvm::raw_string_ostream(out) << *machine_->module(context, target_, kernels);
  return out;
}

void Compiler::emitOnly(const std::vector<const lower::Kernel*>& kernels) {
  llvm::LLVMContext context;
  machine_->module(context, target_, kernels);
}

}  // namespace glowplug::codegen
