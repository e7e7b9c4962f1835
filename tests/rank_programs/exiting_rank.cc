// Two ranks. Rank 0's process exits, with code 42, during the activity that the mode names:
//
//   thread     another thread is in all-reduces of lent memory
//   streams    entries and callbacks are queued on streams of both kinds, another thread exits
//   callback   a stream's callback exits
//   init       another thread joins, splits and destroys, again and again
//   handler    as `thread`; then a handler of atexit, which runs after the library's, continues
//
// Arguments: mode, microseconds. Rank 1 continues until it gets an error, exit code 0; else 1.
#include <gyre/gyre.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

constexpr int exit_code = 42;
constexpr std::size_t count = 1 << 16;

struct Rank {
  gyreComm_t comm = nullptr;
  gyreStream_t streams[2] = {};
  int number = -1;
  float* data = nullptr;
};
// Never destroyed: threads use it while the process exits.
Rank& rank() {
  static Rank& one = *new Rank;
  return one;
}
std::chrono::microseconds delay(0);
std::atomic<int> callbacks{0};

gyreResult_t sum(std::size_t elements, gyreStream_t stream) {
  Rank& mine = rank();
  return gyreAllReduce(mine.data, mine.data, elements, gyreFloat, gyreMax, mine.comm, stream);
}

gyreResult_t begin() {
  Rank& mine = rank();
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  if (const auto begun = gyreCommInitEnv(&mine.comm, &config); begun != gyreSuccess) return begun;
  void* memory = nullptr;
  (void)gyreMemAllocOn(&memory, count * sizeof(float), GYRE_DEVICE_HOST);
  mine.data = static_cast<float*>(memory);
  (void)gyreStreamCreate(&mine.streams[0]);
  (void)gyreStreamCreateWithFlags(&mine.streams[1], GYRE_STREAM_BY_CALLER);
  return sum(1, nullptr);
}

void on_callback(gyreStream_t, gyreResult_t, void* exits) {
  if (callbacks.fetch_add(1) > delay.count() % 20 && exits != nullptr) std::exit(exit_code);
}

gyreResult_t use_streams(void* exits) {
  for (int i = 0;; ++i) {
    for (int n = 0; n < 8; ++n) {
      gyreStream_t stream = rank().streams[(i + n) % 4 == 0];
      if (const auto result = sum(1 + count / 8 * static_cast<std::size_t>(n % 3), stream);
          result != gyreSuccess)
        return result;
      (void)gyreStreamAddCallback(stream, on_callback, exits);
    }
    for (gyreStream_t stream : rank().streams)
      if (const auto result = gyreStreamSynchronize(stream); result != gyreSuccess) return result;
  }
}

gyreResult_t reduce() {
  for (int i = 0;; ++i)
    if (const auto result = sum(i % 3 == 0 ? 2 : count, nullptr); result != gyreSuccess)
      return result;
}

gyreResult_t meet_again() {
  while (true) {
    gyreComm_t comm = nullptr, half = nullptr;
    if (const auto result = gyreCommInitEnv(&comm, nullptr); result != gyreSuccess) return result;
    auto result = gyreCommSplit(comm, 0, 0, &half, nullptr);
    float value = 1;
    if (result == gyreSuccess)
      result = gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, half, nullptr);
    if (half != nullptr) (void)gyreCommDestroy(half);
    (void)gyreCommDestroy(comm);
    if (result != gyreSuccess) return result;
  }
}

gyreResult_t work(const std::string& mode, void* exits) {
  if (mode == "init") return meet_again();
  if (mode == "streams" || mode == "callback") return use_streams(exits);
  return reduce();
}

// After the library has said farewell: whatever comes back, it comes back.
void call_late() {
  const Rank& mine = rank();
  (void)sum(2, mine.streams[0]);
  (void)gyreStreamSynchronize(mine.streams[0]);
  (void)gyreCommDestroy(mine.comm);
  gyreComm_t again = nullptr;
  (void)gyreCommInitEnv(&again, nullptr);
}

int await_news(const std::string& mode) {
  const auto told = work(mode, nullptr);
  std::printf("told %d %s\n", told, gyreGetLastError(nullptr));
  return told == gyreSuccess;
}

void exit_beside(const std::string& mode) {
  std::thread([mode] {
    const auto result = work(mode, mode == "callback" ? &delay : nullptr);
    // Only who exits may end this process.
    std::printf("went on with %d %s\n", result, gyreGetLastError(nullptr));
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }).detach();
  if (mode == "callback") std::this_thread::sleep_for(std::chrono::seconds(60));
  std::this_thread::sleep_for(delay);
  std::exit(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[1];
  delay = std::chrono::microseconds(std::atol(argv[2]));
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  if (mode == "handler") std::atexit(call_late);
  if (const auto begun = begin(); begun != gyreSuccess) {
    std::printf("begin %d %s\n", begun, gyreGetLastError(nullptr));
    return 3;
  }
  (void)gyreCommUserRank(rank().comm, &rank().number);
  if (rank().number != 0) return await_news(mode);
  if (mode == "streams") {
    std::thread([] {
      std::this_thread::sleep_for(delay);
      std::exit(exit_code);
    }).detach();
    (void)work(mode, nullptr);
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  exit_beside(mode);
}
