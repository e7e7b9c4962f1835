// A rank that splits ARGUMENT communicators off its job's, all of which live at once and reduce;
// then it destroys them. Rank 0 prints one line of JSON with the resources that its process used.
// endurance_run_test.py starts it through gyre run.
#include "tests/support/comm/many_communicators.h"

#include "tests/support/base/resource_use.h"
#include <gyre/gyre.h>

#include <cstdio>
#include <cstdlib>

using namespace gyre::tests;

namespace {

int failed(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, gyreGetLastError(nullptr));
  return 1;
}

void print(const char* name, const ResourceUse& use, const char* end) {
  std::printf("\"%s\": {\"kib\": %.0f, \"heap_kib\": %.0f, \"descriptors\": %d, \"threads\": %d}%s",
              name, use.resident_kib, use.heap_kib, use.descriptors, use.threads, end);
}

}  // namespace

int main(int argc, char** argv) {
  const int live = argc == 2 ? std::atoi(argv[1]) : 0;
  gyreComm_t parent = nullptr;
  int rank = 0, size = 0;
  if (live < 1) return 2;
  if (gyreCommInitEnv(&parent, nullptr) != gyreSuccess) return failed("init");
  if (gyreCommUserRank(parent, &rank) != gyreSuccess || gyreCommCount(parent, &size) != gyreSuccess)
    return failed("place");
  // The first ones bring what stays.
  if (ManyCommunicators first; !first.gather(rank, parent, size, 20) || !first.end())
    return failed("first");
  if (gyreBarrier(parent, nullptr) != gyreSuccess) return failed("barrier");
  const ResourceUse before = ResourceUse::take();
  ManyCommunicators communicators;
  const double start = seconds_now();
  if (!communicators.gather(rank, parent, size, live)) return failed("split");
  const double each = (seconds_now() - start) / live;
  if (!communicators.use(size)) return failed("use");
  const ResourceUse during = ResourceUse::take();
  if (!communicators.end() || gyreBarrier(parent, nullptr) != gyreSuccess) return failed("destroy");
  ResourceUse after_limit = before;
  after_limit.heap_kib += kept_kib(live);
  const ResourceUse after = ResourceUse::settled(after_limit);
  if (rank == 0) {
    std::printf("{\"live\": %d, \"ranks\": %d, \"split_and_reduce_us\": %.1f, \"memory\": %s, ",
                live, size, 1e6 * each, memory_is_told ? "true" : "false");
    print("before", before, ", ");
    print("during", during, ", ");
    print("after", after, "}\n");
  }
  return gyreCommDestroy(parent) == gyreSuccess ? 0 : failed("end");
}
