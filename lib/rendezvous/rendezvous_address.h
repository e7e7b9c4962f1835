// RendezvousAddress: where rank 0 hands out the id and the others ask for it. It is an abstract
// socket of this host, where the kernel vouches for the user, or a TCP address, where a shared
// secret does. This file opens and connects sockets; id_server.h has the exchange.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/settings.h"
#include "lib/base/status.h"
#include "lib/base/wait.h"
#include "lib/trust/address.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/session_key.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::rendezvous {

// How the identities of keys of network meetings begin.
inline constexpr std::string_view rendezvous_identity_prefix = "gyre-meeting-1-";

// What both ends of a network meeting prove to each other.
struct NetworkProof {
  std::shared_ptr<const trust::SessionKey> key;
  std::unique_ptr<const trust::Tls> tls;
};

struct RendezvousAddress {
  std::vector<trust::SocketAddress> addresses;  // tried in turn
  std::string text;                             // for people
  std::shared_ptr<const NetworkProof> network;  // none: same host, same user
  bool was_looked_up = false;                   // the addresses are those of a name
};

// The abstract socket that belongs to this user and this text.
Result<RendezvousAddress> local_rendezvous(std::string_view text);
// GYRE_RENDEZVOUS_ADDRESS; a name that does not resolve is tried again until `wait` ends.
Result<RendezvousAddress> network_rendezvous(const Settings& settings, const trust::Secret& secret,
                                             Wait& wait);

// Rank 0: a listening, non-blocking socket. Whoever holds the place gets two seconds to go.
Result<FileDescriptor> listen_at_address(const RendezvousAddress& point, Wait& wait);
// The others, one attempt. Without a descriptor nobody is there yet, and `reason` says how we know.
Result<FileDescriptor> connect_to_address(const RendezvousAddress& point, Wait& wait,
                                          std::string* reason);

// At the other end of a local socket is a process of our own user.
Status check_same_user(int socket);

// Until `descriptor` is ready (-1: nothing) or the wait's longest sleep; false after its deadline.
bool rest(Wait& wait, int descriptor = -1, short events = 0);

}  // namespace gyre::rendezvous
