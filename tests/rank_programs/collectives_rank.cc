// A rank that makes every call of the campaign's table, over and over, and compares each result
// with what is due. Rank 0's clock says when to end. Prints
//   begun                           after its first round of all calls
//   done ROUNDS                     its time was up
//   error SECONDS CODE CALL: TEXT   the first call that failed, by CLOCK_MONOTONIC
//   wrong CALL ELEMENT ...          a result that is not right
// usage: collectives_rank SECONDS COUNT...: elements of a block, one round for each
#include "tests/campaign/errand.h"
#include "tests/campaign/verb.h"
#include <gyre/gyre.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

using namespace gyre::campaign;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool failed(gyreResult_t result, gyreComm_t comm, const char* call) {
  if (result == gyreSuccess) return false;
  std::printf("error %.3f %d %s: %s\n", now(), static_cast<int>(result), call,
              gyreGetLastError(comm));
  return true;
}

class Round {
 public:
  Round(gyreComm_t comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {
    everyone_.resize(static_cast<std::size_t>(size));
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }

  // False: a call failed, or gave a wrong result.
  bool carry_out(std::size_t count) {
    return std::ranges::all_of(call_kinds(),
                               [&](const CallKind& kind) { return make(kind, count); });
  }

 private:
  bool make(const CallKind& kind, std::size_t count) {
    Errand errand{.verb = kind.name, .count = count, .root = number_ % size_};
    const auto size = static_cast<std::size_t>(size_);
    in_.resize(in_elements(errand, size));
    out_.assign(out_elements(errand, size), 0xA5A5A5A5);
    for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = given(number_, rank_, i);
    CallSite site{errand, number_, rank_,      size_,      everyone_,
                  comm_,  nullptr, in_.data(), out_.data()};
    if (failed(kind.make(site), comm_, kind.name)) return false;
    ++number_;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const std::optional<std::uint32_t> due = kind.expected(site, i);
      if (!due || *due == out_[i]) continue;
      std::printf("wrong %s element %zu of %zu is %08x, not %08x\n", kind.name, i, out_.size(),
                  out_[i], *due);
      return false;
    }
    return true;
  }

  const gyreComm_t comm_;
  const int rank_, size_;
  std::vector<int> everyone_;
  std::vector<std::uint32_t> in_, out_;
  int number_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  gyreComm_t comm = nullptr;
  int rank = 0, size = 0;
  if (failed(gyreCommInitEnv(&comm, nullptr), nullptr, "init")) return 3;
  if (failed(gyreCommUserRank(comm, &rank), comm, "rank") ||
      failed(gyreCommCount(comm, &size), comm, "count"))
    return 3;
  const double until = now() + std::atof(argv[1]);
  Round round(comm, rank, size);
  int more = 1;
  long rounds = 0;
  for (; more != 0; ++rounds) {
    for (int i = 2; i < argc; ++i)
      if (!round.carry_out(std::strtoul(argv[i], nullptr, 10))) return 3;
    if (rounds == 0) std::printf("begun\n");
    more = now() < until ? 1 : 0;
    if (failed(gyreBroadcast(&more, &more, 1, gyreInt, 0, comm, nullptr), comm, "goal")) return 3;
  }
  if (failed(gyreCommDestroy(comm), nullptr, "destroy")) return 3;
  std::printf("done %ld\n", rounds);
  return 0;
}
