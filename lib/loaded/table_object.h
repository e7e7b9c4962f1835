// An object of a loaded library, destroyed by the table of functions that made it.
#pragma once

#include "lib/base/owned.h"

namespace gyre::loaded {

// `destroy`: the table's function for it, as in &Verbs::close_device.
template <typename Table, typename Object, auto destroy>
struct TableObjectTraits {
  struct Handle {
    const Table* table = nullptr;
    Object* object = nullptr;
    Object* operator->() const { return object; }
    friend bool operator==(const Handle&, const Handle&) = default;
  };
  static Handle none() { return {}; }
  static void close(const Handle& handle) { (void)(handle.table->*destroy)(handle.object); }
};

}  // namespace gyre::loaded
