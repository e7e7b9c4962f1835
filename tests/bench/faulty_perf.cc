// faulty_perf FAULT [options of a perf program]: rank 1 spoils a collective's right result, so that
// a test can see that the benchmarks find wrong data.
#include "bench/runner/collective.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace {

using gyre::bench::BufferExtent;
using gyre::bench::CallArguments;
using gyre::bench::CollectiveBenchmark;
using gyre::bench::ExpectedBlock;
using gyre::bench::Shape;

gyreResult_t all_reduce(const CallArguments& call) {
  return gyreAllReduce(call.send, call.recv, call.count, call.type, call.op, call.comm,
                       call.stream);
}

// XOR of a byte of the last element of `buffer`, or beyond, once the call is done.
void spoil(const CallArguments& call, const void* buffer, std::size_t byte, int bits) {
  if (call.rank != 1 || call.count == 0) return;
  auto* bytes = static_cast<unsigned char*>(const_cast<void*>(buffer));
  bytes[(call.count - 1) * call.element_bytes + byte] ^= static_cast<unsigned char>(bits);
}

gyreResult_t right(const CallArguments& call) { return all_reduce(call); }

gyreResult_t wrong_element(const CallArguments& call) {
  const gyreResult_t result = all_reduce(call);
  spoil(call, call.recv, call.element_bytes - 1, 0x40);
  return result;
}

// Within what rounding may do, but no other rank has it.
gyreResult_t other_bits(const CallArguments& call) {
  const gyreResult_t result = all_reduce(call);
  spoil(call, call.recv, 0, 1);
  return result;
}

gyreResult_t beyond_output(const CallArguments& call) {
  const gyreResult_t result = all_reduce(call);
  spoil(call, call.recv, call.element_bytes, 0x40);
  return result;
}

gyreResult_t changed_input(const CallArguments& call) {
  const gyreResult_t result = all_reduce(call);
  if (call.send != call.recv) spoil(call, call.send, 0, 0x40);
  return result;
}

// Rank 1 is not the root and gets nothing.
gyreResult_t no_output(const CallArguments& call) {
  const gyreResult_t result = gyreReduce(call.send, call.recv, call.count, call.type, call.op,
                                         call.root, call.comm, call.stream);
  spoil(call, call.recv, 0, 0x40);
  return result;
}

CollectiveBenchmark faulty(gyreResult_t (*call)(const CallArguments&), bool rooted) {
  CollectiveBenchmark collective;
  collective.program = "faulty_perf";
  collective.name = "Faulty";
  collective.calls = "gyreAllReduce";
  collective.reduces = true;
  collective.rooted = rooted;
  collective.same_everywhere = !rooted;
  collective.extent = [](const Shape& shape) {
    return BufferExtent{.send = shape.count, .recv = shape.count, .param = shape.count};
  };
  collective.bus_factor = gyre::bench::whole_size;
  collective.expected = [](const Shape& shape, const BufferExtent& extent, int rank) {
    std::vector<ExpectedBlock> blocks;
    if (shape.root < 0 || shape.root == rank) blocks.push_back({.count = extent.recv});
    return blocks;
  };
  collective.call = call;
  return collective;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, CollectiveBenchmark> faults = {
      {"none", faulty(right, false)},
      {"wrong_element", faulty(wrong_element, false)},
      {"other_bits", faulty(other_bits, false)},
      {"beyond_output", faulty(beyond_output, false)},
      {"changed_input", faulty(changed_input, false)},
      {"no_output", faulty(no_output, true)},
  };
  const auto fault = faults.find(argc > 1 ? argv[1] : "");
  if (fault == faults.end()) return std::fprintf(stderr, "no such fault\n"), 2;
  return gyre::bench::run_benchmark(fault->second, argc - 1, argv + 1);
}
