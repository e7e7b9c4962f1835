// The one seam between the kernels and the machine: every access to payload, flags and counters,
// every barrier, ordering and clock goes through it. Compiled by nvcc it is PTX, below. Compiled
// for the host these are declarations, and tests/support/host_device implements them. Words: weak
// accesses are payload; only barriers, acquires and releases order them. Relaxed accesses are
// single words that other blocks and GPUs see at some time. A line part is a thread's 16 bytes of a
// 128-byte line that eight neighbouring threads of a warp read or write as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// Outlined: what is rare, so that kernels and the time to compile them stay small. What a kernel
// hands to it by reference lies in memory from then on.
#if defined(__CUDACC__)
#define GYRE_DEVICE __device__ __forceinline__
#define GYRE_UNROLL _Pragma("unroll")
#define GYRE_NO_UNROLL _Pragma("unroll 1")
#define GYRE_OUTLINE __device__ __noinline__
#else
#define GYRE_DEVICE inline
#define GYRE_UNROLL
#define GYRE_NO_UNROLL
#define GYRE_OUTLINE inline
#endif

namespace gyre::cuda {

struct alignas(16) Bytes16 {
  std::uint64_t low;
  std::uint64_t high;
};

// What a thread waits for: told in the status after an abort, and in a report of a deadlock.
enum class WaitingFor : std::uint32_t { nothing, credit, data, grant, drain };

namespace device {

inline constexpr std::uint32_t warp_threads = 32;

#if defined(__CUDACC__)
#define GYRE_MACHINE __device__ __forceinline__
#else
#define GYRE_MACHINE
#endif

GYRE_MACHINE std::uint32_t thread_index();
GYRE_MACHINE std::uint32_t thread_count();
GYRE_MACHINE std::uint32_t block_index();
GYRE_MACHINE std::uint32_t block_count();

// All threads of the block meet; what each did before, all see after.
GYRE_MACHINE void block_barrier();
GYRE_MACHINE bool block_any(bool mine);
// All threads of the warp meet.
GYRE_MACHINE bool warp_any(bool mine);

// Payload.
GYRE_MACHINE std::uint8_t load_1(const std::byte* place);
GYRE_MACHINE std::uint16_t load_2(const std::byte* place);
GYRE_MACHINE std::uint32_t load_4(const std::byte* place);
GYRE_MACHINE std::uint64_t load_8(const std::byte* place);
GYRE_MACHINE Bytes16 load_16(const std::byte* place);
GYRE_MACHINE void store_1(std::byte* place, std::uint8_t value);
GYRE_MACHINE void store_2(std::byte* place, std::uint16_t value);
GYRE_MACHINE void store_4(std::byte* place, std::uint32_t value);
GYRE_MACHINE void store_8(std::byte* place, std::uint64_t value);
GYRE_MACHINE void store_16(std::byte* place, const Bytes16& value);

// Words that other GPUs and the host write and read.
GYRE_MACHINE std::uint32_t load_relaxed(const std::uint32_t* word);
GYRE_MACHINE std::uint64_t load_relaxed(const std::uint64_t* word);
GYRE_MACHINE std::uint64_t load_acquire(const std::uint64_t* word);
GYRE_MACHINE void store_relaxed(std::uint32_t* word, std::uint32_t value);
GYRE_MACHINE void store_relaxed(std::uint64_t* word, std::uint64_t value);
GYRE_MACHINE void store_release(std::uint64_t* word, std::uint64_t value);
// For the host to look at: no kernel reads it, so that it gets nobody any further.
GYRE_MACHINE void show(std::uint64_t* word, std::uint64_t value);
// Among the blocks of a grid; returns what was there before.
GYRE_MACHINE std::uint32_t add_acquire_release(std::uint32_t* word, std::uint32_t value);

// Two words of 4 bytes of payload and 4 of flag each; each of the two arrives whole.
GYRE_MACHINE Bytes16 load_flagged(const std::byte* place);
GYRE_MACHINE void store_flagged(std::byte* place, const Bytes16& value);

// The whole warp calls these; a null place takes no part but in the meeting.
GYRE_MACHINE Bytes16 load_line_part(const std::byte* place);
GYRE_MACHINE void store_line_part(std::byte* place, const Bytes16& value);

// A place in a multicast group is the same place in the memory of each of its ranks: what all have
// there, summed in fp32, and what all get. From sm_90 on.
GYRE_MACHINE Bytes16 multicast_sum_float32(const std::byte* place);
GYRE_MACHINE Bytes16 multicast_sum_float16(const std::byte* place);
GYRE_MACHINE Bytes16 multicast_sum_bfloat16(const std::byte* place);
GYRE_MACHINE void multicast_store(std::byte* place, const Bytes16& value);
// Between accesses to a group and accesses to the same memory by its own addresses.
GYRE_MACHINE void alias_fence();

// After a poll in vain.
GYRE_MACHINE void pause(WaitingFor what, std::uint32_t link);
GYRE_MACHINE std::uint64_t clock_ns();

// The bits of kernels/cpu/narrow_float.h, by instructions where there are any.
GYRE_MACHINE float widen_float16(std::uint16_t code);
GYRE_MACHINE std::uint16_t narrow_float16(float value);
GYRE_MACHINE float widen_bfloat16(std::uint16_t code);
GYRE_MACHINE std::uint16_t narrow_bfloat16(float value);

// Memory of the block, one T in a kernel; not initialised.
#if defined(__CUDACC__)
template <typename T>
GYRE_MACHINE T& block_memory() {
  __shared__ alignas(16) unsigned char bytes[sizeof(T)];
  return *reinterpret_cast<T*>(bytes);
}
#else
void* block_bytes(std::size_t bytes);
template <typename T>
T& block_memory() {
  return *static_cast<T*>(block_bytes(sizeof(T)));
}
#endif

}  // namespace device
}  // namespace gyre::cuda

#if defined(__CUDACC__)

namespace gyre::cuda::device {

GYRE_MACHINE std::uint32_t thread_index() { return threadIdx.x; }
GYRE_MACHINE std::uint32_t thread_count() { return blockDim.x; }
GYRE_MACHINE std::uint32_t block_index() { return blockIdx.x; }
GYRE_MACHINE std::uint32_t block_count() { return gridDim.x; }

GYRE_MACHINE void block_barrier() { __syncthreads(); }
GYRE_MACHINE bool block_any(bool mine) { return __syncthreads_or(mine ? 1 : 0) != 0; }
GYRE_MACHINE bool warp_any(bool mine) { return __any_sync(0xffffffffU, mine ? 1 : 0) != 0; }

// asm volatile keeps the order of the program among all that goes through here; nothing is cached
// in registers, nor read by way of the read-only path.
#define GYRE_LOAD(name, type, suffix, constraint)         \
  GYRE_MACHINE type name(const std::byte* place) {        \
    type value;                                           \
    asm volatile("ld.global." suffix " %0, [%1];"         \
                 : "=" constraint(value)                  \
                 : "l"(__cvta_generic_to_global(place))); \
    return value;                                         \
  }
#define GYRE_STORE(name, type, suffix, constraint)                                        \
  GYRE_MACHINE void name(std::byte* place, type value) {                                  \
    asm volatile("st.global." suffix " [%0], %1;" ::"l"(__cvta_generic_to_global(place)), \
                 constraint(value)                                                        \
                 : "memory");                                                             \
  }
GYRE_LOAD(load_2, std::uint16_t, "u16", "h")
GYRE_LOAD(load_4, std::uint32_t, "u32", "r")
GYRE_LOAD(load_8, std::uint64_t, "u64", "l")
GYRE_STORE(store_2, std::uint16_t, "u16", "h")
GYRE_STORE(store_4, std::uint32_t, "u32", "r")
GYRE_STORE(store_8, std::uint64_t, "u64", "l")
#undef GYRE_LOAD
#undef GYRE_STORE

// asm knows no registers of one byte.
GYRE_MACHINE std::uint8_t load_1(const std::byte* place) {
  std::uint16_t value;
  asm volatile("ld.global.u8 %0, [%1];" : "=h"(value) : "l"(__cvta_generic_to_global(place)));
  return static_cast<std::uint8_t>(value);
}
GYRE_MACHINE void store_1(std::byte* place, std::uint8_t value) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(__cvta_generic_to_global(place)),
               "h"(static_cast<std::uint16_t>(value))
               : "memory");
}

#define GYRE_LOAD_PAIR(name, kind)                          \
  GYRE_MACHINE Bytes16 name(const std::byte* place) {       \
    Bytes16 value;                                          \
    asm volatile("ld." kind "global.v2.u64 {%0, %1}, [%2];" \
                 : "=l"(value.low), "=l"(value.high)        \
                 : "l"(__cvta_generic_to_global(place)));   \
    return value;                                           \
  }
#define GYRE_STORE_PAIR(name, kind)                                                      \
  GYRE_MACHINE void name(std::byte* place, const Bytes16& value) {                       \
    asm volatile("st." kind                                                              \
                 "global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(place)), \
                 "l"(value.low), "l"(value.high)                                         \
                 : "memory");                                                            \
  }
GYRE_LOAD_PAIR(load_16, "")
GYRE_STORE_PAIR(store_16, "")
// Each of the two words is single-copy atomic, which is all that a flag beside its data needs.
GYRE_LOAD_PAIR(load_flagged, "relaxed.sys.")
GYRE_STORE_PAIR(store_flagged, "relaxed.sys.")
GYRE_LOAD_PAIR(load_whole_line_part, "volatile.")
GYRE_STORE_PAIR(store_whole_line_part, "volatile.")
#undef GYRE_LOAD_PAIR
#undef GYRE_STORE_PAIR

// One instruction of a converged warp: the memory system keeps each 128-byte line whole, on paths
// that the host knows to do so.
GYRE_MACHINE Bytes16 load_line_part(const std::byte* place) {
  __syncwarp();
  return place != nullptr ? load_whole_line_part(place) : Bytes16{0, 0};
}
GYRE_MACHINE void store_line_part(std::byte* place, const Bytes16& value) {
  __syncwarp();
  if (place != nullptr) store_whole_line_part(place, value);
}

#define GYRE_WORD(type, suffix, constraint)                          \
  GYRE_MACHINE type load_relaxed(const type* word) {                 \
    type value;                                                      \
    asm volatile("ld.relaxed.sys.global." suffix " %0, [%1];"        \
                 : "=" constraint(value)                             \
                 : "l"(__cvta_generic_to_global(word))               \
                 : "memory");                                        \
    return value;                                                    \
  }                                                                  \
  GYRE_MACHINE void store_relaxed(type* word, type value) {          \
    asm volatile("st.relaxed.sys.global." suffix                     \
                 " [%0], %1;" ::"l"(__cvta_generic_to_global(word)), \
                 constraint(value)                                   \
                 : "memory");                                        \
  }
GYRE_WORD(std::uint32_t, "u32", "r")
GYRE_WORD(std::uint64_t, "u64", "l")
#undef GYRE_WORD

GYRE_MACHINE void show(std::uint64_t* word, std::uint64_t value) { store_relaxed(word, value); }

GYRE_MACHINE std::uint64_t load_acquire(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
               : "=l"(value)
               : "l"(__cvta_generic_to_global(word))
               : "memory");
  return value;
}
// Cumulative: what the block did before its last barrier is released with it.
GYRE_MACHINE void store_release(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)),
               "l"(value)
               : "memory");
}
GYRE_MACHINE std::uint32_t add_acquire_release(std::uint32_t* word, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(word)), "r"(value)
               : "memory");
  return before;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define GYRE_MULTICAST_SUM(name, type, word, constraint)                                      \
  GYRE_MACHINE Bytes16 name(const std::byte* place) {                                         \
    struct {                                                                                  \
      word at[4];                                                                             \
    } words;                                                                                  \
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add." type " {%0, %1, %2, %3}, [%4];" \
                 : "=" constraint(words.at[0]), "=" constraint(words.at[1]),                  \
                   "=" constraint(words.at[2]), "=" constraint(words.at[3])                   \
                 : "l"(__cvta_generic_to_global(place))                                       \
                 : "memory");                                                                 \
    Bytes16 sum;                                                                              \
    memcpy(&sum, &words, sizeof sum);                                                         \
    return sum;                                                                               \
  }
GYRE_MACHINE void multicast_store(std::byte* place, const Bytes16& value) {
  asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(place)),
               "f"(__uint_as_float(static_cast<std::uint32_t>(value.low))),
               "f"(__uint_as_float(static_cast<std::uint32_t>(value.low >> 32))),
               "f"(__uint_as_float(static_cast<std::uint32_t>(value.high))),
               "f"(__uint_as_float(static_cast<std::uint32_t>(value.high >> 32)))
               : "memory");
}
GYRE_MACHINE void alias_fence() { asm volatile("fence.proxy.alias;" ::: "memory"); }
#else  // hosts give such devices no group
#define GYRE_MULTICAST_SUM(name, type, word, constraint) \
  GYRE_MACHINE Bytes16 name(const std::byte*) {          \
    __trap();                                            \
    return {};                                           \
  }
GYRE_MACHINE void multicast_store(std::byte*, const Bytes16&) { __trap(); }
GYRE_MACHINE void alias_fence() {}
#endif
GYRE_MULTICAST_SUM(multicast_sum_float32, "v4.f32", float, "f")
GYRE_MULTICAST_SUM(multicast_sum_float16, "acc::f32.v4.f16x2", std::uint32_t, "r")
GYRE_MULTICAST_SUM(multicast_sum_bfloat16, "acc::f32.v4.bf16x2", std::uint32_t, "r")
#undef GYRE_MULTICAST_SUM

GYRE_MACHINE void pause(WaitingFor, std::uint32_t) {}
GYRE_MACHINE std::uint64_t clock_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// The instructions round to nearest even and keep subnormals; their NaNs are not ours.
GYRE_MACHINE float widen_float16(std::uint16_t code) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
  return value;
}
GYRE_MACHINE std::uint16_t narrow_float16(float value) {
  std::uint16_t code;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
  return value == value ? code : std::uint16_t{0x7e00};
}
GYRE_MACHINE float widen_bfloat16(std::uint16_t code) {
  return __uint_as_float(static_cast<std::uint32_t>(code) << 16);
}
GYRE_MACHINE std::uint16_t narrow_bfloat16(float value) {
  std::uint16_t code;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(value));
  return value == value ? code : std::uint16_t{0x7fc0};
}

}  // namespace gyre::cuda::device

#endif
