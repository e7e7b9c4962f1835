// RecordRelay: a man in the middle. It listens at an address of its own, passes on what comes to
// another address, and the answers. It knows where TLS records begin, and changes, repeats, swaps,
// cuts or loses one of them when it is told to. `step` does what there is to do.
#pragma once

#include "lib/base/owned.h"
#include "lib/trust/address.h"
#include "lib/trust/tickets.h"
#include "tests/support/catch.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace gyre::tests {

class RecordRelay {
 public:
  // Of one record: `swap` sends it after the next one; `cut` sends half of it and the end of the
  // stream; `end` sends the end in its place.
  enum class Attack : std::uint8_t { flip, flip_tag, repeat, swap, lose, cut, end };
  enum class Way : std::uint8_t { there, back };  // from who dialed, to who dialed

  RecordRelay() {
    auto listening = trust::listen_at(*trust::parse_address("127.0.0.1:0"));
    REQUIRE(listening.ok());
    listener_ = std::move(*listening);
    trust::SocketAddress bound;
    bound.length = sizeof bound.storage;
    REQUIRE(getsockname(listener_.get(), bound.get(), &bound.length) == 0);
    address_ = trust::format_address(bound);
  }

  const std::string& address() const { return address_; }
  void lead_to(std::string target) { target_ = std::move(target); }
  // The next record of application data that goes this way.
  void arm(Way way, Attack attack) { armed_ = {way, attack}; }
  bool has_struck() const { return struck_; }

  void step() {
    FileDescriptor came = trust::accept_at(listener_);
    if (came.has_value()) open(std::move(came));
    for (Connection& connection : connections_) {
      pass(connection, Way::there);
      pass(connection, Way::back);
    }
  }

 private:
  using Bytes = std::vector<std::uint8_t>;
  struct Stream {
    Bytes incoming;             // of a record that is not whole
    std::optional<Bytes> late;  // to be sent after the next record
    bool over = false;
  };
  struct Connection {
    FileDescriptor dialed, target;
    std::array<Stream, 2> streams;
  };
  static constexpr std::size_t head_bytes = 5;
  static constexpr std::uint8_t application_data = 23;

  void open(FileDescriptor came) {
    bool pending = false;
    auto begun = trust::begin_connect(*trust::parse_address(target_), &pending);
    REQUIRE(begun.ok());
    pollfd writable{begun->get(), POLLOUT, 0};
    REQUIRE(poll(&writable, 1, 5000) == 1);
    connections_.push_back({std::move(came), std::move(*begun), {}});
  }

  void pass(Connection& connection, Way way) {
    Stream& stream = connection.streams[static_cast<std::size_t>(way)];
    const int from = (way == Way::there ? connection.dialed : connection.target).get();
    const int to = (way == Way::there ? connection.target : connection.dialed).get();
    std::uint8_t bytes[16 << 10];
    const ssize_t got = stream.over ? -1 : recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0) {
      stream.over = true;
      ::shutdown(to, SHUT_WR);
    }
    if (got <= 0) return;
    stream.incoming.insert(stream.incoming.end(), bytes, bytes + got);
    while (!stream.over) {
      const std::size_t whole = unit_bytes(stream.incoming);
      if (whole == 0 || stream.incoming.size() < whole) return;
      Bytes unit(stream.incoming.begin(),
                 stream.incoming.begin() + static_cast<std::ptrdiff_t>(whole));
      stream.incoming.erase(stream.incoming.begin(),
                            stream.incoming.begin() + static_cast<std::ptrdiff_t>(whole));
      treat(stream, way, to, std::move(unit));
    }
  }

  // Of the record, or of the ticket before all records, at the front. 0: not known yet.
  static std::size_t unit_bytes(const Bytes& bytes) {
    if (!bytes.empty() && bytes[0] == 'G') return sizeof(trust::TicketHello);
    return bytes.size() < head_bytes ? 0 : head_bytes + (std::size_t{bytes[3]} << 8) + bytes[4];
  }

  void treat(Stream& stream, Way way, int to, Bytes unit) {
    const bool is_struck =
        armed_ && armed_->first == way && unit.size() > head_bytes && unit[0] == application_data;
    if (is_struck) {
      struck_ = true;
      return strike(stream, std::exchange(armed_, std::nullopt)->second, to, std::move(unit));
    }
    send_all(to, unit);
    if (stream.late) send_all(to, *std::exchange(stream.late, std::nullopt));
  }

  static void strike(Stream& stream, Attack attack, int to, Bytes unit) {
    switch (attack) {
      case Attack::flip:
        unit[head_bytes] ^= 1;
        return send_all(to, unit);
      case Attack::flip_tag:
        unit.back() ^= 0x80;
        return send_all(to, unit);
      case Attack::repeat:
        send_all(to, unit);
        return send_all(to, unit);
      case Attack::swap:
        stream.late = std::move(unit);
        return;
      case Attack::lose:
        return;
      case Attack::cut:
        unit.resize(unit.size() / 2);
        send_all(to, unit);
        [[fallthrough]];
      case Attack::end:
        stream.over = true;
        ::shutdown(to, SHUT_WR);
    }
  }

  // Who is gone gets nothing.
  static void send_all(int to, const Bytes& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      pollfd writable{to, POLLOUT, 0};
      if (poll(&writable, 1, 5000) != 1) return;
      const ssize_t count =
          ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN) return;
      if (count > 0) sent += static_cast<std::size_t>(count);
    }
  }

  FileDescriptor listener_;
  std::string address_, target_;
  std::optional<std::pair<Way, Attack>> armed_;
  bool struck_ = false;
  std::list<Connection> connections_;
};

}  // namespace gyre::tests
