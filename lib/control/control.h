// The control plane: how ranks meet, pass small messages, and learn of deaths and aborts. One
// control thread per process, whatever the number of ranks and communicators in it; it alone
// listens, accepts, reads and writes control connections. No payload passes here. ControlPlane is
// the process's end of it: listener, tickets, the thread; membership.h has what each rank holds.
#pragma once

#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/control/membership.h"
#include "lib/trust/identity.h"
#include "lib/trust/tickets.h"
#include "lib/trust/unique_id.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace gyre::control {

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;  // closes it
  // Starts the control thread and opens the listener. One per process; after fork the child needs a
  // new one.
  static Result<std::unique_ptr<ControlPlane>> start(const Settings& settings);

  // The process ends: who still counts on ranks of this one hears of it, those ranks fail, and the
  // thread stops. What is asked for later is refused. Once; it takes some 200 ms at most, and 2 s
  // where a root's job has failed and ranks are still on their way to it.
  virtual void close() = 0;

  // Without addresses: where a process listens by TCP, and whether, is a communicator's affair.
  virtual const trust::ProcessIdentity& identity() const = 0;
  virtual trust::TicketBook& tickets() = 0;

  // Makes this process the root of a new communicator. For any host it listens on an interface that
  // other hosts reach, until all ranks have come and are of this one; an id for this host says so
  // by having no address, and who joins by it listens nowhere else either.
  virtual Result<trust::UniqueId> create_unique_id(Audience audience, const Settings& settings) = 0;
  // The same with a secret and a listener name that a launcher gave to all ranks of this host: no
  // id needs passing.
  virtual Result<trust::UniqueId> create_root(const trust::Secret& secret) = 0;
  // Joining by an id that this process made has failed here. Whoever comes by it is told why.
  virtual void renounce(const trust::UniqueId& id, const Status& why) = 0;
  // Where processes of this host reach this one by TCP; it listens there from now on.
  virtual Result<std::string> listen_on_this_host(const Settings& settings) = 0;

  // Joins as `rank` of `size`. Several ranks of one process may join the same id, from any threads.
  // `settings` gives the deadline to meet and the liveness limit. Returns at once, in state
  // joining.
  virtual Result<std::shared_ptr<Membership>> join(const trust::UniqueId& id, int size, int rank,
                                                   MessageBytes note, const Settings& settings) = 0;

  // For a meeting by an id that this process made: calls `on_readable` on the control thread
  // whenever `descriptor` (which stays its own; an epoll descriptor is one too) is readable. That
  // ends when it returns false, or when the communicator of the id is over; then `on_readable` is
  // destroyed.
  virtual Status watch(const trust::UniqueId& id, int descriptor,
                       std::function<bool()> on_readable) = 0;

  // The same of all whose communicators have failed: until then whoever comes late gets such an id,
  // and is told why. The next meeting may take their places.
  virtual Status end_failed_meetings() = 0;

  // Answers GET /metrics at `where`, GYRE_METRICS's value, with what `text` makes on the control
  // thread, until the plane ends. Once.
  virtual Status serve_metrics(const std::string& where, int local_rank,
                               std::function<std::string()> text) = 0;
};

}  // namespace gyre::control
