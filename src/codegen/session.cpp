#include "codegen/session.h"

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/Debugging/ELFDebugObjectPlugin.h>
#include <llvm/ExecutionEngine/Orc/Debugging/PerfSupportPlugin.h>
#include <llvm/ExecutionEngine/Orc/ObjectFileInterface.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/TargetProcess/JITLoaderPerf.h>
#include <llvm/Support/MemoryBuffer.h>

#include <atomic>

#include "codegen/compiler.h"
#include "codegen/symbols.h"
#include "common/check.h"

namespace glowplug::codegen {
namespace {

using namespace llvm::orc;

std::unique_ptr<ExecutorProcessControl> processControl() {
  auto made = SelfExecutorProcessControl::Create();
  GP_CHECK(made, llvm::toString(made.takeError()));
  return std::move(*made);
}

class OrcSession;

class OrcCode final : public LoadedCode {
 public:
  OrcCode(ExecutionSession& session, JITDylib& code, bool stays)
      : session_(session), code_(code), stays_(stays) {}
  ~OrcCode() override {
    if (!stays_) llvm::consumeError(session_.removeJITDylib(code_));
  }

  lower::NestFunction function(const lower::Kernel& kernel, size_t nest) const override {
    auto found = session_.lookup({&code_}, symbolOf(kernel, nest));
    if (!found) {
      llvm::consumeError(found.takeError());
      return nullptr;
    }
    return found->getAddress().toPtr<lower::NestFunction>();
  }

 private:
  ExecutionSession& session_;
  JITDylib& code_;
  const bool stays_;
};

class OrcSession final : public Session {
 public:
  OrcSession()
      : session_(processControl()),
        linker_(session_),
        runtime_(session_.createBareJITDylib("runtime")) {
    session_.setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
    SymbolMap symbols;
    for (const Symbol& symbol : runtimeSymbols()) {
      symbols[session_.intern(symbol.name)] = {
          ExecutorAddr::fromPtr(symbol.address),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    }
    llvm::Error problem = runtime_.define(absoluteSymbols(std::move(symbols)));
    GP_CHECK(!problem, llvm::toString(std::move(problem)));
  }

  std::string tell(Listener listener) override {
    if (listener == Listener::Gdb) {
      llvm::Error problem = llvm::Error::success();
      auto plugin = std::make_shared<ELFDebugObjectPlugin>(session_, /*RequireDebugSections=*/false,
                                                           /*AutoRegisterCode=*/true, problem);
      if (problem) return llvm::toString(std::move(problem));
      linker_.addPlugin(std::move(plugin));
      // LLVM 22 frees what gdb was told of and does not take it back: such code stays.
      gdbIsTold_ = true;
      return "";
    }
    // By address: the extension's libraries are not among those that dlsym() looks through.
    linker_.addPlugin(std::make_shared<PerfSupportPlugin>(
        session_.getExecutorProcessControl(),
        ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfStart),
        ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfEnd),
        ExecutorAddr::fromPtr(&llvm_orc_registerJITLoaderPerfImpl), /*EmitDebugInfo=*/false,
        /*EmitUnwindInfo=*/true));
    return "";
  }

  std::shared_ptr<const LoadedCode> load(const std::string& object, std::string& problem) override {
    JITDylib& code = session_.createBareJITDylib("code" + std::to_string(next_++));
    code.addToLinkOrder(runtime_);
    auto loaded = std::make_shared<OrcCode>(session_, code, gdbIsTold_);
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, "glowplug");
    llvm::Expected<MaterializationUnit::Interface> interface =
        getObjectFileInterface(session_, buffer->getMemBufferRef());
    if (!interface) {
      problem = llvm::toString(interface.takeError());
      return nullptr;
    }
    // All symbols are asked for, so that the object is linked now, on this thread, or refused.
    SymbolLookupSet wanted;
    for (const auto& [name, flags] : interface->SymbolFlags) wanted.add(name);
    llvm::Error error =
        linker_.add(code.getDefaultResourceTracker(), std::move(buffer), std::move(*interface));
    if (!error) error = session_.lookup(makeJITDylibSearchOrder(&code), wanted).takeError();
    if (error) {
      problem = llvm::toString(std::move(error));
      return nullptr;
    }
    return loaded;
  }

 private:
  ExecutionSession session_;
  ObjectLinkingLayer linker_;
  JITDylib& runtime_;
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> gdbIsTold_{false};
};

}  // namespace

Session& Session::shared() {
  static Session* session = new OrcSession;
  return *session;
}

}  // namespace glowplug::codegen
