// gradsync.h's one model for several threads: the gradient is that of the whole batch for any
// number of threads, and a thread that fails is named.
#include "tests/support/catch.h"
#include "tests/support/comm/ranks.h"
#include <gyre/gradsync.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <dlfcn.h>
#include <string>
#include <vector>

namespace gradsync_parallel_test {

namespace {

// A line through points: two parameters, the mean squared error over samples.
struct Line {
  float slope = 0, offset = 0, slope_gradient = 9, offset_gradient = 9;
  std::atomic<int> bodies{0}, samples_seen{0};
  int fails_in = -1;

  std::vector<gyreGradTensor_t> tensors() {
    return {{"slope", 1, gyreFloat, &slope, &slope_gradient},
            {"offset", 1, gyreFloat, &offset, &offset_gradient}};
  }
  static gyreResult_t body(void* user, const gyreGradPart_t* part) {
    auto& self = *static_cast<Line*>(user);
    ++self.bodies;
    self.samples_seen += static_cast<int>(part->count);
    if (part->thread == self.fails_in) return gyreSystemError;
    auto& slope = *static_cast<float*>(part->gradients[0]);
    auto& offset = *static_cast<float*>(part->gradients[1]);
    for (std::size_t i = part->first; i < part->first + part->count; ++i) {
      const auto x = static_cast<float>(i % 7) - 3;
      const float error = self.slope * x + self.offset - (2 * x + 1);
      slope += 2 * error * x / static_cast<float>(part->count);
      offset += 2 * error / static_cast<float>(part->count);
    }
    return gyreSuccess;
  }
};

// This thread of the model lacks something: its reductions are refused.
std::atomic<int> poor_thread{-1};

}  // namespace

extern "C" gyreResult_t gyreReduce(const void* sendbuff, void* recvbuff, size_t count,
                                   gyreDataType_t datatype, gyreRedOp_t op, int root,
                                   gyreComm_t comm, gyreStream_t stream) {
  static const auto real = reinterpret_cast<decltype(&gyreReduce)>(dlsym(RTLD_NEXT, "gyreReduce"));
  int rank = 0;
  gyreCommUserRank(comm, &rank);
  if (rank == poor_thread) return gyreSystemError;
  return real(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

TEST_CASE("threads share a batch, and the gradient is that of one thread", "[gradsync]") {
  const int threads = GENERATE(1, 2, 3, 4);
  const std::size_t samples = GENERATE(1, 2, 7, 12, 40);
  CAPTURE(threads, samples);
  Line line, alone;
  gyreGradParallel_t parallel = nullptr, single = nullptr;
  const auto tensors = line.tensors(), own = alone.tensors();
  REQUIRE(gyreGradParallelCreate(&parallel, threads, tensors.data(), 2) == gyreSuccess);
  REQUIRE(gyreGradParallelCreate(&single, 1, own.data(), 2) == gyreSuccess);
  for (int step = 0; step < 20; ++step) {
    line.bodies = line.samples_seen = 0;
    REQUIRE(gyreGradParallelStep(parallel, samples, Line::body, &line) == gyreSuccess);
    REQUIRE(gyreGradParallelStep(single, samples, Line::body, &alone) == gyreSuccess);
    CHECK(line.bodies == static_cast<int>(std::min<std::size_t>(samples, std::size_t(threads))));
    CHECK(line.samples_seen == static_cast<int>(samples));
    CHECK(line.slope_gradient == Approx(alone.slope_gradient).margin(1e-5));
    CHECK(line.offset_gradient == Approx(alone.offset_gradient).margin(1e-5));
    for (Line* one : {&line, &alone}) {
      one->slope -= 0.05F * one->slope_gradient;
      one->offset -= 0.05F * one->offset_gradient;
    }
  }
  if (samples >= 7) CHECK(std::abs(line.slope - 2) < 0.5F);  // it learns
  CHECK(gyreGradParallelDestroy(parallel) == gyreSuccess);
  CHECK(gyreGradParallelDestroy(single) == gyreSuccess);
  CHECK(gyreGradParallelStep(parallel, 1, Line::body, &line) == gyreInvalidArgument);
}

TEST_CASE("a body that fails is named, and the next step goes on", "[gradsync][faults]") {
  Line line;
  gyreGradParallel_t parallel = nullptr;
  const auto tensors = line.tensors();
  REQUIRE(gyreGradParallelCreate(&parallel, 3, tensors.data(), 2) == gyreSuccess);
  line.fails_in = 2;
  CHECK(gyreGradParallelStep(parallel, 6, Line::body, &line) == gyreSystemError);
  CHECK(std::string(gyreGradGetLastError()).find("in thread 2") != std::string::npos);
  CHECK(line.slope_gradient == 9);
  line.fails_in = -1;
  CHECK(gyreGradParallelStep(parallel, 6, Line::body, &line) == gyreSuccess);
  CHECK(line.slope_gradient != 9);
  CHECK(gyreGradParallelDestroy(parallel) == gyreSuccess);
}

TEST_CASE("what a thread lacks for the sum is told at once, and not what it does to the others",
          "[gradsync][faults]") {
  const gyre::tests::WithVariables deadline(gyre::tests::Variables{{"GYRE_TIMEOUT", "4"}});
  Line line;
  gyreGradParallel_t parallel = nullptr;
  const auto tensors = line.tensors();
  REQUIRE(gyreGradParallelCreate(&parallel, 3, tensors.data(), 2) == gyreSuccess);
  poor_thread = 1;
  CHECK(gyreGradParallelStep(parallel, 12, Line::body, &line) == gyreSystemError);
  poor_thread = -1;
  std::string text = gyreGradGetLastError();
  INFO(text);
  CHECK(text.find("in thread 1") != std::string::npos);
  CHECK(line.slope_gradient == 9);
  CHECK(gyreGradParallelStep(parallel, 12, Line::body, &line) == gyreSystemError);
  text = gyreGradGetLastError();
  CHECK(text.find("an earlier step failed") != std::string::npos);
  CHECK(gyreGradParallelDestroy(parallel) == gyreSuccess);
}

TEST_CASE("what one model for several threads is not made for is refused", "[gradsync]") {
  Line line;
  auto tensors = line.tensors();
  gyreGradParallel_t parallel = nullptr;
  CHECK(gyreGradParallelCreate(nullptr, 2, tensors.data(), 2) == gyreInvalidArgument);
  CHECK(gyreGradParallelCreate(&parallel, 0, tensors.data(), 2) == gyreInvalidArgument);
  tensors[1].gradient = nullptr;
  CHECK(gyreGradParallelCreate(&parallel, 2, tensors.data(), 2) == gyreInvalidArgument);
  CHECK(std::string(gyreGradGetLastError()).find("'offset'") != std::string::npos);
  tensors = line.tensors();
  tensors[0].datatype = gyreInt32;
  CHECK(gyreGradParallelCreate(&parallel, 2, tensors.data(), 2) == gyreInvalidArgument);
  CHECK(parallel == nullptr);
  tensors = line.tensors();
  REQUIRE(gyreGradParallelCreate(&parallel, 2, tensors.data(), 2) == gyreSuccess);
  CHECK(gyreGradParallelStep(parallel, 0, Line::body, &line) == gyreInvalidArgument);
  CHECK(gyreGradParallelStep(parallel, 2, nullptr, &line) == gyreInvalidArgument);
  struct Again {
    gyreGradParallel_t parallel;
    Line* line;
    static gyreResult_t body(void* user, const gyreGradPart_t*) {
      auto& self = *static_cast<Again*>(user);
      return gyreGradParallelStep(self.parallel, 1, Line::body, self.line);
    }
  } again{parallel, &line};
  CHECK(gyreGradParallelStep(parallel, 2, Again::body, &again) == gyreInvalidUsage);  // in both
  CHECK(gyreGradParallelStep(parallel, 2, Line::body, &line) == gyreSuccess);
  CHECK(gyreGradParallelDestroy(parallel) == gyreSuccess);
}

}  // namespace gradsync_parallel_test
