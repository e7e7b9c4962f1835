// Gloo's ranks for compare.py, by its C++ API: see rank_loop.h. Over TCP, as Gloo shares no memory.
// peers.py compiles it against the Gloo that is there.
//
//   gloo_ranks RANKS FOLDER
//
// The ranks meet in the folder, which is empty.
#include "bench/compare/fork_ranks.h"
#include "bench/compare/rank_loop.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <vector>

namespace {

struct GlooRank {
  std::shared_ptr<gloo::rendezvous::Context> context;
  int rank, ranks;
};

const GlooRank& of(void* self) { return *static_cast<GlooRank*>(self); }

// Elements of two bytes are moved, never added.
template <typename Work>
void typed(const RankTransfer& t, const Work& work) {
  if (t.element == RANK_FLOAT)
    work(static_cast<float*>(t.send), static_cast<float*>(t.recv));
  else
    work(static_cast<std::uint16_t*>(t.send), static_cast<std::uint16_t*>(t.recv));
}

void sum_floats(void* sum, const void* one, const void* other, std::size_t count) {
  gloo::sum<float>(sum, one, other, count);
}

void all_reduce(void* self, const RankTransfer* t) {
  gloo::AllreduceOptions options(of(self).context);
  options.setInput(static_cast<float*>(t->send), t->count);
  options.setOutput(static_cast<float*>(t->recv), t->count);
  options.setReduceFunction(sum_floats);
  gloo::allreduce(options);
}

void reduce(void* self, const RankTransfer* t) {
  gloo::ReduceOptions options(of(self).context);
  options.setInput(static_cast<float*>(t->send), t->count);
  options.setOutput(static_cast<float*>(t->recv), t->count);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(sum_floats));
  options.setRoot(0);
  gloo::reduce(options);
}

void broadcast(void* self, const RankTransfer* t) {
  gloo::BroadcastOptions options(of(self).context);
  typed(*t, [&](auto* send, auto* recv) {
    if (of(self).rank == 0 && t->in_place == 0) options.setInput(send, t->count);
    options.setOutput(recv, t->count);
  });
  options.setRoot(0);
  gloo::broadcast(options);
}

void all_gather(void* self, const RankTransfer* t) {
  gloo::AllgatherOptions options(of(self).context);
  typed(*t, [&](auto* send, auto* recv) {
    if (t->in_place == 0) options.setInput(send, t->count);
    options.setOutput(recv, t->count * static_cast<std::size_t>(of(self).ranks));
  });
  gloo::allgather(options);
}

void all_to_all(void* self, const RankTransfer* t) {
  gloo::AlltoallOptions options(of(self).context);
  const std::size_t all = t->count * static_cast<std::size_t>(of(self).ranks);
  typed(*t, [&](auto* send, auto* recv) {
    options.setInput(send, all);
    options.setOutput(recv, all);
  });
  gloo::alltoall(options);
}

void gather(void* self, const RankTransfer* t) {
  gloo::GatherOptions options(of(self).context);
  typed(*t, [&](auto* send, auto* recv) {
    options.setInput(send, t->count);
    if (of(self).rank == 0)
      options.setOutput(recv, t->count * static_cast<std::size_t>(of(self).ranks));
  });
  options.setRoot(0);
  gloo::gather(options);
}

void scatter(void* self, const RankTransfer* t) {
  gloo::ScatterOptions options(of(self).context);
  typed(*t, [&](auto* send, auto* recv) {
    using Element = std::remove_pointer_t<decltype(send)>;
    std::vector<Element*> blocks;
    for (int rank = 0; of(self).rank == 0 && rank < of(self).ranks; ++rank)
      blocks.push_back(send + static_cast<std::size_t>(rank) * t->count);
    if (!blocks.empty()) options.setInputs(blocks, t->count);
    options.setOutput(recv, t->count);
  });
  options.setRoot(0);
  gloo::scatter(options);
}

// To the next rank, and from the one before.
void send_recv(void* self, const RankTransfer* t) {
  const GlooRank& rank = of(self);
  const std::size_t bytes = t->count * (t->element == RANK_FLOAT ? 4 : 2);
  const auto send = rank.context->createUnboundBuffer(t->send, bytes);
  const auto recv = rank.context->createUnboundBuffer(t->recv, bytes);
  send->send((rank.rank + 1) % rank.ranks, 0);
  recv->recv((rank.rank + rank.ranks - 1) % rank.ranks, 0);
  send->waitSend();
  recv->waitRecv();
}

void barrier(void* self) {
  gloo::BarrierOptions options(of(self).context);
  gloo::barrier(options);
}

constexpr int both_places = RANK_OUT_OF_PLACE | RANK_IN_PLACE;
const RankCall calls[] = {
    {"all_reduce", all_reduce, both_places},
    {"reduce", reduce, RANK_OUT_OF_PLACE},
    {"broadcast", broadcast, both_places},
    {"all_gather", all_gather, both_places},
    {"all_to_all", all_to_all, RANK_OUT_OF_PLACE},
    {"gather", gather, RANK_OUT_OF_PLACE},
    {"scatter", scatter, RANK_OUT_OF_PLACE},
    {"send_recv", send_recv, RANK_OUT_OF_PLACE},
    {"barrier", [](void* self, const RankTransfer*) { barrier(self); }, both_places},
};

// Newer releases take the store by pointer.
template <typename Store, typename Device>
auto connect(gloo::rendezvous::Context& context, Store store, Device device, int)
    -> decltype(context.connectFullMesh(store, device)) {
  return context.connectFullMesh(store, device);
}

template <typename Store, typename Device>
void connect(gloo::rendezvous::Context& context, Store store, Device device, long) {
  context.connectFullMesh(*store, device);
}

void run(int rank, int ranks, const char* folder) {
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  GlooRank self{std::make_shared<gloo::rendezvous::Context>(rank, ranks), rank, ranks};
  connect(*self.context, std::make_shared<gloo::rendezvous::FileStore>(folder),
          gloo::transport::tcp::CreateDevice(where), 0);
  RankLibrary library{};
  library.name = "Gloo, over TCP";
  library.rank = rank;
  library.ranks = ranks;
  library.self = &self;
  library.calls = calls;
  library.call_count = static_cast<int>(std::size(calls));
  library.barrier = barrier;
  run_rank_loop(&library);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "gloo_ranks RANKS FOLDER\n");
    return 2;
  }
  const int ranks = std::max(1, std::atoi(argv[1]));
  const int rank = fork_ranks(ranks);
  try {
    run(rank, ranks, argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_ranks: %s\n", error.what());
    return 1;
  }
  return join_ranks();
}
