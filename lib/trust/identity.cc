#include "lib/trust/identity.h"

#include "lib/base/owned.h"
#include "lib/trust/openssl.h"
#include "lib/trust/wire.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::trust {
namespace {

constexpr std::size_t max_text = 256;
constexpr std::size_t max_address = 8;

std::string read_line(const char* path) {
  const FileDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file.has_value()) return {};
  char text[128];
  const ssize_t length = ::read(file.get(), text, sizeof text);
  if (length <= 0) return {};
  std::string line(text, static_cast<std::size_t>(length));
  return line.substr(0, line.find('\n'));
}

std::string this_host_name() {
  char name[max_text] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown-host";
  return name;
}

// The boot id itself stays at home: others get a hash of it.
Result<Token> host_token(const std::string& host_name) {
  std::string boot = read_line("/proc/sys/kernel/random/boot_id");
  if (boot.empty()) boot = "name " + host_name;
  const std::string text = "gyre host " + boot;
  begin_openssl();
  std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest;
  if (EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    return internal_error("hashing the boot id failed");
  Token token;
  std::copy_n(digest.begin(), token.size(), token.begin());
  return token;
}

}  // namespace

bool can_meet_locally(const ProcessIdentity& one, const ProcessIdentity& other) {
  return one.host == other.host && one.net_namespace == other.net_namespace && one.uid == other.uid;
}

Result<ProcessIdentity> describe_this_process() {
  ProcessIdentity identity;
  const auto size = static_cast<ssize_t>(identity.process.size());
  if (getrandom(identity.process.data(), identity.process.size(), 0) != size)
    return Status::from_errno("getrandom for a process token", errno);
  identity.host_name = this_host_name();
  GYRE_ASSIGN(identity.host, host_token(identity.host_name));
  struct stat net = {};
  if (::stat("/proc/self/ns/net", &net) == 0) identity.net_namespace = net.st_ino;
  identity.pid = static_cast<std::uint32_t>(getpid());
  identity.uid = geteuid();
  return identity;
}

std::vector<std::uint8_t> encode(const ProcessIdentity& identity) {
  Writer writer;
  writer.put(identity.process);
  writer.put(identity.host);
  writer.put(identity.net_namespace);
  writer.put(identity.pid);
  writer.put(identity.uid);
  writer.put_text(std::string_view(identity.host_name).substr(0, max_text));
  writer.put_text(identity.listener_name);
  const std::size_t addresses = std::min(identity.addresses.size(), max_address);
  writer.put(static_cast<std::uint8_t>(addresses));
  for (std::size_t i = 0; i < addresses; ++i) writer.put_text(identity.addresses[i]);
  return writer.take();
}

Result<ProcessIdentity> decode_identity(const std::vector<std::uint8_t>& bytes) {
  ProcessIdentity identity;
  Reader reader(bytes);
  std::uint8_t count = 0;
  bool good = reader.get(identity.process) && reader.get(identity.host) &&
              reader.get(identity.net_namespace) && reader.get(identity.pid) &&
              reader.get(identity.uid) && reader.get_words(identity.host_name, max_text) &&
              reader.get_text(identity.listener_name, max_text) && reader.get(count) &&
              count <= max_address;
  for (int i = 0; good && i < count; ++i) {
    identity.addresses.emplace_back();
    good = reader.get_text(identity.addresses.back(), max_text);
  }
  if (!good || !reader.at_end())
    return Status(Code::RemoteError, "a process sent a malformed identity");
  return identity;
}

}  // namespace gyre::trust
