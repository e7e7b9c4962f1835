#include "tools/gyre/rank_environment.h"

#include "lib/base/file_size.h"
#include "lib/base/memory_file.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" char** environ;

namespace gyre::tools {
namespace {

constexpr std::string_view rendezvous_magic = "GYRERUN1";
constexpr std::size_t secret_bytes = 32;
constexpr std::size_t token_bytes = 16;
constexpr std::size_t token_offset = rendezvous_magic.size() + secret_bytes;
constexpr std::size_t rendezvous_bytes = token_offset + token_bytes;

Variables own_environment() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != text.npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// A port that is free now, for frameworks whose ranks meet at MASTER_PORT. Gyre never binds it.
Result<int> free_port() {
  const FileDescriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (!probe.has_value() || ::bind(probe.get(), raw, length) != 0 ||
      ::getsockname(probe.get(), raw, &length) != 0)
    return Status::from_errno("looking for a free port for MASTER_PORT", errno);
  return static_cast<int>(ntohs(address.sin_port));
}

}  // namespace

Result<Rendezvous> make_rendezvous() {
  std::array<char, rendezvous_bytes> content{};
  rendezvous_magic.copy(content.data(), rendezvous_magic.size());
  char* const random = content.data() + rendezvous_magic.size();
  if (::getrandom(random, secret_bytes + token_bytes, 0) !=
      static_cast<ssize_t>(secret_bytes + token_bytes))
    return Status::from_errno("getrandom", errno);
  Rendezvous rendezvous;
  rendezvous.job_id = "gyre-run-";
  for (std::size_t i = 0; i < token_bytes; ++i)
    rendezvous.job_id +=
        fmt::format("{:02x}", static_cast<unsigned char>(content[token_offset + i]));
  rendezvous.descriptor = open_memory_file("gyre-rendezvous");
  const int descriptor = rendezvous.descriptor.get();
  const bool written =
      descriptor >= 0 && set_file_size(descriptor, content.size()).ok() &&
      ::write(descriptor, content.data(), content.size()) == static_cast<ssize_t>(content.size());
  explicit_bzero(content.data(), content.size());
  constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (!written || ::fchmod(descriptor, 0400) != 0 || ::fcntl(descriptor, F_ADD_SEALS, seals) != 0)
    return Status::from_errno("making the sealed memory of the job's secret", errno);
  return rendezvous;
}

Result<JobEnvironment> job_environment(int ranks, const Rendezvous& rendezvous,
                                       const std::vector<std::string>& overrides) {
  JobEnvironment job{own_environment(), false};
  Variables& variables = job.variables;
  for (const std::string& entry : overrides) {
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos || equals == 0)
      return invalid_argument(fmt::format("--env \"{}\" is not NAME=VALUE", entry));
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  job.limits_openmp = ranks > 1 && !variables.contains("OMP_NUM_THREADS");
  if (job.limits_openmp) variables["OMP_NUM_THREADS"] = "1";
  if (!variables.contains("MASTER_PORT")) {
    GYRE_ASSIGN(const int port, free_port());
    variables["MASTER_PORT"] = std::to_string(port);
  }
  variables.try_emplace("MASTER_ADDR", "127.0.0.1");
  variables["GYRE_JOB_ID"] = rendezvous.job_id;
  variables["GYRE_RENDEZVOUS_FD"] = std::to_string(rendezvous.descriptor.get());
  return job;
}

std::vector<std::string> rank_environment(const JobEnvironment& job, int rank, int ranks) {
  Variables variables = job.variables;
  for (const char* name : {"GYRE_RANK", "GYRE_LOCAL_RANK", "RANK", "LOCAL_RANK"})
    variables[name] = std::to_string(rank);
  for (const char* name : {"GYRE_SIZE", "GYRE_LOCAL_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
    variables[name] = std::to_string(ranks);
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

}  // namespace gyre::tools
