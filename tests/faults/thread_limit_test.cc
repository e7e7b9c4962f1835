// A process at its limit of threads: a call that needs another thread fails and names the limit,
// nothing hangs, and all other calls work. The test has its own pthread_create, which fails on
// demand.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gradsync.h>
#include <gyre/gyre.h>

#include <cerrno>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace thread_limit_test {

using namespace gyre::tests;

namespace {

std::atomic<bool> is_at_limit{false};

struct AtLimit {
  AtLimit() { is_at_limit = true; }
  ~AtLimit() { is_at_limit = false; }
};

bool names_the_limit(const char* text) {
  const std::string said = text;
  return said.find("starting the thread gyre-") != said.npos && said.find("ulimit -u") != said.npos;
}

// Catch's macros are for one process: a child's exit code is the line that does not hold.
#define HOLDS(what)                         \
  do {                                      \
    if (!(what)) _exit(__LINE__ % 250 + 1); \
  } while (false)

int line_that_fails(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    body();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO("signal " << WTERMSIG(status));
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

gyreComm_t alone(const gyreConfig_t* config = nullptr) {
  gyreConfig_t plain = GYRE_CONFIG_INITIALIZER;
  if (config != nullptr) plain = *config;
  plain.device = GYRE_DEVICE_HOST;
  gyreUniqueId id;
  gyreComm_t comm = nullptr;
  if (gyreGetUniqueId(&id) != gyreSuccess) return nullptr;
  (void)gyreCommInitRankConfig(&comm, 1, id, 0, &plain);
  return comm;
}

}  // namespace

// In the place of libc's, for the libraries too.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
    void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return is_at_limit ? EAGAIN : real(thread, attributes, body, argument);
}

TEST_CASE("a process that may start no thread cannot begin, and may try again") {
  CHECK(line_that_fails([] {
          gyreUniqueId id;
          {
            const AtLimit limit;
            HOLDS(gyreGetUniqueId(&id) == gyreSystemError);
            HOLDS(names_the_limit(gyreGetLastError(nullptr)));
          }
          gyreComm_t comm = alone();
          HOLDS(comm != nullptr);
          HOLDS(gyreCommDestroy(comm) == gyreSuccess);
        }) == 0);
}

TEST_CASE("a stream without its thread queues nothing, and the communicator stays whole") {
  CHECK(line_that_fails([] {
          gyreComm_t comm = alone();
          gyreStream_t stream = nullptr;
          HOLDS(comm != nullptr && gyreStreamCreate(&stream) == gyreSuccess);
          float value = 3;
          const auto sum = [&](gyreStream_t on) {
            return gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, on);
          };
          {
            const AtLimit limit;
            HOLDS(sum(stream) == gyreSystemError);
            HOLDS(names_the_limit(gyreGetLastError(nullptr)));
            HOLDS(gyreStreamQuery(stream) == gyreSuccess);  // nothing is queued
            HOLDS(sum(nullptr) == gyreSuccess);             // nor waited for
            HOLDS(gyreStreamSynchronize(stream) == gyreSuccess);
          }
          HOLDS(sum(stream) == gyreSuccess);
          HOLDS(gyreStreamSynchronize(stream) == gyreSuccess && value == 3);
          HOLDS(gyreStreamDestroy(stream) == gyreSuccess);
          HOLDS(gyreCommDestroy(comm) == gyreSuccess);
        }) == 0);
}

TEST_CASE("a stream without its thread keeps neither destroy nor abort") {
  CHECK(line_that_fails([] {
          gyreComm_t destroyed = alone(), aborted = alone();
          gyreStream_t stream = nullptr;
          HOLDS(gyreStreamCreate(&stream) == gyreSuccess);
          const AtLimit limit;
          float value = 3;
          for (gyreComm_t comm : {destroyed, aborted})
            HOLDS(gyreAllReduce(&value, &value, 1, gyreFloat, gyreSum, comm, stream) ==
                  gyreSystemError);
          HOLDS(gyreCommDestroy(destroyed) == gyreSuccess);
          HOLDS(gyreCommAbort(aborted) == gyreSuccess);
          HOLDS(gyreStreamDestroy(stream) == gyreSuccess);
        }) == 0);
}

TEST_CASE("a non-blocking communicator without its thread is an error at once") {
  CHECK(line_that_fails([] {
          gyreComm_t first = alone();  // the control thread is there
          gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
          config.blocking = 0;
          {
            const AtLimit limit;
            HOLDS(alone(&config) == nullptr);
            HOLDS(names_the_limit(gyreGetLastError(nullptr)));
          }
          HOLDS(gyreCommDestroy(first) == gyreSuccess);
        }) == 0);
}

TEST_CASE("a step of threads without them is an error that names the limit") {
  CHECK(line_that_fails([] {
          gyreComm_t comm = alone();
          float parameter = 1, gradient = 0;
          gyreGradTensor_t tensor = {};
          tensor.parameter = &parameter;
          tensor.gradient = &gradient;
          tensor.count = 1;
          tensor.datatype = gyreFloat;
          const AtLimit limit;
          gyreGradParallel_t parallel = nullptr;
          HOLDS(gyreGradParallelCreate(&parallel, 3, &tensor, 1) == gyreSystemError);
          HOLDS(names_the_limit(gyreGradGetLastError()));
          HOLDS(gyreCommDestroy(comm) == gyreSuccess);
        }) == 0);
}

}  // namespace thread_limit_test
