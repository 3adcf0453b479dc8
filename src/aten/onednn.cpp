#include "aten/onednn.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <oneapi/dnnl/dnnl_version_hash.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace glowplug::aten::onednn {
namespace {

// A file in memory; empty if it cannot be read.
class File {
 public:
  explicit File(const char* path) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    struct stat status{};
    if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
      const auto size = static_cast<size_t>(status.st_size);
      void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (at != MAP_FAILED) bytes_ = {static_cast<const char*>(at), size};
    }
    close(descriptor);
  }
  ~File() {
    if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Nothing where the file is too short for it.
  template <class T>
  std::span<const T> items(uint64_t offset, uint64_t bytes) const {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) return {};
    if (offset % alignof(T) != 0) return {};
    return {reinterpret_cast<const T*>(bytes_.data() + offset), bytes / sizeof(T)};
  }

 private:
  std::span<const char> bytes_;
};

std::string_view nameAt(std::span<const char> names, size_t offset) {
  if (offset >= names.size()) return {};
  return {names.data() + offset, strnlen(names.data() + offset, names.size() - offset)};
}

class Library {
 public:
  Library(const char* path, uintptr_t base) : file_(path), base_(base) {
    const auto header = file_.items<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr));
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return;
    if (header[0].e_ident[EI_CLASS] != ELFCLASS64) return;
    sections_ = file_.items<Elf64_Shdr>(header[0].e_shoff,
                                        uint64_t{header[0].e_shnum} * sizeof(Elf64_Shdr));
  }

  // The file's mark is in memory too: nobody has put another file there meanwhile.
  bool isLoaded() const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_NOTE || (section.sh_flags & SHF_ALLOC) == 0) continue;
      const auto note = file_.items<char>(section.sh_offset, section.sh_size);
      if (note.size() < sizeof(Elf64_Nhdr)) continue;
      Elf64_Nhdr head;
      std::memcpy(&head, note.data(), sizeof head);
      if (head.n_type != NT_GNU_BUILD_ID) continue;
      const uintptr_t at = base_ + section.sh_addr;
      return isMapped(at, note.size()) &&
             std::memcmp(std::bit_cast<const char*>(at), note.data(), note.size()) == 0;
    }
    return false;
  }

  // All of them, or false. Half a million names lie in 76 MB, and reading them takes 20 ms;
  // oneDNN's functions are of the few that torch's build makes internal, so these are looked at
  // first.
  bool find(Functions& out) const {
    const Elf64_Shdr* table = nullptr;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_SYMTAB) table = &section;
    }
    if (table == nullptr || table->sh_link >= sections_.size()) return false;
    const Elf64_Shdr& strings = sections_[table->sh_link];
    const auto names = file_.items<char>(strings.sh_offset, strings.sh_size);
    const auto symbols = file_.items<Elf64_Sym>(table->sh_offset, table->sh_size);
    size_t left = 0;
#define FUNCTION(function) ++left;
#include "aten/onednn.def"
#undef FUNCTION
    for (const bool internal : {true, false}) {
      for (const Elf64_Sym& symbol : symbols) {
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
        if ((ELF64_ST_VISIBILITY(symbol.st_other) == STV_INTERNAL) != internal) continue;
        left -= take(nameAt(names, symbol.st_name), symbol, out);
        if (left == 0) return true;
      }
    }
    return false;
  }

 private:
  // In one piece of the library that is in memory: what `sections_` say may be of another file.
  bool isMapped(uintptr_t at, size_t bytes) const {
    struct Wanted {
      uintptr_t base, at;
      size_t bytes;
      bool found = false;
    };
    Wanted piece{base_, at, bytes};
    const auto look = [](dl_phdr_info* info, size_t, void* data) {
      auto& wanted = *static_cast<Wanted*>(data);
      if (info->dlpi_addr != wanted.base) return 0;
      for (const ElfW(Phdr) & part : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
        if (part.p_type != PT_LOAD) continue;
        const uintptr_t begin = wanted.base + part.p_vaddr;
        wanted.found |= wanted.at >= begin && wanted.bytes <= part.p_memsz &&
                        wanted.at - begin <= part.p_memsz - wanted.bytes;
      }
      return 1;
    };
    dl_iterate_phdr(look, &piece);
    return piece.found;
  }

  // How many of the functions it is: one or none.
  size_t take(std::string_view name, const Elf64_Sym& symbol, Functions& out) const {
    if (!name.starts_with("dnnl_")) return 0;
    name.remove_prefix(5);
    const auto is = [&](auto& function, std::string_view called) -> size_t {
      if (name != called || function != nullptr) return 0;
      function =
          std::bit_cast<std::remove_reference_t<decltype(function)>>(base_ + symbol.st_value);
      return 1;
    };
    size_t found = 0;
#define FUNCTION(function) found += is(out.function, #function);
#include "aten/onednn.def"
#undef FUNCTION
    return found;
  }

  File file_;
  uintptr_t base_;
  std::span<const Elf64_Shdr> sections_;
};

const Functions* find() {
  Dl_info info;
  link_map* map = nullptr;
  auto* known = reinterpret_cast<void*>(&at::globalContext);
  if (dladdr1(known, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return nullptr;
  if (map == nullptr || info.dli_fname == nullptr) return nullptr;
  const Library library(info.dli_fname, map->l_addr);
  Functions found;
  if (!library.isLoaded() || !library.find(found)) return nullptr;
  const dnnl_version_t* version = found.version();
  const bool same = version->major == DNNL_VERSION_MAJOR && version->minor == DNNL_VERSION_MINOR &&
                    version->patch == DNNL_VERSION_PATCH &&
                    version->cpu_runtime == DNNL_CPU_RUNTIME &&
                    std::string_view(version->hash) == DNNL_VERSION_HASH;
  return same ? new Functions(found) : nullptr;  // as long as the process
}

}  // namespace

const Functions* functions() {
  static const Functions* const kFunctions = find();
  return kFunctions;
}

void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  throw std::runtime_error("oneDNN: " + std::string(what) + ": status " + std::to_string(status));
}

dnnl_engine_t engine() {
  static const dnnl_engine_t kEngine = [] {
    dnnl_engine_t made = nullptr;
    check(functions()->engine_create(&made, dnnl_cpu, 0), "engine");
    return made;
  }();
  return kEngine;
}

dnnl_stream_t stream() {
  thread_local const Owned<dnnl_stream> kStream = [] {
    dnnl_stream_t made = nullptr;
    check(functions()->stream_create(&made, engine(), dnnl_stream_default_flags), "stream");
    return Owned<dnnl_stream>(made);
  }();
  return kStream.get();
}

}  // namespace glowplug::aten::onednn
