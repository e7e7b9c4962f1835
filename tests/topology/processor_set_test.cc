// Sets of processors, and the masks that files have.
#include "lib/topology/processor_set.h"

#include "tests/support/catch.h"

namespace processor_set_test {

using gyre::topology::ProcessorSet;

namespace {

ProcessorSet set_of(std::initializer_list<int> processors) {
  ProcessorSet set;
  for (const int one : processors) set.insert(one);
  return set;
}

}  // namespace

TEST_CASE("masks of hwloc and of NCCL name the same processors", "[topology]") {
  struct Case {
    const char* text;
    ProcessorSet expected;
  };
  const Case one =
      GENERATE(Case{"0x00000003", set_of({0, 1})}, Case{"00000000,00000003", set_of({0, 1})},
               Case{"0x1,0x80000000", set_of({31, 32})}, Case{"0", set_of({})},
               Case{"0x00000001,,0x00000001", set_of({0, 64})}, Case{"ffffffff", [] {
                                                                       ProcessorSet all;
                                                                       for (int i = 0; i < 32; ++i)
                                                                         all.insert(i);
                                                                       return all;
                                                                     }()});
  INFO(one.text);
  const auto parsed = ProcessorSet::parse_mask(one.text);
  REQUIRE(parsed.ok());
  CHECK(*parsed == one.expected);
  CHECK(*ProcessorSet::parse_mask(parsed->hwloc_mask()) == one.expected);
  CHECK(*ProcessorSet::parse_mask(parsed->nccl_mask()) == one.expected);
}

TEST_CASE("what is no mask is refused", "[topology]") {
  const char* const text = GENERATE("", "x", "0xf...f", "0x1ffffffff", "1 2", "-1");
  INFO(text);
  CHECK_FALSE(ProcessorSet::parse_mask(text).ok());
  CHECK_FALSE(ProcessorSet::parse_mask(std::string(10'000, ',') + "1").ok());
}

TEST_CASE("sets know what they hold", "[topology]") {
  const ProcessorSet low = set_of({0, 1, 2, 3}), some = set_of({1, 3}), high = set_of({40});
  CHECK(low.contains_all(some));
  CHECK_FALSE(some.contains_all(low));
  CHECK(low.intersects(some));
  CHECK_FALSE(low.intersects(high));
  CHECK_FALSE(low.contains_all(high));
  CHECK(high.contains(40));
  CHECK_FALSE(high.contains(8));
  CHECK(low.count() == 4);
  ProcessorSet kept = low;
  kept.keep_only(set_of({1, 3, 40}));
  CHECK(kept == some);
  kept.keep_only(high);
  CHECK(kept == ProcessorSet());
  const cpu_set_t set = some.cpu_set();
  CHECK(CPU_COUNT(&set) == 2);
  CHECK((CPU_ISSET(1, &set) && CPU_ISSET(3, &set)));
  CHECK(set_of({0, 1, 2, 8}).list() == "0-2,8");
  CHECK(set_of({}).list().empty());
  CHECK(set_of({}).contains_all(set_of({})));
}

}  // namespace processor_set_test
