// Gloo's all-reduce (its C++ API, gloo/allreduce.h) over TCP under the loop of reduce_loop.h. Built
// by tcp.py against the Gloo that --gloo names.
//
//   gloo_all_reduce RANKS FOLDER -b 8 -e 64M -f 2 -n 20 -w 1 [-c 0] [-J rows.jsonl]
//
// The ranks meet in the folder, which is empty.
#include "bench/compare/reduce_loop.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>

namespace {

using GlooContext = std::shared_ptr<gloo::rendezvous::Context>;

template <typename T>
void all_reduce(const GlooContext& context, const T* send, T* recv, std::size_t count,
                gloo::AllreduceOptions::Func function) {
  gloo::AllreduceOptions options(context);
  options.setInput(const_cast<T*>(send), count);
  options.setOutput(recv, count);
  options.setReduceFunction(std::move(function));
  gloo::allreduce(options);
}

void sum_floats(void* sum, const void* one, const void* other, std::size_t count) {
  gloo::sum<float>(sum, one, other, count);
}

void combine(void* self, double* values, int count, int largest) {
  const auto function = [largest](void* to, const void* one, const void* other, std::size_t size) {
    if (largest != 0) return gloo::max<double>(to, one, other, size);
    gloo::sum<double>(to, one, other, size);
  };
  all_reduce<double>(*static_cast<GlooContext*>(self), values, values,
                     static_cast<std::size_t>(count), function);
}

int run(int rank, int ranks, const char* folder, int argc, char** argv) {
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto store = std::make_shared<gloo::rendezvous::FileStore>(folder);
  GlooContext context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  const PeerLibrary library = {"Gloo",
                               rank,
                               ranks,
                               &context,
                               [](void* self, const float* send, float* recv, std::size_t count) {
                                 all_reduce<float>(*static_cast<GlooContext*>(self), send, recv,
                                                   count, sum_floats);
                               },
                               combine,
                               0};
  return run_reduce_loop(&library, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "gloo_all_reduce RANKS FOLDER OPTIONS\n");
    return 2;
  }
  const int ranks = std::max(1, std::atoi(argv[1]));
  const int rank = fork_processes(ranks);
  int exit_code = 2;
  try {
    exit_code = run(rank, ranks, argv[2], argc - 2, argv + 2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_all_reduce: %s\n", error.what());
  }
  return join_processes(exit_code);
}
