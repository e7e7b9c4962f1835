// TcpDialer: connects to one of a listener's addresses and shows its ticket there. It tries one
// address after the other, without blocking. It fails if all addresses refuse, or if none answers
// for as long as another host may be silent.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/transport/lost_knocks.h"
#include "lib/transport/transport.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::transport {

class TcpDialer {
 public:
  TcpDialer(std::vector<std::string> addresses, const trust::Ticket& ticket,
            const TransportEnvironment& environment);

  // The socket, once; nothing while no address has answered.
  Result<std::optional<FileDescriptor>> advance();
  // What came of the last socket: the listener closed it before the other end had it. Tries the
  // next address after a pause; an error once that has been in vain too often.
  Status again(std::string_view why);
  // Whether `advance` has given up because nobody answered.
  bool met_silence() const { return met_silence_; }
  // To be polled for writing meanwhile; -1 if there is none.
  int descriptor() const { return socket_.get(); }

 private:
  enum class ConnectResult { pending, connected, refused };
  Status begin_next();
  Status check_silence();
  Result<FileDescriptor> begin(const std::string& text) const;
  ConnectResult answer();
  void refuse(std::string_view why);

  const std::vector<std::string> addresses_;
  const trust::Ticket ticket_;
  const std::vector<std::string> own_addresses_;
  const std::int64_t liveness_ns_;
  std::size_t next_ = 0;  // address to be tried next
  bool hopeful_ = false;  // an address of this round did not answer, or may yet take us
  FileDescriptor socket_;
  std::int64_t give_up_ns_ = 0;
  std::int64_t silent_since_ns_ = 0;  // 0: an address has answered since
  bool met_silence_ = false;
  LostKnocks losses_;
  std::string refusals_;  // of this round: address and cause
};

}  // namespace gyre::transport
