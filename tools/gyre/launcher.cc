#include "tools/gyre/launcher.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/owned.h"
#include "tools/gyre/job_guard.h"
#include "tools/gyre/job_report.h"
#include "tools/gyre/output_pump.h"
#include "tools/gyre/own_file.h"
#include "tools/gyre/rank_environment.h"
#include "tools/gyre/rank_process.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <optional>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace gyre::tools {
namespace {

// After a rank has failed the others have a moment to say what they saw of it, then SIGTERM, then
// SIGKILL: all are gone within two seconds. What does not end then hangs in the kernel.
constexpr std::int64_t word_ns = ns_per_s / 2;
constexpr std::int64_t grace_ns = ns_per_s;
constexpr std::int64_t kernel_ns = 2 * ns_per_s;
// How long a process that left its rank's group may hold the rank's output open.
constexpr std::int64_t drain_ns = ns_per_s / 2;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

constexpr int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// The signals of this process: blocked and read from a descriptor. What the caller ignores
// (nohup) stays ignored.
struct SignalSetup {
  FileDescriptor descriptor;
  sigset_t mask_before;
};

Result<SignalSetup> take_signals() {
  SignalSetup setup;
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (int signal_number : passed_on) {
    struct sigaction before {};
    ::sigaction(signal_number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaddset(&taken, signal_number);
  }
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a limit on files cuts a log short, no more
  if (::sigprocmask(SIG_BLOCK, &taken, &setup.mask_before) != 0)
    return Status::from_errno("sigprocmask", errno);
  setup.descriptor = FileDescriptor(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!setup.descriptor.has_value()) return Status::from_errno("signalfd", errno);
  return setup;
}

// A rank takes three descriptors here; the ranks themselves get the limit that was.
rlimit raise_descriptor_limit() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit raised = before;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

// Were one of 0, 1, 2 closed, the next pipe would take its number and get our output.
void fill_standard_descriptors() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0) [[maybe_unused]]
      const int filled = ::open("/dev/null", O_RDWR);
}

class Launcher {
 public:
  Launcher(const LaunchedJob& job, SignalSetup signals, JobGuard guard, rlimit descriptor_limit)
      : job_(job),
        signals_(std::move(signals)),
        guard_(std::move(guard)),
        descriptor_limit_(descriptor_limit),
        pump_(job.prefix) {}
  ~Launcher() {
    if (!draining_) end_groups();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  Result<int> run();

 private:
  Status start();
  Status start_one(int rank, const JobEnvironment& environment, const CpuBinding& binding,
                   int rendezvous_descriptor);
  Result<FileDescriptor> open_log(int rank, const char* ending);
  void cannot_start(const RankProcess& process);
  void turn();
  void read_signals();
  void pass_on(int signal_number);
  void look_for_ends();
  void keep_times();
  std::int64_t next_time() const;
  void order_end(std::int64_t terminate_at_ns, int verdict);
  void signal_groups(int signal_number);
  void end_groups();
  bool all_ended() const;
  void drain();
  void report();

  const LaunchedJob& job_;
  SignalSetup signals_;
  JobGuard guard_;
  const rlimit descriptor_limit_;
  OutputPump pump_;
  std::vector<RankEnd> ranks_;  // those started
  std::optional<int> verdict_;  // once it is known that it is not that of success
  int first_failed_ = -1;
  int interrupts_ = 0;
  std::int64_t timeout_at_ns_ = never;
  std::int64_t terminate_at_ns_ = never;
  std::int64_t kill_at_ns_ = never;
  std::int64_t give_up_at_ns_ = never;
  bool started_ = false;  // every rank's program runs
  bool draining_ = false;
};

Result<int> Launcher::run() {
  GYRE_TRY(start());
  started_ = !verdict_;
  if (job_.timeout_s > 0) timeout_at_ns_ = SystemClock::read() + job_.timeout_s * ns_per_s;
  while (!all_ended() && SystemClock::read() < give_up_at_ns_) turn();
  end_groups();
  drain();
  report();
  return verdict_.value_or(0);
}

Status Launcher::start() {
  GYRE_ASSIGN(const CpuBinding binding, choose_binding(job_.binding, job_.ranks));
  GYRE_ASSIGN(const Rendezvous rendezvous, make_rendezvous());
  GYRE_ASSIGN(const JobEnvironment environment,
              job_environment(job_.ranks, rendezvous, job_.environment));
  log_info(Subsystem::init, "gyre run: job {}: {}", rendezvous.job_id, binding.reason);
  if (!job_.log_directory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(job_.log_directory, error);
    if (error)
      return Status::from_errno(fmt::format("creating --log-dir {}", job_.log_directory),
                                error.value());
  }
  for (int rank = 0; rank < job_.ranks && !verdict_; ++rank)
    GYRE_TRY(start_one(rank, environment, binding, rendezvous.descriptor.get())
                 .while_doing(fmt::format("starting rank {}", rank)));
  if (environment.limits_openmp && !verdict_)
    log_info(Subsystem::init, "gyre run: OMP_NUM_THREADS=1 for every rank, as it was unset");
  return {};
}

Status Launcher::start_one(int rank, const JobEnvironment& environment, const CpuBinding& binding,
                           int rendezvous_descriptor) {
  const auto index = static_cast<std::size_t>(rank);
  const bool is_bound = !binding.sets.empty();
  const cpu_set_t processors = is_bound ? binding.sets[index].cpu_set() : cpu_set_t{};
  GYRE_ASSIGN(FileDescriptor out_log, open_log(rank, "out"));
  GYRE_ASSIGN(FileDescriptor err_log, open_log(rank, "err"));
  const std::vector<std::string> variables = rank_environment(environment, rank, job_.ranks);
  GYRE_ASSIGN(RankProcess process,
              start_rank({job_.command, variables, is_bound ? &processors : nullptr,
                          rendezvous_descriptor, signals_.mask_before, descriptor_limit_}));
  ranks_.push_back({process.pid, false, 0, false});
  guard_.watch(process.pid);
  if (process.start_error != 0) {
    cannot_start(process);
    return {};
  }
  if (is_bound)
    log_info(Subsystem::init, "gyre run: rank {} is process {} on processors {}", rank, process.pid,
             binding.sets[index].list());
  GYRE_TRY(pump_.add(rank, false, std::move(process.out), std::move(out_log)));
  return pump_.add(rank, true, std::move(process.err), std::move(err_log));
}

Result<FileDescriptor> Launcher::open_log(int rank, const char* ending) {
  if (job_.log_directory.empty()) return FileDescriptor();
  return open_own_file(fmt::format("{}/rank-{}.{}", job_.log_directory, rank, ending));
}

// The program cannot run on any rank, then: the ranks before this one end too.
void Launcher::cannot_start(const RankProcess& process) {
  const std::string& program = job_.command.front();
  const bool missing = process.start_call == "execvp" && process.start_error == ENOENT;
  std::string why = fmt::format("{}: {}", process.start_call, std::strerror(process.start_error));
  if (missing && program.find('/') != program.npos) why = "no such file";
  if (missing && program.find('/') == program.npos)
    why = ::access(program.c_str(), X_OK) == 0
              ? fmt::format("not in PATH; did you mean ./{}?", program)
              : "not in PATH";
  pump_.say(fmt::format("cannot start \"{}\": {}", program, why));
  order_end(0, missing ? exit_not_found : exit_cannot_execute);
}

// One sleep, and all that came of it.
void Launcher::turn() {
  std::vector<pollfd> set = {{signals_.descriptor.get(), POLLIN, 0}};
  pump_.collect(&set);
  const std::int64_t left_ns = next_time() - SystemClock::read();
  const int timeout_ms =
      next_time() == never
          ? -1
          : static_cast<int>(std::clamp<std::int64_t>(left_ns / ns_per_ms + 1, 0, 60'000));
  if (::poll(set.data(), set.size(), timeout_ms) > 0) {
    if (set[0].revents != 0) read_signals();
    pump_.advance(set);
  }
  if (pump_.stdout_sink().error() == EPIPE && !verdict_) order_end(0, exit_signal_base + SIGPIPE);
  keep_times();
}

void Launcher::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.descriptor.get(), &info, sizeof info) ==
         static_cast<ssize_t>(sizeof info)) {
    const int signal_number = static_cast<int>(info.ssi_signo);
    if (signal_number != SIGCHLD) pass_on(signal_number);
  }
  look_for_ends();
}

void Launcher::pass_on(int signal_number) {
  if (draining_) return pump_.discard();
  if (signal_number == SIGINT && ++interrupts_ > 1) {
    pump_.say("second SIGINT: killing all ranks");
    order_end(0, exit_signal_base + SIGINT);
    kill_at_ns_ = 0;
    return;
  }
  log_info(Subsystem::init, "gyre run: passing signal {} on to all ranks", signal_number);
  signal_groups(signal_number);
}

// The dead stay zombies until the job is over: their ids cannot pass to strangers while we may
// still send signals to their groups.
void Launcher::look_for_ends() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    RankEnd& end = ranks_[rank];
    siginfo_t info{};
    if (end.ended ||
        ::waitid(P_PID, static_cast<id_t>(end.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    end.ended = true;
    end.after_order = terminate_at_ns_ == 0;
    // As wait(2) would give it.
    end.wait_status = info.si_code == CLD_EXITED
                          ? (info.si_status & 0xff) << 8
                          : info.si_status | (info.si_code == CLD_DUMPED ? WCOREFLAG : 0);
    if (end.wait_status == 0 || verdict_) continue;
    first_failed_ = static_cast<int>(rank);
    order_end(SystemClock::read() + word_ns, exit_code_of(end.wait_status));
  }
}

void Launcher::keep_times() {
  const std::int64_t now_ns = SystemClock::read();
  if (now_ns >= timeout_at_ns_ && !verdict_) {
    pump_.say(fmt::format("--timeout: {} s have passed", job_.timeout_s));
    order_end(0, exit_timeout);
  }
  if (now_ns >= terminate_at_ns_ && kill_at_ns_ == never) {
    terminate_at_ns_ = 0;
    kill_at_ns_ = now_ns + grace_ns;
    signal_groups(SIGTERM);
  }
  if (now_ns >= kill_at_ns_ && give_up_at_ns_ == never) {
    give_up_at_ns_ = now_ns + kernel_ns;
    signal_groups(SIGKILL);
  }
}

std::int64_t Launcher::next_time() const {
  if (give_up_at_ns_ != never) return give_up_at_ns_;
  if (kill_at_ns_ != never) return kill_at_ns_;
  return std::min(timeout_at_ns_, terminate_at_ns_);
}

// The first reason to end is the verdict.
void Launcher::order_end(std::int64_t terminate_at_ns, int verdict) {
  if (!verdict_) verdict_ = verdict;
  terminate_at_ns_ = std::min(terminate_at_ns_, terminate_at_ns);
}

void Launcher::signal_groups(int signal_number) {
  for (const RankEnd& rank : ranks_) ::kill(-rank.pid, signal_number);
}

// What a rank left behind ends with the job; then the ranks' ids are given back.
void Launcher::end_groups() {
  signal_groups(SIGKILL);
  const std::int64_t give_up_at_ns = std::min(give_up_at_ns_, SystemClock::read() + kernel_ns);
  look_for_ends();
  while (!all_ended() && SystemClock::read() < give_up_at_ns) {
    ::poll(nullptr, 0, 1);
    look_for_ends();
  }
  for (const RankEnd& rank : ranks_)
    if (rank.ended) ::waitpid(rank.pid, nullptr, 0);
}

bool Launcher::all_ended() const {
  return std::ranges::all_of(ranks_, [](const RankEnd& rank) { return rank.ended; });
}

// The rest of the output: as long as the reader takes it, until a signal comes.
void Launcher::drain() {
  draining_ = true;
  const std::int64_t close_at_ns = SystemClock::read() + drain_ns;
  while (pump_.sources_open() || pump_.holds()) {
    std::vector<pollfd> set = {{signals_.descriptor.get(), POLLIN, 0}};
    pump_.collect(&set);
    ::poll(set.data(), set.size(), 50);
    if (set[0].revents != 0) read_signals();
    pump_.advance(set);
    if (SystemClock::read() >= close_at_ns) pump_.close_sources();
  }
}

void Launcher::report() {
  std::vector<std::string> lines = pump_.losses();
  if (verdict_ && started_) {
    const std::vector<std::string> ends = job_report(ranks_, first_failed_);
    lines.insert(lines.end(), ends.begin(), ends.end());
  }
  for (const std::string& line : lines)
    [[maybe_unused]] const int written = ::dprintf(STDERR_FILENO, "gyre run: %s\n", line.c_str());
}

}  // namespace

Result<int> launch(const LaunchedJob& job) {
  fill_standard_descriptors();
  const rlimit descriptor_limit = raise_descriptor_limit();
  GYRE_ASSIGN(SignalSetup signals, take_signals());
  GYRE_ASSIGN(JobGuard guard, JobGuard::start());
  Launcher launcher(job, std::move(signals), std::move(guard), descriptor_limit);
  return launcher.run();
}

}  // namespace gyre::tools
