// MetricsListener: answers GET /metrics with a text that it is given, on the control thread.
// Anybody who reaches it may ask. A client gets 2 s and 2 KiB, and few are served at a time, so no
// client can delay a job. The others wait in the kernel; the oldest client makes room.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/control/control_thread.h"
#include "lib/control/metrics_place.h"
#include "lib/control/metrics_request.h"

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <sys/types.h>

namespace gyre::control {

class MetricsListener {
 public:
  using MakeText = std::function<std::string()>;

  // Any thread. An error names the place if it is taken; a socket's file of our own that nobody
  // listens at any more, since its process was killed, is replaced.
  static Result<std::unique_ptr<MetricsListener>> open(ControlThread& thread,
                                                       const MetricsPlace& place, MakeText text);
  MetricsListener(const MetricsListener&) = delete;
  MetricsListener& operator=(const MetricsListener&) = delete;
  ~MetricsListener();
  // With the port that it got.
  const std::string& name() const { return name_; }

  // The control thread from here.
  Status serve();
  std::int64_t tick(std::int64_t now_ns);

 private:
  struct MetricsClient {
    FileDescriptor socket;
    ControlThread::Watch watch;
    std::int64_t since_ns = 0;
    std::string request;
    std::string answer;  // empty: the request is not whole yet
    std::size_t sent = 0;
    std::size_t ignored = 0;  // bytes that came after the answer
  };
  using ClientIterator = std::list<MetricsClient>::iterator;

  MetricsListener(ControlThread& thread, MakeText text) : thread_(thread), text_(std::move(text)) {}
  Status listen(const MetricsPlace& place);
  Status listen_at_port(const MetricsPlace& place);
  Status listen_at_path(const MetricsPlace& place);
  void accept_some();
  bool make_room();
  void rest_until(std::int64_t time_ns);
  void let_in(FileDescriptor socket);
  void on_event(ClientIterator client);
  void read_request(ClientIterator client);
  void write_answer(ClientIterator client);
  void see_off(ClientIterator client);
  void leave(ClientIterator client);

  ControlThread& thread_;
  const MakeText text_;
  std::string name_;
  std::string path_;  // of the socket's file, and which file it was
  dev_t device_ = 0;
  ino_t inode_ = 0;
  FileDescriptor listener_;
  ControlThread::Watch watch_;
  std::list<MetricsClient> clients_;  // oldest first
  std::int64_t deaf_until_ns_ = 0;
};

}  // namespace gyre::control
