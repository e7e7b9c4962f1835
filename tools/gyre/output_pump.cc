#include "tools/gyre/output_pump.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::tools {
namespace {

constexpr std::size_t read_bytes = 64 << 10;
// A longer line goes out in pieces, so that a rank that never ends one takes bounded memory.
constexpr std::size_t longest_line = 64 << 10;

// The same pipe or terminal, opened anew: O_NONBLOCK is then ours alone and does not leak into the
// shell that gave us the descriptor. Files keep theirs: they never block and share their offset.
FileDescriptor reopen(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return {};
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return {};
  return FileDescriptor(::open(fmt::format("/proc/self/fd/{}", descriptor).c_str(),
                               O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool can_take_now(int descriptor) {
  pollfd ready{descriptor, POLLOUT, 0};
  return ::poll(&ready, 1, 0) > 0 && (ready.revents & (POLLOUT | POLLERR)) != 0;
}

}  // namespace

Sink::Sink(int descriptor)
    : reopened_(reopen(descriptor)),
      descriptor_(reopened_.has_value() ? reopened_.get() : descriptor) {}

void Sink::append(std::string_view text) {
  if (error_ == 0) pending_ += text;
}

void Sink::flush() {
  while (holds() && can_take_now(descriptor_)) {
    const std::size_t bytes = std::min(pending_.size() - written_, max_at_once);
    const ssize_t taken = ::write(descriptor_, pending_.data() + written_, bytes);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno == EAGAIN) break;
    if (taken < 0) {
      error_ = errno;
      return discard();
    }
    written_ += static_cast<std::size_t>(taken);
  }
  if (written_ > max_pending / 2 || !holds()) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

OutputPump::OutputPump(bool prefix)
    : prefix_(prefix), sinks_{Sink(STDOUT_FILENO), Sink(STDERR_FILENO)}, buffer_(read_bytes) {}

Status OutputPump::add(int rank, bool is_stderr, FileDescriptor source, FileDescriptor log) {
  const int flags = fcntl(source.get(), F_GETFL);
  if (flags < 0 || fcntl(source.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return Status::from_errno(fmt::format("making the output of rank {} non-blocking", rank),
                              errno);
  streams_.push_back({rank, is_stderr ? 1U : 0U, std::move(source), std::move(log), {}, no_place});
  return {};
}

void OutputPump::say(std::string_view line) {
  sinks_[1].append(fmt::format("gyre run: {}\n", line));
  sinks_[1].flush();
}

void OutputPump::collect(std::vector<pollfd>* set) {
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    sink_places_[i] = no_place;
    if (!sinks_[i].holds()) continue;
    sink_places_[i] = set->size();
    set->push_back({sinks_[i].descriptor(), POLLOUT, 0});
  }
  for (Stream& stream : streams_) {
    stream.place = no_place;
    if (!stream.source.has_value() || sinks_[stream.sink].full()) continue;
    stream.place = set->size();
    set->push_back({stream.source.get(), POLLIN, 0});
  }
}

void OutputPump::advance(const std::vector<pollfd>& set) {
  for (Stream& stream : streams_)
    if (stream.place != no_place && set[stream.place].revents != 0) read_some(stream);
  for (Sink& sink : sinks_) sink.flush();
}

void OutputPump::read_some(Stream& stream) {
  const ssize_t count = ::read(stream.source.get(), buffer_.data(), buffer_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return finish(stream);
  const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(count));
  write_log(stream, bytes);
  take(stream, bytes);
}

void OutputPump::take(Stream& stream, std::string_view bytes) {
  for (std::size_t end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
    if (stream.line.empty()) {
      emit(stream, bytes.substr(0, end));
    } else {
      stream.line += bytes.substr(0, end);
      emit(stream, stream.line);
      stream.line.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  stream.line += bytes;
  if (stream.line.size() < longest_line) return;
  emit(stream, stream.line);
  stream.line.clear();
}

// A full disk must not disturb the job: the log ends there, and the summary says so.
void OutputPump::write_log(Stream& stream, std::string_view bytes) {
  while (stream.log.has_value() && !bytes.empty()) {
    const ssize_t taken = ::write(stream.log.get(), bytes.data(), bytes.size());
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) {
      log_loss_ =
          fmt::format("the log of rank {} is cut short: {}", stream.rank, std::strerror(errno));
      stream.log.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(taken));
  }
}

void OutputPump::emit(const Stream& stream, std::string_view line) {
  Sink& sink = sinks_[stream.sink];
  if (prefix_) sink.append(fmt::format("[{}] ", stream.rank));
  sink.append(line);
  sink.append("\n");
}

void OutputPump::finish(Stream& stream) {
  if (!stream.line.empty()) emit(stream, stream.line);
  stream.line.clear();
  stream.source.reset();
  stream.log.reset();
}

bool OutputPump::sources_open() const {
  return std::ranges::any_of(streams_, [](const Stream& s) { return s.source.has_value(); });
}

void OutputPump::close_sources() {
  for (Stream& stream : streams_)
    if (stream.source.has_value()) finish(stream);
  for (Sink& sink : sinks_) sink.flush();
}

void OutputPump::discard() {
  for (Sink& sink : sinks_) sink.discard();
}

std::vector<std::string> OutputPump::losses() const {
  std::vector<std::string> lines;
  if (!log_loss_.empty()) lines.push_back(log_loss_);
  for (std::size_t i = 0; i < sinks_.size(); ++i)
    if (sinks_[i].error() != 0 && sinks_[i].error() != EPIPE)
      lines.push_back(fmt::format("{} is cut short: {}", i == 0 ? "stdout" : "stderr",
                                  std::strerror(sinks_[i].error())));
  return lines;
}

}  // namespace gyre::tools
