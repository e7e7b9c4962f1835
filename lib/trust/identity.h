// ProcessIdentity: a process's description of itself, by which others judge how to reach it. It is
// a claim: locality is believed only after a map or a connection succeeded.
#pragma once

#include "lib/base/status.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gyre::trust {

using Token = std::array<std::uint8_t, 16>;

struct ProcessIdentity {
  Token process{};                  // random, made once per process (again after fork)
  Token host{};                     // kernel boot id: equal on one host
  std::uint64_t net_namespace = 0;  // inode: abstract sockets are seen only within it
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::string host_name;  // for people
  std::string
      listener_name;  // abstract AF_UNIX name of the process's listener, without the leading NUL
  std::vector<std::string>
      addresses;  // "1.2.3.4:port" or "[::1]:port" of the process's listener, best first
};

// Whether each finds the other's local listener, as both claim: one host, one network namespace,
// one user.
bool can_meet_locally(const ProcessIdentity& one, const ProcessIdentity& other);

// All but the listener's name and addresses, which whoever opens the listener fills in. A new
// process token each time.
Result<ProcessIdentity> describe_this_process();

// Bytes for the control plane. decode checks every length.
std::vector<std::uint8_t> encode(const ProcessIdentity& identity);
Result<ProcessIdentity> decode_identity(const std::vector<std::uint8_t>& bytes);

}  // namespace gyre::trust
