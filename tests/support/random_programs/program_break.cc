// Faults that break a communicator, and the error that every member has to get: in the call that
// meets the fault, or in the next one.
#include "tests/support/random_programs/program_run.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

namespace gyre::tests {
namespace {

using Do = std::function<gyreResult_t(gyreComm_t comm, std::vector<float>& memory)>;

// What the others call and what the odd one calls, and words of what all are told.
struct Script {
  std::vector<Do> usual, odd;
  std::vector<std::string> words;
  std::vector<gyreResult_t> codes = {gyreMismatch};
};

Do sum_of(std::size_t count, gyreDataType_t type = gyreFloat, gyreRedOp_t op = gyreSum) {
  return [=](gyreComm_t comm, std::vector<float>& memory) {
    return gyreAllReduce(memory.data(), memory.data(), count, type, op, comm, nullptr);
  };
}

Do broadcast_of(std::size_t count, int root) {
  return [=](gyreComm_t comm, std::vector<float>& memory) {
    return gyreBcast(memory.data(), count, gyreFloat, root, comm, nullptr);
  };
}

Do gather_of(std::size_t count) {
  return [=](gyreComm_t comm, std::vector<float>& memory) {
    return gyreAllGather(memory.data(), memory.data() + count, count, gyreFloat, comm, nullptr);
  };
}

// The odd one takes the last block for shorter, or the first if the last is its own.
Do gather_v_of(std::size_t count, int size, int shorter) {
  return [=](gyreComm_t comm, std::vector<float>& memory) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(size), count), places(counts.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    for (std::size_t& place : places) place *= count;
    if (shorter != nobody) counts[static_cast<std::size_t>(shorter)] = count - 1;
    return gyreAllGatherv(memory.data(), count, memory.data() + count, counts.data(), places.data(),
                          gyreFloat, comm, nullptr);
  };
}

// Sends to the odd one, which does not receive, or receives from it, which does not send.
Do transfer_with(std::size_t count, int peer) {
  return [=](gyreComm_t comm, std::vector<float>& memory) {
    int member = 0;
    (void)gyreCommUserRank(comm, &member);
    if (member % 2 == 0) return gyreSend(memory.data(), count, gyreFloat, peer, comm, nullptr);
    return gyreRecv(memory.data(), count, gyreFloat, peer, comm, nullptr);
  };
}

Script script_of(const Break& fault, int size) {
  const std::size_t count = fault.count;
  const std::string said = std::to_string(count), odd = "rank " + std::to_string(fault.odd);
  const Do barrier = [](gyreComm_t comm, std::vector<float>&) {
    return gyreBarrier(comm, nullptr);
  };
  const Do sum = sum_of(count), cast = broadcast_of(count, 0);
  switch (fault.fault) {
    case Fault::count:
      return {{sum}, {sum_of(count + 1)}, {said + " float", std::to_string(count + 1) + " float"}};
    case Fault::type:
      return {{sum}, {sum_of(count, gyreInt32)}, {said + " float", said + " int32"}};
    case Fault::op:
      return {{sum}, {sum_of(count, gyreFloat, gyreMax)}, {"(sum)", "(max)"}};
    case Fault::root:
      return {{cast}, {broadcast_of(count, 1)}, {"root 0", "root 1"}};
    case Fault::verb:
      return {{sum}, {gather_of(count)}, {"gyreAllReduce", "gyreAllGather"}};
    case Fault::order:
      return {{sum, cast}, {cast, sum}, {"gyreAllReduce", "gyreBroadcast"}};
    case Fault::missing:
      return {{sum, barrier}, {barrier}, {"gyreAllReduce", "gyreBarrier"}};
    case Fault::extra:
      return {{barrier}, {sum, barrier}, {"gyreAllReduce", "gyreBarrier"}};
    case Fault::blocks:
      return {{gather_v_of(count, size, nobody)},
              {gather_v_of(count, size, fault.odd == size - 1 ? 0 : size - 1)},
              {"gyreAllGatherv", "blocks"}};
    case Fault::abort:
      return {{sum}, {}, {odd}, {gyreRemoteError}};
    case Fault::leave:
      return {{sum}, {}, {odd, "has left"}};
    case Fault::abort_aside:
      return {{sum}, {}, {odd}, {gyreRemoteError}};
    case Fault::silence:
      return {{sum}, {}, {odd}, {gyreTimeout, gyreRemoteError}};
    case Fault::no_answer:
      return {{transfer_with(count, fault.odd)}, {}, {odd}, {gyreTimeout, gyreRemoteError}};
  }
  return {};
}

bool is_told(const Script& script, gyreResult_t code, const std::string& text) {
  return std::ranges::find(script.codes, code) != script.codes.end() &&
         std::ranges::all_of(script.words,
                             [&](const std::string& word) { return text.find(word) != text.npos; });
}

// The calls of one round in one group; a member whose list is over calls the barrier.
void call_round(const std::vector<Acting>& acting, const Script& script, int odd, std::size_t round,
                std::vector<std::vector<float>>& memory) {
  if (acting.size() > 1) (void)gyreGroupStart();
  for (const Acting& one : acting) {
    const std::vector<Do>& list = one.member == odd ? script.odd : script.usual;
    if (round < list.size())
      (void)list[round](*one.handle, memory[static_cast<std::size_t>(one.member)]);
    else
      (void)gyreBarrier(*one.handle, nullptr);
  }
  if (acting.size() > 1) (void)gyreGroupEnd();
}

// A call that waits for the others, and which another thread ends. What is wrong with its end.
std::string call_and_abort(gyreComm_t comm, std::vector<float>& memory, const Do& call) {
  std::thread other([comm] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    (void)gyreCommAbort(comm);
  });
  gyreResult_t result = call(comm, memory);
  if (result == gyreInProgress) result = settled(comm);
  other.join();
  // A handle that is asked after the abort is no communicator any more.
  const auto due = {gyreAborted, gyreRemoteError, gyreInvalidArgument};
  if (std::ranges::find(due, result) != due.end()) return {};
  return "the call that another thread aborts ends with " + std::to_string(result) + "\n";
}

// Before the others call: what the odd one does in place of calling, or alone. What is wrong with
// it.
std::string go_ahead(const Break& fault, const Script& script, std::vector<Acting>& acting,
                     std::vector<std::vector<float>>& memory) {
  if (fault.fault < Fault::abort) return {};
  const auto found = std::ranges::find(acting, fault.odd, &Acting::member);
  if (found == acting.end()) return {};
  std::string wrong;
  if (fault.fault == Fault::abort_aside)
    wrong = call_and_abort(*found->handle, memory[static_cast<std::size_t>(fault.odd)],
                           script.usual[0]);
  if (fault.fault == Fault::abort) (void)gyreCommAbort(*found->handle);
  if (fault.fault == Fault::leave) (void)gyreCommDestroy(*found->handle);
  const bool waits = fault.fault == Fault::silence || fault.fault == Fault::no_answer;
  if (!waits) *found->handle = nullptr;
  acting.erase(found);
  return wrong;
}

}  // namespace

std::string broken(const Break& fault, int size, std::vector<Acting> acting, int threads,
                   Crossing& crossing, std::vector<std::vector<float>>& memory) {
  constexpr std::size_t max_rounds = 5;
  const Script script = script_of(fault, size);
  if (!crossing.cross(threads)) return "a thread did not come to the fault";
  std::string wrong = go_ahead(fault, script, acting, memory);
  // Or the call would end well before it is aborted.
  if (fault.fault == Fault::abort_aside && !crossing.cross(threads))
    return wrong + "a thread did not come to the abort";
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t round = 0; round < max_rounds && !acting.empty(); ++round) {
    call_round(acting, script, fault.odd, round, memory);
    std::erase_if(acting, [&](const Acting& one) {
      const gyreResult_t code = settled(*one.handle);
      if (code == gyreSuccess) return false;
      const std::string text = gyreGetLastError(*one.handle);
      if (!is_told(script, code, text))
        wrong += "member " + std::to_string(one.member) + " is told " + std::to_string(code) +
                 ": " + text + "\n";
      return true;
    });
  }
  for (const Acting& one : acting)
    wrong += "member " + std::to_string(one.member) + " is told nothing\n";
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (seconds > 6) wrong += "told after " + std::to_string(seconds) + " s\n";
  if (!crossing.cross(threads)) wrong += "a thread did not come through the fault\n";
  return wrong;
}

}  // namespace gyre::tests
