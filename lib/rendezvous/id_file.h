// IdFile: ranks meet through a file (GYRE_RENDEZVOUS_FILE). Rank 0 writes the 128 bytes of the id,
// the others read them. The file appears whole or not at all, belongs to our user, and nobody else
// can read it. Rank 0 holds a lock on it as long as it lives. So a file of a dead job on this host
// is recognised: the others ignore it, and rank 0 replaces it.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/base/wait.h"
#include "lib/trust/unique_id.h"

#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace gyre::rendezvous {

// Rank 0's file; removed with this, if it is still the same file and we are not a forked child.
class IdFile {
 public:
  static Result<std::shared_ptr<IdFile>> publish(const std::string& path, const trust::UniqueId& id,
                                                 const trust::Token& this_host, Wait& wait);
  ~IdFile();
  IdFile(const IdFile&) = delete;
  IdFile& operator=(const IdFile&) = delete;

 private:
  IdFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  const FileDescriptor file_;
  const pid_t owner_ = getpid();
};

// Waits for rank 0's file, with another id than `tried`.
Result<trust::UniqueId> read_id_file(const std::string& path, const trust::Token& this_host,
                                     const std::optional<trust::UniqueId>& tried,
                                     std::int64_t timeout_s, Wait& wait);

// The bytes of a file of secrets: regular, ours, closed to others, at least `least` bytes. To be
// wiped.
Result<std::vector<std::uint8_t>> read_secret_file(const std::string& path, std::size_t least);

}  // namespace gyre::rendezvous
