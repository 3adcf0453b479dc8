#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace c10 {
struct StorageImpl;
}

// Aliases that write without moving a tensor's version counter on. `tensor.data` makes one, and so
// do `numpy()`, `untyped_storage()` and `data_ptr()`: raw memory. Whoever remembers what a tensor
// contained has to hear of them, so once the extension is imported the entries of torch's tables
// for these are functions that take a note and call torch's own. Nothing in Python can tell the
// difference.
namespace glowplug::aten {

enum class HandedOut : uint8_t {
  Nothing,
  Alias,   // holds the storage, while it lives
  Memory,  // may be written for ever
};

// With the GIL, once. Where torch's tables are not as expected, hearsOfUnversioned() stays false,
// and nothing may be frozen.
void hearOfUnversioned();
bool hearsOfUnversioned();

// From now on `*dirty` tells of aliases of the storage that are handed out. The caller
// keeps the storage's address from being used again while it holds `dirty`.
void watchUnversioned(const c10::StorageImpl* storage,
                      const std::shared_ptr<std::atomic<HandedOut>>& dirty);

}  // namespace glowplug::aten
