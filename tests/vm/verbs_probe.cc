// Does a verbs device do what an RDMA transport relies on? One process holds both ends of queue
// pairs, on one device or on two that are joined. It knows libibverbs alone, nothing of Gyre: if it
// fails, the device or its driver does. verbs_probe --help names its checks.
#include "tests/vm/verbs_ends.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <vector>

using namespace gyre::tests;

namespace {

constexpr std::uint32_t immediate = 0x12345678;

void writes_carry_an_immediate(Ends& ends) {
  ends.sender.fill(0, 5000, 1);
  ends.receiver.post_receive(7);
  ends.sender.post_write(ends.receiver, 0, 5000, {.immediate = immediate});
  check(ends.sender.next().status == IBV_WC_SUCCESS, "the write succeeds");
  const ibv_wc got = ends.receiver.next();
  check(got.status == IBV_WC_SUCCESS && got.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "it is announced");
  check(got.wr_id == 7 && ntohl(got.imm_data) == immediate, "with its number");
  check(got.byte_len == 5000, "and its length");
  check(ends.receiver.is_filled(0, 5000, 1), "every byte is in its place");
}

void empty_writes_announce(Ends& ends) {
  ends.receiver.post_receive(8);
  ends.sender.post_write(ends.receiver, 0, 0, {.immediate = immediate});
  check(ends.sender.next().status == IBV_WC_SUCCESS, "an empty write succeeds");
  const ibv_wc got = ends.receiver.next();
  check(got.byte_len == 0 && ntohl(got.imm_data) == immediate, "and is announced");
}

void inline_bytes_are_taken_at_once(Ends& ends) {
  ends.sender.fill(0, 64, 2);
  ends.sender.post_write(ends.receiver, 0, 64, {.is_inline = true});
  ends.sender.fill(0, 64, 3);
  check(ends.sender.next().status == IBV_WC_SUCCESS, "an inline write succeeds");
  check(ends.receiver.is_filled(0, 64, 2), "with the bytes at the time of the call");
}

void long_writes_arrive(Ends& ends) {
  for (std::uint64_t round = 0; round < 4; ++round) {
    ends.sender.fill(0, End::region_bytes, round);
    ends.sender.post_write(ends.receiver, 0, End::region_bytes, {});
    check(ends.sender.next().status == IBV_WC_SUCCESS, "a write of 4 MiB succeeds");
    check(ends.receiver.is_filled(0, End::region_bytes, round), "every byte is in its place");
  }
}

void completions_wake(Ends& ends) {
  ends.receiver.ask_for_event();
  check(!ends.receiver.has_event(0), "no event before a completion");
  ends.receiver.post_receive(9);
  ends.sender.post_write(ends.receiver, 0, 16, {.immediate = immediate});
  check(ends.receiver.has_event(5000), "a completion wakes its sleeper");
  check(ends.receiver.next().wr_id == 9, "and is there");
}

void bad_keys_are_refused(Ends& ends) {
  ends.sender.post_write(ends.receiver, 0, 16, {.key_change = 0x5a});
  ends.sender.post_write(ends.receiver, 0, 16, {});
  check(ends.sender.next().status == IBV_WC_REM_ACCESS_ERR, "a wrong remote key is an error");
  check(ends.sender.next().status == IBV_WC_WR_FLUSH_ERR, "which flushes what follows");
  check(ends.sender.state() == IBV_QPS_ERR, "and stops the queue pair");
}

void revoked_keys_are_refused(Ends& ends) {
  ends.receiver.deregister();
  ends.sender.post_write(ends.receiver, 0, 16, {});
  check(ends.sender.next().status == IBV_WC_REM_ACCESS_ERR, "a revoked remote key is an error");
}

void a_peer_that_is_gone_is_told(Ends& ends) {
  ends.receiver.destroy_pair();
  const double began = now_s();
  ends.sender.post_write(ends.receiver, 0, 16, {});
  check(ends.sender.next().status == IBV_WC_RETRY_EXC_ERR, "no answer is an error");
  std::printf("   told after %.2f s\n", now_s() - began);
  check(now_s() - began < 5, "in bounded time");
}

void a_receiver_that_is_not_ready_is_told(Ends& ends) {
  ends.sender.post_write(ends.receiver, 0, 16, {.immediate = immediate});
  check(ends.sender.next().status == IBV_WC_RNR_RETRY_EXC_ERR, "no posted receive is an error");
}

void an_error_flushes_receives(Ends& ends) {
  ends.receiver.post_receive(10);
  ends.receiver.set_to_error();
  const ibv_wc got = ends.receiver.next();
  check(got.status == IBV_WC_WR_FLUSH_ERR && got.wr_id == 10, "a posted receive is given back");
}

void a_full_completion_queue_is_told(Ends& ends) {
  const int most = ends.sender.queue_entries();
  for (int i = 0; i <= most; ++i) {
    ends.sender.post_write(ends.receiver, 0, 0, {});
    // Not more on their way than the queue pair takes.
    if (i % 8 == 7) sleep_s(0.05);
  }
  check(ends.sender.async_event(5000) == IBV_EVENT_CQ_ERR, "an event tells of a full queue");
}

// The limit of locked memory is for the caller to set: below 64 MiB, and not as root.
void locked_memory_is_limited(Ends& ends) {
  constexpr std::size_t bytes = 64 << 20;
  void* const start =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(start != MAP_FAILED, "64 MiB are there");
  check(ends.sender.registration_error(start, bytes) == ENOMEM, "but cannot be registered: ENOMEM");
}

struct Check {
  void (*run)(Ends& ends);
  const char* about;
};

const std::map<std::string, Check>& checks() {
  static const std::map<std::string, Check> table = {
      {"immediate", {writes_carry_an_immediate, "RDMA WRITE with immediate"}},
      {"empty", {empty_writes_announce, "the same without bytes"}},
      {"inline", {inline_bytes_are_taken_at_once, "inline bytes"}},
      {"long", {long_writes_arrive, "4 MiB, four times"}},
      {"event", {completions_wake, "completion events"}},
      {"bad_key", {bad_keys_are_refused, "a wrong remote key"}},
      {"revoked_key", {revoked_keys_are_refused, "memory that was deregistered"}},
      {"gone", {a_peer_that_is_gone_is_told, "a peer without a queue pair"}},
      {"not_ready", {a_receiver_that_is_not_ready_is_told, "a peer without a receive"}},
      {"flush", {an_error_flushes_receives, "a queue pair that is forced to error"}},
      {"overflow", {a_full_completion_queue_is_told, "completions that nobody polls"}},
      {"memlock", {locked_memory_is_limited, "the limit of locked memory"}},
  };
  return table;
}

int explain() {
  std::printf(
      "usage: verbs_probe DEVICE ADDRESS DEVICE ADDRESS CHECK...\n\n"
      "Connects RC queue pairs from the first device to the second, which may be the\n"
      "same, by their GIDs for RoCE v2 with these addresses. Checks:\n\n");
  for (const auto& [name, one] : checks()) std::printf("  %-12s %s\n", name.c_str(), one.about);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "--help") return explain();
  if (count < 6) {
    std::fprintf(stderr, "verbs_probe: five words at least; --help explains\n");
    return 2;
  }
  for (int i = 5; i < count; ++i) {
    const auto found = checks().find(words[i]);
    if (found == checks().end()) {
      std::fprintf(stderr, "verbs_probe: there is no check %s; --help names them\n", words[i]);
      return 2;
    }
    std::printf("%s: %s\n", words[i], found->second.about);
    std::fflush(stdout);
    Ends ends({words[1], words[2]}, {words[3], words[4]});
    found->second.run(ends);
  }
  std::printf("all checks passed\n");
  return 0;
}
