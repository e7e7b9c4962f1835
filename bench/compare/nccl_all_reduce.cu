// nccl_all_reduce: NCCL's all-reduce of floats for ranks that are threads and share one GPU, timed
// as all_reduce_perf does it: wall clock from the first launch until the streams are done, the mean
// over ranks. Prints {"bytes", "us"} for each size; bench/gpu.py reads it. NCCL lets ranks share a
// GPU from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1.
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <nccl.h>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Options {
  int ranks = 2, iterations = 20, warmup = 5;
  std::size_t min_bytes = 8, max_bytes = 1 << 20, factor = 8;
};

[[noreturn]] void fail(const char* call, const char* why) {
  std::fprintf(stderr, "nccl_all_reduce: %s: %s\n", call, why);
  std::_Exit(3);  // other ranks may wait for this one for ever
}
void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) fail(call, cudaGetErrorString(result));
}
void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) fail(call, ncclGetLastError(nullptr));
}

// 8, 64K, 1G
std::size_t size_of(const char* text) {
  char* end = nullptr;
  std::size_t bytes = std::strtoull(text, &end, 10);
  const char* const units = "KMG";
  if (const char* unit = *end != '\0' ? std::strchr(units, *end) : nullptr)
    bytes <<= 10 * (unit - units + 1);
  return bytes;
}

class NcclRank {
 public:
  NcclRank(const Options& options, int rank, const ncclUniqueId& id) : options_(options) {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaMalloc(&input_, options.max_bytes), "cudaMalloc");
    check(cudaMalloc(&output_, options.max_bytes), "cudaMalloc");
    check(cudaMemset(input_, 0, options.max_bytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(ncclCommInitRank(&comm_, options.ranks, id, rank), "ncclCommInitRank");
  }
  ~NcclRank() {
    (void)ncclCommDestroy(comm_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(input_);
    (void)cudaFree(output_);
  }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  void call(std::size_t bytes, int times) {
    for (int i = 0; i < times; ++i)
      check(
          ncclAllReduce(input_, output_, bytes / sizeof(float), ncclFloat, ncclSum, comm_, stream_),
          "ncclAllReduce");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  const Options options_;
  void* input_ = nullptr;
  void* output_ = nullptr;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

void run(const Options& options, int number, const ncclUniqueId& id, std::barrier<>& meeting,
         std::vector<double>& times) {
  NcclRank rank(options, number, id);
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor) {
    rank.call(bytes, options.warmup);
    meeting.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    rank.call(bytes, options.iterations);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    times[static_cast<std::size_t>(number)] = took.count() / options.iterations;
    meeting.arrive_and_wait();
    if (number != 0) continue;
    double sum = 0;
    for (const double time : times) sum += time;
    std::printf("{\"bytes\": %zu, \"us\": %.3f}\n", bytes, sum / options.ranks);
    std::fflush(stdout);
  }
  meeting.arrive_and_wait();  // memory goes back when no rank's kernel runs any more
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--version") {
      int version = 0;
      check(ncclGetVersion(&version), "ncclGetVersion");
      std::printf("%d\n", version);
      return 0;
    }
    const bool known = name == "-t" || name == "-b" || name == "-e" || name == "-f" || name == "-n";
    if (!known || i + 1 == argc) {
      std::fprintf(stderr,
                   "nccl_all_reduce [-t RANKS] [-b SIZE] [-e SIZE] [-f FACTOR] [-n ITERS], "
                   "or --version\n");
      return name == "-h" || name == "--help" ? 0 : 2;
    }
    const std::size_t value = size_of(argv[++i]);
    if (name == "-t") options.ranks = static_cast<int>(value);
    if (name == "-b") options.min_bytes = value;
    if (name == "-e") options.max_bytes = value;
    if (name == "-f") options.factor = value;
    if (name == "-n") options.iterations = static_cast<int>(value);
  }
  if (options.ranks < 1 || options.iterations < 1 || options.factor < 2 || options.min_bytes < 4)
    return std::fprintf(stderr, "nccl_all_reduce: a value is too small\n"), 2;
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::barrier<> meeting(options.ranks);
  std::vector<double> times(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] { run(options, rank, id, meeting, times); });
  for (std::thread& thread : threads) thread.join();
  return 0;
}
