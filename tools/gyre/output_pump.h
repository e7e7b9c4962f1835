// Brings the ranks' output to the launcher's own: whole lines, "[rank] " before each, stdout and
// stderr apart, and a copy of each rank's bytes in a log file if one is given. It never blocks: a
// reader that does not read holds the ranks back through their pipes, not the launcher's loop.
//
//   Sink    the launcher's stdout or stderr, with what it could not take yet
//   Stream  one rank's stdout or stderr
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <array>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::tools {

class Sink {
 public:
  explicit Sink(int descriptor);
  void append(std::string_view text);
  // Writes what the reader takes now.
  void flush();
  void discard() { pending_.clear(), written_ = 0; }
  bool holds() const { return pending_.size() > written_; }
  bool full() const { return pending_.size() - written_ >= max_pending; }
  int descriptor() const { return descriptor_; }
  // Why output was lost, as an errno; EPIPE: the reader is gone. 0: nothing was.
  int error() const { return error_; }

 private:
  static constexpr std::size_t max_pending = 1 << 20;
  static constexpr std::size_t max_at_once = 4096;  // what a pipe that polls writable always takes

  FileDescriptor reopened_;  // non-blocking for us alone
  int descriptor_;
  std::string pending_;
  std::size_t written_ = 0;
  int error_ = 0;
};

class OutputPump {
 public:
  explicit OutputPump(bool prefix);

  // Reads `source` from here on; `log` may be empty.
  Status add(int rank, bool is_stderr, FileDescriptor source, FileDescriptor log);
  // A line of the launcher's own, on stderr.
  void say(std::string_view line);

  // What to poll for, then what came of it; `set` is the same vector, grown by others meanwhile.
  void collect(std::vector<pollfd>* set);
  void advance(const std::vector<pollfd>& set);

  bool sources_open() const;
  // Stops reading: last partial lines go out.
  void close_sources();
  bool holds() const { return sinks_[0].holds() || sinks_[1].holds(); }
  void discard();
  const Sink& stdout_sink() const { return sinks_[0]; }
  // What was lost on the way, for people; empty if nothing was.
  std::vector<std::string> losses() const;

 private:
  static constexpr std::size_t no_place = static_cast<std::size_t>(-1);
  struct Stream {
    int rank;
    std::size_t sink;
    FileDescriptor source;
    FileDescriptor log;
    std::string line;              // the beginning of a line whose end has not come
    std::size_t place = no_place;  // in the set polled
  };

  void read_some(Stream& stream);
  void take(Stream& stream, std::string_view bytes);
  void write_log(Stream& stream, std::string_view bytes);
  void emit(const Stream& stream, std::string_view line);
  void finish(Stream& stream);

  const bool prefix_;
  std::array<Sink, 2> sinks_;
  std::array<std::size_t, 2> sink_places_{no_place, no_place};
  std::vector<Stream> streams_;
  std::vector<char> buffer_;
  std::string log_loss_;
};

}  // namespace gyre::tools
