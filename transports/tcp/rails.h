// Rails: the sockets of one end of a tcp connection. It is ready when all of them are, and fails
// when one does.
#pragma once

#include "lib/base/status.h"
#include "lib/transport/transport.h"
#include "transports/tcp/secure_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::transport {

// What one of them needs to know of the link.
struct RailTerms {
  std::int32_t peer = 0;
  std::int64_t liveness_ns = 0;
  bool is_one_of_several = false;
  bool has_checksums = false;  // in the headers
  std::uint64_t first_message = 0;
  StreamSecurity security;
};

template <typename Rail>
class Rails {
 public:
  // `way`: "tcp to", for errors.
  Rails(std::string_view way, std::int32_t peer, std::vector<Rail> rails)
      : way_(way), peer_(peer), rails_(std::move(rails)) {}

  bool ready() const { return ready_; }
  // Sticky: the first failure.
  const Status& error() const { return error_; }
  // Brings them all about.
  Status join() {
    for (Rail& rail : rails_) {
      Status joined = rail.join();
      if (!joined.ok()) return fail(rail, std::move(joined));
    }
    ready_ = std::ranges::all_of(rails_, &Rail::joined);
    return {};
  }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
    if (!error_.ok()) return error_;
    for (Rail& rail : rails_) {
      Status path = rail.judge(now_ns, limit_ns);
      if (!path.ok()) return fail(rail, std::move(path));
    }
    return {};
  }
  // What befell one of them.
  Status fail(const Rail& culprit, Status status) {
    error_ = link_failure(std::move(status),
                          fmt::format("{} rank {} ({})", way_, peer_, culprit.address()), peer_);
    for (Rail& rail : rails_) rail.close();
    ready_ = false;
    return error_;
  }
  // What befell the connection.
  Status fail(Status status) { return fail(rails_.front(), std::move(status)); }

  std::vector<Rail>& all() { return rails_; }
  const std::vector<Rail>& all() const { return rails_; }

 private:
  const std::string_view way_;
  const std::int32_t peer_;
  std::vector<Rail> rails_;
  bool ready_ = false;
  Status error_;
};

}  // namespace gyre::transport
