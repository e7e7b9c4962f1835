#include "tests/support/device/cuda_process_cases.h"

#include "lib/base/clock.h"
#include "tests/support/device/cuda_draw.h"

#include <fmt/core.h>

#include <csignal>
#include <unistd.h>

namespace gyre::tests {
namespace {

struct Sizes {
  std::vector<std::size_t> counts;
  std::size_t stride;  // of so many ways, one is taken
  double max_seconds;  // until a death has freed the others' kernels
  int patience_s;
  std::map<std::string, std::string> variables;
};

Sizes sizes_of(ProcessScale scale) {
  if (scale == ProcessScale::fake) return {{1, 77, 5000}, 9, 3, 20, {{"GYRE_BUFFSIZE", "4096"}}};
  if (scale == ProcessScale::brief) return {{1, 1009, 20011}, 16, 60, 120, {}};
  // Threads try every way, without the second that each communicator of processes takes.
  return {{0, 1, 129, 20011, 262147}, 8, 1, 600, {}};
}

std::string without(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos ? "" : "no \"" + word + "\" in: " + text;
}

std::string last_error_of(const CudaProcess& here) { return gyreGetLastError(here.comms[0]); }

constexpr std::size_t small = 100;

// In place, of so many elements.
std::string all_reduce(CudaProcess& here, std::int32_t* data, std::size_t count = small) {
  return here.call([&](std::size_t, gyreComm_t comm, gyreStream_t stream) {
    return gyreAllReduce(data, data, count, gyreInt32, gyreSum, comm, stream);
  });
}

// One rank a process: a call has gone well, so that links are open, and all know.
std::string begin_pair(CudaProcess& here, std::int32_t*& data) {
  data = here.allocate(0, small);
  if (std::string refused = here.init(); !refused.empty()) return refused;
  if (std::string failed = all_reduce(here, data); !failed.empty()) return failed;
  if (std::string failed = here.synchronize(); !failed.empty()) return failed;
  return here.meet() ? "" : "no meeting";
}

std::string check_counts(CudaProcess& here, const std::vector<std::size_t>& counts) {
  if (std::string refused = here.init(); !refused.empty()) return refused;
  for (const std::size_t count : counts)
    if (std::string wrong = here.check_collectives(count); !wrong.empty()) return wrong;
  return "";
}

// Ways in turn, each under communicators of its own.
std::string check_ways(CudaProcess& here, const Sizes& sizes) {
  std::mt19937_64 random(static_cast<std::uint64_t>(here.ranks()));
  std::size_t number = static_cast<std::size_t>(here.ranks());
  for (const CudaWay& way : every_way()) {
    if (number++ % sizes.stride != 0) continue;
    const WithVariables variables(way.variables());
    std::string wrong = here.init();
    for (const Function function : way.functions())
      if (wrong.empty())
        wrong = here.check(drawn_case(function, here.ranks(), sizes.counts, random));
    if (!wrong.empty()) return way.shown() + ": " + wrong;
    here.destroy();
  }
  return "";
}

// Each rank sends to each, itself too, in one group; large ones take several channels.
std::string check_sends(CudaProcess& here, std::size_t count) {
  const auto n = static_cast<std::size_t>(here.ranks());
  const auto value = [=](int from, int to, std::size_t i) {
    return (from * 16 + to) * 1'000'000 + static_cast<std::int32_t>(i % 1'000'000);
  };
  std::vector<std::int32_t*> out, in;
  for (std::size_t place = 0; place < here.comms.size(); ++place) {
    const int own = here.rank(place);
    out.push_back(here.allocate(place, n * count));
    in.push_back(here.allocate(place, n * count));
    here.fill(out.back(), n * count,
              [&](std::size_t i) { return value(own, static_cast<int>(i / count), i % count); });
  }
  std::string wrong = here.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
    for (std::size_t peer = 0; peer < n; ++peer) {
      const int other = static_cast<int>(peer);
      (void)gyreSend(out[place] + peer * count, count, gyreInt32, other, comm, stream);
      (void)gyreRecv(in[place] + peer * count, count, gyreInt32, other, comm, stream);
    }
    return gyreSuccess;
  });
  wrong += here.finish();
  for (std::size_t place = 0; place < here.comms.size() && wrong.empty(); ++place) {
    const std::vector<std::int32_t> got = here.values(in[place], n * count);
    for (std::size_t i = 0; i < n * count && wrong.empty(); ++i)
      if (got[i] != value(static_cast<int>(i / count), here.rank(place), i % count))
        wrong = fmt::format("element {} of rank {}", i, here.rank(place));
  }
  here.free_all();
  return wrong;
}

// Rank 0 calls and rank 1 does not: its kernel ends by the deadline, and its communicator with it.
std::string check_deadline_of(CudaProcess& here) {
  std::int32_t* data = nullptr;
  if (std::string failed = begin_pair(here, data); !failed.empty()) return failed;
  std::string wrong;
  if (here.process() == 0) {
    wrong = all_reduce(here, data);
    if (here.await_error() != gyreTimeout) wrong += " no timeout: " + last_error_of(here);
    wrong += without(last_error_of(here), "from rank 1") + here.synchronize();
  }
  return here.meet() ? wrong : wrong + " no meeting";
}

std::string check_abort_of(CudaProcess& here, const Sizes& sizes) {
  std::int32_t* data = nullptr;
  if (std::string failed = begin_pair(here, data); !failed.empty()) return failed;
  std::string wrong;
  if (here.process() == 1) {
    usleep(100'000);  // the other one's kernel waits for this one's
    here.moment().store(SystemClock::read());
    here.abort();
  } else {
    wrong = all_reduce(here, data);
    wrong += here.synchronize();
    const double took = static_cast<double>(SystemClock::read() - here.moment().load()) * 1e-9;
    if (here.moment().load() == 0 || took > sizes.max_seconds)
      wrong += fmt::format(" its kernel ended after {} s", took);
    if (here.await_error() != gyreRemoteError) wrong += " no error: " + last_error_of(here);
  }
  return here.meet() ? wrong : wrong + " no meeting";
}

std::string check_mismatch_of(CudaProcess& here) {
  std::int32_t* data = nullptr;
  if (std::string failed = begin_pair(here, data); !failed.empty()) return failed;
  // The call itself is told if the other rank's question has come before it.
  const std::string refused = all_reduce(here, data, here.process() == 0 ? 40 : 41);
  std::string wrong;
  if (here.await_error() != gyreMismatch) wrong = refused + " no mismatch: " + last_error_of(here);
  wrong += without(last_error_of(here), "40") + without(last_error_of(here), "41");
  return wrong + here.synchronize();
}

std::string check_killed(CudaProcess& here, const Sizes& sizes) {
  std::int32_t* data = nullptr;
  if (std::string failed = begin_pair(here, data); !failed.empty()) return failed;
  const int last = here.ranks() - 1;
  if (here.process() == last) {
    usleep(100'000);  // the others' kernels wait for this one's
    here.moment().store(SystemClock::read());
    (void)raise(SIGKILL);
  }
  std::string wrong = all_reduce(here, data);
  const gyreResult_t error = here.await_error();
  wrong += here.synchronize();
  const double took = static_cast<double>(SystemClock::read() - here.moment().load()) * 1e-9;
  if (error != gyreRemoteError) wrong += fmt::format(" error {}", static_cast<int>(error));
  if (took > sizes.max_seconds) wrong += fmt::format(" its kernel ended after {} s", took);
  wrong += without(last_error_of(here), fmt::format("rank {}", last));
  here.abort();
  return wrong;
}

// Sums in place on memory of the driver's that is registered: copied first, and lent after a while.
// It is freed as soon as it may be.
std::string check_registered(CudaProcess& here, std::size_t count) {
  if (std::string refused = here.init(); !refused.empty()) return refused;
  std::vector<std::int32_t*> data;
  std::vector<void*> handles;
  std::string wrong;
  for (std::size_t place = 0; place < here.comms.size(); ++place) {
    data.push_back(here.allocate(place, count));
    if (gyreCommRegister(here.comms[place], data.back(), count * sizeof(std::int32_t),
                         &handles.emplace_back()) != gyreSuccess)
      wrong = gyreGetLastError(here.comms[place]);
  }
  const auto value = [](int rank, int round, std::size_t i) {
    return rank * 1000 + round + static_cast<std::int32_t>(i % 1000);
  };
  for (int round = 0; round < 5 && wrong.empty(); ++round) {
    for (std::size_t place = 0; place < data.size(); ++place)
      here.fill(data[place], count,
                [&](std::size_t i) { return value(here.rank(place), round, i); });
    wrong = here.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
      return gyreAllReduce(data[place], data[place], count, gyreInt32, gyreSum, comm, stream);
    });
    wrong += here.finish();
    const int n = here.ranks();
    for (std::size_t place = 0; place < data.size() && wrong.empty(); ++place) {
      const std::vector<std::int32_t> got = here.values(data[place], count);
      for (std::size_t i = 0; i < count && wrong.empty(); ++i)
        if (got[i] != n * value(0, round, i) + 1000 * n * (n - 1) / 2)
          wrong = fmt::format("element {} of rank {} in round {}", i, here.rank(place), round);
    }
    usleep(100'000);
  }
  if (!here.meet()) return wrong + " no meeting";
  for (std::size_t place = 0; place < handles.size(); ++place) {
    gyreResult_t result = gyreInProgress;
    for (int i = 0; i < 10 && result == gyreInProgress; ++i)
      result = gyreCommDeregister(here.comms[place], handles[place]);
    if (result != gyreSuccess && wrong.empty()) wrong = gyreGetLastError(here.comms[place]);
  }
  here.free_all();
  return here.meet() ? wrong : wrong + " no meeting";
}

}  // namespace

std::vector<CudaProcessCase> cuda_process_cases(ProcessScale scale) {
  const Sizes sizes = sizes_of(scale);
  const auto of = [&](int processes, int ranks_each = 1) {
    DeviceProcesses all{
        .processes = processes, .ranks_each = ranks_each, .variables = sizes.variables};
    all.patience_s = sizes.patience_s;
    return all;
  };
  std::vector<CudaProcessCase> cases;
  for (const int n : {2, 4}) {
    cases.push_back({fmt::format("every collective of {}", n), of(n),
                     [=](CudaProcess& here) { return check_counts(here, sizes.counts); }});
    cases.push_back({fmt::format("schedules of {}", n), of(n),
                     [=](CudaProcess& here) { return check_ways(here, sizes); }});
    cases.push_back(
        {fmt::format("schedules of {} on memory that Gyre gave", n), of(n), [=](CudaProcess& here) {
           here.takes_gyre_memory = true;
           return check_ways(here, sizes);
         }});
    cases.push_back({fmt::format("one of {} is killed", n),
                     of(n),
                     [=](CudaProcess& here) { return check_killed(here, sizes); },
                     {n - 1}});
  }
  cases.push_back({"threads in processes", of(2, 2),
                   [=](CudaProcess& here) { return check_counts(here, sizes.counts); }});
  for (const int ranks_each : {1, 2})
    cases.push_back({fmt::format("registered memory, ranks of 2 processes by {}", ranks_each),
                     of(2, ranks_each),
                     [=](CudaProcess& here) { return check_registered(here, 20011); }});
  cases.push_back({"sends and receives", of(2, 2), [=](CudaProcess& here) {
                     std::string wrong = here.init();
                     for (const std::size_t count : {1UL, 1000UL, 300'000UL})
                       if (wrong.empty()) wrong = check_sends(here, count);
                     return wrong;
                   }});
  cases.push_back({"one does not come", of(2), check_deadline_of});
  cases.back().all.timeout_ms = scale == ProcessScale::brief ? 10'000 : 2000;
  cases.push_back(
      {"one aborts", of(2), [=](CudaProcess& here) { return check_abort_of(here, sizes); }});
  cases.push_back({"calls differ", of(2), check_mismatch_of});
  return cases;
}

}  // namespace gyre::tests
