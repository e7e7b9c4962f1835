#include "tests/support/control/process_job.h"

#include "tests/support/control/meeting.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gyre::test {

struct ProcessJob::Board {
  std::atomic<int> has_id{0};
  std::array<std::uint8_t, trust::unique_id_bytes> id{};
  std::atomic<int> end{0};
  std::atomic<int> holder_wanted{-1};  // by this process
  std::atomic<pid_t> holder{0};
  std::atomic<int> departing{-1};  // this process
  ProcessJobReport reports[max_ranks];
};

namespace {

void pause_briefly() { usleep(1000); }

Settings crew_settings(const ProcessJobPlan& plan) {
  Settings settings = loopback_settings();
  settings.liveness_timeout_s = plan.liveness_s;
  settings.init_timeout_s = plan.init_s;
  return settings;
}

void note_failure(ProcessJobReport& report, const Membership& member) {
  const Status failure = member.failure();
  report.code = static_cast<int>(failure.code());
  std::snprintf(report.text, sizeof report.text, "%.*s", static_cast<int>(failure.message().size()),
                failure.message().data());
  for (const int rank : failure.culprits())
    if (report.culprit_count < 64) report.culprits[report.culprit_count++] = rank;
  report.failed_ns.store(SystemClock::read());
}

}  // namespace

ProcessJob::ProcessJob(const ProcessJobPlan& plan) : plan_(plan) {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  board_ = new (memory) Board;
  for (int process = 0; process < plan_.processes; ++process) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) run(process);
    pids_.push_back(child);
  }
}

ProcessJob::~ProcessJob() {
  for (const pid_t process : pids_) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  if (const pid_t holder = board_->holder.load()) kill(holder, SIGKILL);
  munmap(board_, sizeof(Board));
}

void ProcessJob::run(int process) {
  const Settings settings = crew_settings(plan_);
  for (const int absent : plan_.absent)
    if (absent == process) _exit(0);
  auto plane = ControlPlane::start(settings);
  if (!plane.ok()) _exit(10);
  trust::UniqueId id;
  if (process == 0) {
    auto made = (*plane)->create_unique_id(control::Audience::any_host, settings);
    if (!made.ok()) _exit(11);
    id = *made;
    if (plan_.tcp) id.root_host[0] ^= 1;
    board_->id = *trust::encode(id);
    board_->has_id.store(1);
  } else {
    while (board_->has_id.load() == 0) pause_briefly();
    id = *trust::decode_unique_id(board_->id);
  }
  std::vector<std::shared_ptr<Membership>> members;
  for (const int rank : ranks_of(process))
    members.push_back(*(*plane)->join(id, ranks(), rank, {}, settings));
  while (board_->end.load() == 0) {
    bool all_said_why = true;
    for (std::size_t i = 0; i < members.size(); ++i) {
      ProcessJobReport& report = board_->reports[static_cast<std::size_t>(ranks_of(process)[i])];
      const Membership& member = *members[i];
      if (member.failed() && report.failed_ns.load() == 0) note_failure(report, member);
      if (member.state() != Membership::State::joining)
        report.state.store(static_cast<int>(member.state()) + 1);
      all_said_why &= report.failed_ns.load() != 0;
    }
    if (all_said_why && plan_.die_when_failed) _exit(3);
    int wanted = process;
    if (board_->holder_wanted.compare_exchange_strong(wanted, -1)) {
      const pid_t holder = fork();
      if (holder == 0) {
        sleep(60);
        _exit(0);
      }
      board_->holder.store(holder);
    }
    if (board_->departing.load() == process) break;
    pause_briefly();
  }
  for (const auto& member : members) member->leave();
  if (board_->departing.load() == process) _exit(0);
  plane->reset();
  _exit(0);
}

std::vector<int> ProcessJob::ranks_of(int process) const {
  std::vector<int> ranks;
  for (int i = 0; i < plan_.ranks_each; ++i) ranks.push_back(process * plan_.ranks_each + i);
  return ranks;
}

const ProcessJobReport& ProcessJob::report(int rank) const {
  return board_->reports[static_cast<std::size_t>(rank)];
}

bool ProcessJob::all_joined(double seconds) const {
  return soon(
      [&] {
        for (int rank = 0; rank < ranks(); ++rank)
          if (report(rank).state.load() != static_cast<int>(Membership::State::joined) + 1)
            return false;
        return true;
      },
      seconds);
}

bool ProcessJob::all_failed_but(const std::vector<int>& except, double seconds) const {
  return soon(
      [&] {
        for (int rank = 0; rank < ranks(); ++rank) {
          bool excepted = false;
          for (const int process : except) excepted |= process_of(rank) == process;
          if (!excepted && report(rank).failed_ns.load() == 0) return false;
        }
        return true;
      },
      seconds);
}

void ProcessJob::send_signal(int process, int number) const {
  REQUIRE(kill(pid(process), number) == 0);
}

void ProcessJob::fork_holder(int process) {
  board_->holder_wanted.store(process);
  REQUIRE(soon([&] { return board_->holder.load() != 0; }));
}

void ProcessJob::depart(int process) {
  board_->departing.store(process);
  siginfo_t how{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid(process)), &how, WEXITED | WNOWAIT) == 0);
}

bool ProcessJob::finish() {
  board_->end.store(1);
  bool peaceful = true;
  for (const pid_t process : pids_) {
    int status = -1;
    peaceful &= soon([&] { return waitpid(process, &status, WNOHANG) == process; }) &&
                WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  pids_.clear();
  return peaceful;
}

}  // namespace gyre::test
