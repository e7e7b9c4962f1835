// Owned<Traits>: the one RAII handle. Traits say what a handle is, which value means none, and how
// it is closed. They may also replace a handle when it is adopted. No bare descriptor, mapping or
// foreign object lives outside an Owned. The log's descriptor and the mark of descriptors are
// exceptions: they stay until the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace gyre {

template <typename Traits>
class Owned {
 public:
  using Handle = typename Traits::Handle;

  Owned() = default;
  explicit Owned(Handle handle) : handle_(adopted(handle)) {}
  Owned(Owned&& other) noexcept : handle_(other.release()) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  const Handle& get() const { return handle_; }
  bool has_value() const { return !(handle_ == Traits::none()); }
  // The caller owns it from here.
  [[nodiscard]] Handle release() { return std::exchange(handle_, Traits::none()); }
  void reset() {
    if (has_value()) Traits::close(release());
  }

 private:
  static Handle adopted(Handle handle) {
    if constexpr (requires { Traits::adopt(handle); })
      return Traits::adopt(handle);
    else
      return handle;
  }

  Handle handle_ = Traits::none();
};

struct FileDescriptorTraits {
  using Handle = int;
  static int none() { return -1; }
  // Where the program has closed all descriptors, the number is somebody else's, or nobody's.
  static void close(int descriptor);
  // None, and errno, if there is no number above those of the standard streams.
  static int adopt(int descriptor);
};
using FileDescriptor = Owned<FileDescriptorTraits>;

struct MemoryRange {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  friend bool operator==(const MemoryRange&, const MemoryRange&) = default;

  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(data); }
  // All of those bytes; their address may be anything.
  bool holds(const void* memory, std::uint64_t count) const {
    const auto from = reinterpret_cast<std::uintptr_t>(memory);
    return from >= begin() && from - begin() <= bytes && count <= bytes - (from - begin());
  }
  // Any byte of both.
  bool meets(const MemoryRange& other) const {
    return begin() < other.begin() + other.bytes && other.begin() < begin() + bytes;
  }
};

struct MappingTraits {
  using Handle = MemoryRange;
  static MemoryRange none() { return {}; }
  static void close(MemoryRange range) { ::munmap(range.data, range.bytes); }
};
using Mapping = Owned<MappingTraits>;

}  // namespace gyre
