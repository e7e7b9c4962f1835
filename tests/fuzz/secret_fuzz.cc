// Sources of secrets and ids besides the API: the id's file, a secret file, the memory that `gyre
// run` lets ranks inherit, and a caller's store, in clear and encrypted. Input: u8 which, then the
// fields that its function below reads, then the bytes.
#include "lib/base/log.h"
#include "lib/rendezvous/id_file.h"
#include "lib/rendezvous/rendezvous.h"
#include "lib/rendezvous/run_secret.h"
#include "lib/rendezvous/store_value.h"
#include "tests/fuzz/input.h"

#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>

namespace secret_fuzz {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;

namespace {

namespace fs = std::filesystem;

// A folder, in memory where there is some; gone at the end.
class Folder {
 public:
  Folder() : path_(place() / ("gyre-fuzz-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const char* name) const { return path_ / name; }
  std::ptrdiff_t count() const { return std::distance(fs::directory_iterator(path_), {}); }

 private:
  static fs::path place() {
    return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
  }
  const fs::path path_;
};

const Folder& folder() {
  static const Folder made;
  return made;
}

trust::Token host() {
  trust::Token token;
  token.fill(7);
  return token;
}

Wait no_wait() {
  static const SystemClock clock;
  return Wait(clock, {.spins = 0, .yields = 0, .max_sleep_ns = 1}, 0);
}

enum class Place : std::uint8_t { file, missing, link, pipe, folder };

// Puts the bytes at `path`; u8 kind of place, u16 mode.
void put(fuzz::Input& input, const std::string& path) {
  const auto kind = static_cast<Place>(input.take<std::uint8_t>() % 5);
  const mode_t mode = input.take<std::uint16_t>() & 0777;
  fs::remove_all(path);
  if (kind == Place::missing) return;
  if (kind == Place::link) return fs::create_symlink("/dev/null", path);
  if (kind == Place::pipe) return GYRE_DEMAND(::mkfifo(path.c_str(), mode) == 0);
  if (kind == Place::folder) return (void)fs::create_directory(path);
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const auto bytes = input.rest();
  GYRE_DEMAND(::write(file.get(), bytes.data(), bytes.size()) ==
              static_cast<ssize_t>(bytes.size()));
  GYRE_DEMAND(::fchmod(file.get(), mode) == 0);
}

bool is_private(const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         (facts.st_mode & 0077) == 0;
}

void read_file(fuzz::Input& input) {
  const std::string path = folder().file("id");
  put(input, path);
  Wait wait = no_wait();
  const auto id = read_id_file(path, host(), std::nullopt, 0, wait);
  if (id.ok()) GYRE_DEMAND(is_private(path) && fs::file_size(path) == trust::unique_id_bytes);
}

// What lies there is replaced only if it is an id whose maker, on this host, is gone.
void replace_file(fuzz::Input& input) {
  const std::string path = folder().file("id");
  put(input, path);
  Wait wait = no_wait(), again = no_wait();
  const bool was_there = fs::exists(fs::symlink_status(path));
  const auto before = read_id_file(path, trust::Token{}, std::nullopt, 0, wait);
  {
    trust::UniqueId own;
    own.root_host = host();
    const auto file = IdFile::publish(path, own, host(), again);
    if (file.ok()) GYRE_DEMAND(!was_there || (before.ok() && before->root_host == host()));
    if (!was_there) GYRE_DEMAND(file.ok());
  }
  fs::remove_all(path);
  GYRE_DEMAND(folder().count() == 0);  // drafts are gone
}

void read_secret(fuzz::Input& input) {
  const std::string path = folder().file("secret");
  put(input, path);
  const auto secret = read_secret_file(path, 32);
  if (secret.ok())
    GYRE_DEMAND(is_private(path) && secret->size() >= 32 && secret->size() <= 4096 &&
                secret->size() == fs::file_size(path));
  fs::remove_all(path);
}

// Input: u8 seals.
void read_run(fuzz::Input& input) {
  const int seals = input.take<std::uint8_t>() & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  const FileDescriptor memory(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto bytes = input.rest();
  GYRE_DEMAND(::write(memory.get(), bytes.data(), bytes.size()) ==
              static_cast<ssize_t>(bytes.size()));
  GYRE_DEMAND(::fcntl(memory.get(), F_ADD_SEALS, seals) == 0);
  const auto secret = read_run_secret(memory.get());
  if (!secret.ok()) return;
  GYRE_DEMAND(bytes.size() == 56 && std::equal(secret->begin(), secret->end(), bytes.begin() + 8));
  GYRE_DEMAND(seals == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
  GYRE_DEMAND(::lseek(memory.get(), 0, SEEK_CUR) == static_cast<off_t>(bytes.size()));
}

// A rank that gets never asks its control plane.
class NoPlane final : public ControlPlane {
 public:
  const trust::ProcessIdentity& identity() const override { return identity_; }
  trust::TicketBook& tickets() override { return tickets_; }
  Result<trust::UniqueId> create_unique_id(Audience, const Settings&) override {
    return internal_error("none here");
  }
  Result<std::string> listen_on_this_host(const Settings&) override {
    return internal_error("none here");
  }
  Result<trust::UniqueId> create_root(const trust::Secret&) override {
    return internal_error("none here");
  }
  Result<std::shared_ptr<Membership>> join(const trust::UniqueId&, int, int, MessageBytes,
                                           const Settings&) override {
    return internal_error("none here");
  }
  Status watch(const trust::UniqueId&, int, std::function<bool()>) override {
    return internal_error("none here");
  }
  void renounce(const trust::UniqueId&, const Status&) override {}
  Status end_failed_meetings() override { return internal_error("none here"); }
  Status serve_metrics(const std::string&, int, std::function<std::string()>) override {
    return internal_error("none here");
  }
  void close() override {}

 private:
  trust::ProcessIdentity identity_;
  trust::TicketBook tickets_;
};

void ask_store(fuzz::Input& input) {
  NoPlane plane;
  Settings settings;
  settings.init_timeout_s = 0;
  const auto bytes = input.rest();
  Store store;
  store.get = [&](const std::string&, std::int64_t) -> Result<std::vector<std::uint8_t>> {
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  const auto id = exchange_id_through_store(plane, store, "key", 1, Audience::any_host, settings);
  if (id.ok()) GYRE_DEMAND(bytes.size() == trust::unique_id_bytes);
}

// What is read back is what was put there, under one secret alone. Input: u8 whether there is a
// secret, u8 change in what was put, then the bytes of an unauthenticated client.
void read_store_value(fuzz::Input& input) {
  std::optional<trust::Secret> secret;
  if (input.take_flag()) std::ranges::fill(secret.emplace(), std::uint8_t{9});
  trust::UniqueId own;
  own.root_host = host();
  const auto change = input.take<std::uint8_t>();
  auto value = std::move(store_value_of(own, secret)).value();
  value.back() ^= change;
  const auto back = id_of_store_value(value, secret);
  if (change == 0) GYRE_DEMAND(back.ok() && back->root_host == own.root_host);
  const auto bytes = input.rest();
  const auto id = id_of_store_value({bytes.begin(), bytes.end()}, secret);
  if (id.ok()) GYRE_DEMAND((bytes.size() != trust::unique_id_bytes) == secret.has_value());
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = configure_log(LogLevel::none, "").ok();
  fuzz::Input input(data, size);
  constexpr void (*parts[])(fuzz::Input&) = {read_file, replace_file, read_secret,
                                             read_run,  ask_store,    read_store_value};
  if (quiet) parts[input.take<std::uint8_t>() % std::size(parts)](input);
  return 0;
}

GYRE_FUZZ_TARGET(secret)

}  // namespace secret_fuzz
