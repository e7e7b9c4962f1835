// What the fake's functions share: its objects, under one mutex, and the network between its queue
// pairs.
#pragma once

#include "tests/support/fake_verbs/fake_verbs.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace gyre::tests {

struct FakeNic : ibv_device {
  FakeNicOptions options;
  std::uint64_t bytes = 0;  // that have left
  // On their way to the memory of GPUs.
  struct GpuWrite {
    std::uint32_t key;
    std::byte* to;
    std::vector<std::byte> bytes;
  };
  std::vector<GpuWrite> gpu_writes;
  bool holds_arrivals = false;
  bool has_route = true;
};
struct FakeContext : ibv_context {
  FakeNic* nic = nullptr;
  std::deque<ibv_async_event> events;
};
struct FakeRegion : ibv_mr {
  int access = 0;
  std::byte* base = nullptr;  // where it lies in this process
  bool is_of_gpu = false;
  bool is_mapped = false;  // there, from a dmabuf
  std::byte* at(std::uint64_t address) const {
    return base + (address - reinterpret_cast<std::uintptr_t>(addr));
  }
  bool is_revoked = false;
};
struct FakeCompletions : ibv_cq {
  struct Entry {
    ibv_wc completion;
    std::uint32_t requests = 0;  // of its queue that it gives back
    bool is_held = false;        // it is not in memory yet, nor is what is behind it
  };
  std::deque<Entry> entries;
  int empty_polls = 0;  // until all that is held shows
  bool is_armed = false;
  bool is_overrun = false;
};
struct FakeRequest {
  ibv_send_wr request;
  std::vector<ibv_sge> parts;
  std::vector<std::byte> inline_bytes;
};
struct FakePair : ibv_qp {
  ibv_qp_attr attributes{};  // as they were set
  ibv_qp_cap limits{};
  std::deque<FakeRequest> sends;
  std::deque<std::uint64_t> receives;
  std::uint32_t sends_used = 0, receives_used = 0;  // until their completions are polled
  std::uint32_t unsignaled = 0;                     // since the last signaled one
  std::uint32_t next_packet = 0, expected_packet = 0;
  bool has_lost = false;  // the request at the front waits for packets that were lost
};

struct FakeVerbs::State {
  explicit State(const FakeVerbsOptions& options);

  std::function<void()> at_stop;  // once
  // Whether this call is to fail; it is counted.
  bool fails(std::string_view member);
  // All under the mutex.
  void kick(FakePair& pair);  // carries out what it can, or lets the thread do so
  void carry_out(FakePair& pair);
  bool carry_out_first(FakePair& pair);
  FakePair* find_peer(const FakePair& pair);
  static const FakePortOptions& port_of(const FakePair& pair);
  bool check_local(const FakePair& pair, const FakeRequest& request) const;
  bool check_remote(const FakePair& peer, std::uint64_t address, std::uint64_t bytes,
                    std::uint32_t key, int access) const;
  void write(FakePair& peer, const FakeRequest& request);
  void read_into(FakePair& peer, const FakeRequest& request);
  // All that is on its way from the NIC, or to the region.
  void land(FakeNic& nic);
  void land(const FakeRegion& region);
  void finish(FakePair& pair, const FakeRequest& request, ibv_wc_status status);
  void complete(FakePair& pair, ibv_wc completion, std::uint32_t requests);
  // The queue loses what it has and what comes.
  void overrun(FakeCompletions& queue);
  void put_into_error(FakePair& pair, ibv_wc_status first);
  // What is held in a queue can be polled from here on.
  void show(FakeCompletions& queue);
  void post_event(ibv_context* context, ibv_async_event event);
  void run();

  mutable std::mutex mutex;
  loaded::Verbs table;
  std::vector<std::unique_ptr<FakeNic>> nics;
  std::set<FakeContext*> contexts;
  std::set<ibv_pd*> domains;
  std::set<ibv_comp_channel*> channels;
  std::map<std::uint32_t, FakeRegion*> regions;  // by key
  FakeGpuMemory gpus;
  std::set<FakeCompletions*> queues;
  std::map<std::uint32_t, FakePair*> pairs;  // by number
  std::uint32_t next_key = 0x1000, next_number = 0x11;
  std::map<const void*, std::uint64_t> read, written;  // bytes, by the start of registered memory
  std::map<std::string, int, std::less<>> calls;
  std::map<std::string, int, std::less<>> failing;  // at that count of calls
  int completions = 0, failing_completion = 0, unexpected = 0;
  ibv_wc_status failing_status = IBV_WC_SUCCESS;
  bool is_late = false;  // a thread carries requests out
  std::mt19937_64 random;
  bool ends = false;
  std::condition_variable changed;
  std::thread thread;
};

// Of such a text as a port's options have.
ibv_gid parsed_gid(const std::string& text);

// The one that is there; its functions find it here.
extern FakeVerbs::State* fake_verbs;
void fill_table(loaded::Verbs& table);

}  // namespace gyre::tests
