// Dial: from the addresses of a door to a connected socket that has shown its ticket, one address
// after the other, without blocking. Refused everywhere is an error; an address that does not
// answer is tried again until the caller gives up.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/transport/endpoint.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gyre::transport {

class Dial {
 public:
  Dial(const EndpointContents& endpoint, const Surroundings& surroundings);

  // The socket, once; nothing while no address has answered.
  Result<std::optional<FileDescriptor>> advance();
  // To be polled for writing meanwhile; -1 if there is none.
  int descriptor() const { return socket_.get(); }

 private:
  enum class Answer { pending, connected, refused };
  Status begin_next();
  Result<FileDescriptor> begin(const std::string& text) const;
  Answer answer();
  void refuse(std::string_view why);

  const std::vector<std::string> addresses_;
  const trust::Ticket ticket_;
  const std::vector<std::string> own_addresses_;
  const std::int64_t user_timeout_ms_;
  std::size_t next_ = 0;  // address to be tried next
  bool silent_ = false;   // an address of this round did not answer
  FileDescriptor socket_;
  std::int64_t give_up_ns_ = 0;
  std::string refusals_;  // of this round: address and cause
};

}  // namespace gyre::transport
