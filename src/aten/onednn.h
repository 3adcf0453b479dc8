#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <memory>

// oneDNN as torch's library contains it, by its C interface.
//
// Torch's operators make descriptions, look a primitive up and allocate at each call, which takes
// longer than many a convolution. A primitive that is kept needs oneDNN's own functions. Torch's
// library has them all and exports none; a second copy of oneDNN would bring threads of its own
// beside torch's. So they are found by name in the library's symbol table, as a debugger finds
// them, and used if the file is the one that was loaded and oneDNN says that it is the very version
// of the header. Otherwise, as with a library without that table, torch's operators do the work.
namespace glowplug::aten::onednn {

struct Functions {
#define FUNCTION(name) decltype(&::dnnl_##name) name = nullptr;
#include "aten/onednn.def"
#undef FUNCTION
};

// Null where they are not to be had. The first call reads the table: some milliseconds. Any thread.
const Functions* functions();

dnnl_engine_t engine();
dnnl_stream_t stream();  // of this thread

// Throws std::runtime_error that names `what`.
void check(dnnl_status_t status, const char* what);

struct Destroy {
  void operator()(dnnl_memory_desc* desc) const { functions()->memory_desc_destroy(desc); }
  void operator()(dnnl_stream* stream) const { functions()->stream_destroy(stream); }
  void operator()(dnnl_memory* memory) const { functions()->memory_destroy(memory); }
  void operator()(dnnl_post_ops* ops) const { functions()->post_ops_destroy(ops); }
  void operator()(dnnl_primitive_attr* attr) const { functions()->primitive_attr_destroy(attr); }
  void operator()(dnnl_primitive_desc* desc) const { functions()->primitive_desc_destroy(desc); }
  void operator()(dnnl_primitive* primitive) const { functions()->primitive_destroy(primitive); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;

}  // namespace glowplug::aten::onednn
