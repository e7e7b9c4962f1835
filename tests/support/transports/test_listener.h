// A listener for transport tests. It accepts the data connections of one process, local ones and
// over loopback, and passes those with a good ticket to its book. Unlike a real listener it has no
// timeouts.
#pragma once

#include "lib/base/owned.h"
#include "lib/trust/identity.h"
#include "lib/trust/tickets.h"

#include <atomic>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace gyre::tests {

// Tests cannot go on without a descriptor or a loopback address; both are there or the run is void.
FileDescriptor listen_local(const std::string& name);
// None if the machine lacks the family. `address` becomes the text of where it listens.
FileDescriptor listen_loopback(int family, std::string& address);
// The whole hello, or nothing after two seconds or an early end.
std::optional<trust::TicketHello> read_hello(const FileDescriptor& socket);

class TestListener {
 public:
  enum class Ways { local_only, with_tcp4, with_tcp6 };

  // Fills in the identity's listener name and addresses.
  TestListener(trust::TicketBook& tickets, trust::ProcessIdentity& identity, Ways ways);
  ~TestListener();
  TestListener(const TestListener&) = delete;
  TestListener& operator=(const TestListener&) = delete;

  // Connections that showed no good ticket.
  int turned_away() const { return turned_away_.load(); }

 private:
  void serve();
  void admit(FileDescriptor socket);

  trust::TicketBook& tickets_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor end_reader_, end_writer_;  // closing the writer ends the thread
  std::atomic<int> turned_away_{0};
  std::thread thread_;
};

bool has_family(int family);

}  // namespace gyre::tests
