// PMI's version 1 (MPICH's "simple PMI"): one line of text asks, one line answers, in turn.
#include "lib/base/clock.h"
#include "lib/base/owned.h"
#include "lib/rendezvous/launcher_line.h"
#include "lib/rendezvous/pmi_reply.h"
#include "lib/rendezvous/rendezvous_address.h"
#include "lib/trust/wiped.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gyre::rendezvous {
namespace {

// Whether PMI_FD can still be the launcher's: a program may have closed it, and opened another.
// Whose process is at the other end says nothing: of Slurm it is root's, of Hydra ours.
Status check_launcher(int descriptor) {
  int family = 0;
  socklen_t bytes = sizeof family;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX)
    return Status();
  return invalid_usage(fmt::format("PMI_FD={} is not the launcher's socket", descriptor));
}

class PmiLine final : public LauncherLine {
 public:
  explicit PmiLine(FileDescriptor socket) : socket_(std::move(socket)) {}

  Status greet(Wait& wait) {
    GYRE_TRY(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", {}, wait).status());
    GYRE_ASSIGN(space_, ask("cmd=get_my_kvsname", "my_kvsname", "kvsname", wait));
    return Status();
  }
  Status put(const std::string& key, const std::string& value, Wait& wait) override {
    return ask(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result",
               {}, wait)
        .status();
  }
  Status fence(Wait& wait) override {
    return ask("cmd=barrier_in", "barrier_out", {}, wait).status();
  }
  Result<std::string> get(const std::string& key, Wait& wait) override {
    return ask(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", "value", wait);
  }
  void finish(Wait& wait) override {
    (void)ask("cmd=finalize", "finalize_ack", {}, wait).status().ok();
  }

 private:
  Result<std::string> ask(std::string line, std::string_view answer, std::string_view wanted,
                          Wait& wait) {
    line += '\n';
    Status said = say(line, wait);
    trust::wipe(line);
    GYRE_TRY(std::move(said));
    std::string heard;
    heard.reserve(2 * max_pmi_line);  // one copy, which is wiped
    GYRE_TRY(hear(&heard, wait));
    auto value = read_pmi_reply(heard, answer, wanted);
    trust::wipe(heard);
    return value;
  }

  Status say(std::string_view line, Wait& wait) {
    while (!line.empty()) {
      const ssize_t put =
          ::send(socket_.get(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put > 0) line.remove_prefix(static_cast<std::size_t>(put));
      if (put >= 0 || errno == EINTR) continue;
      if (errno != EAGAIN) return Status::from_errno("asking the launcher (PMI_FD)", errno);
      if (!rest(wait, socket_.get(), POLLOUT))
        return Status(Code::Timeout, "the launcher does not read what this process asks (PMI_FD)");
    }
    return Status();
  }

  // Until the end of a line. The launcher says nothing unasked, so nothing follows it.
  Status hear(std::string* line, Wait& wait) {
    trust::Wiped<1024> piece;
    while (true) {
      const ssize_t got = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (got == 0) return Status(Code::RemoteError, "the launcher closed its end of PMI_FD");
      if (got > 0) {
        line->append(piece.begin(), piece.begin() + got);
        const std::size_t end = line->find('\n');
        if (end + 1 == line->size()) return line->pop_back(), Status();
        if (end != line->npos || line->size() > max_pmi_line)
          return Status(Code::RemoteError, "the launcher's answer (PMI_FD) is no line");
      } else if (errno != EAGAIN && errno != EINTR) {
        return Status::from_errno("hearing the launcher (PMI_FD)", errno);
      } else if (!rest(wait, socket_.get(), POLLIN)) {
        return Status(Code::Timeout, "the launcher does not answer (PMI_FD)");
      }
    }
  }

  // Of our own, so that it stays the launcher's whatever the program closes.
  const FileDescriptor socket_;
  std::string space_;
};

}  // namespace

Result<std::unique_ptr<LauncherLine>> open_pmi(int descriptor, Wait& wait) {
  GYRE_TRY(check_launcher(descriptor));
  FileDescriptor own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own.has_value()) return Status::from_errno("duplicating PMI_FD", errno);
  auto line = std::make_unique<PmiLine>(std::move(own));
  GYRE_TRY(line->greet(wait));
  return std::unique_ptr<LauncherLine>(std::move(line));
}

}  // namespace gyre::rendezvous
