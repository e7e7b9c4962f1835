// LauncherStore: the launcher's key-value space (launcher_line.h) as a store through which an id
// travels. There is one for the process, since a launcher speaks to a process over one line.
#pragma once

#include "lib/rendezvous/key_value_store.h"
#include "lib/rendezvous/launch_place.h"
#include "lib/rendezvous/launcher_line.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gyre::rendezvous {

class LauncherStore {
 public:
  LauncherStore() = default;
  // Over this line: the tests'.
  explicit LauncherStore(std::unique_ptr<LauncherLine> line) : line_(std::move(line)) {}
  LauncherStore(const LauncherStore&) = delete;
  LauncherStore& operator=(const LauncherStore&) = delete;

  // Which all ranks of the job use at the same time, once for each call of this. It lives as long
  // as this object.
  Result<Store> open(const LaunchPlace& place, std::int64_t limit_ms);
  // At exit(): tells the launcher, if it was asked anything, that this end is no failure. Not where
  // another thread is still inside.
  void finish();

 private:
  Status put(const std::string& key, const std::vector<std::uint8_t>& value, std::int64_t limit_ms);
  Result<std::vector<std::uint8_t>> get(const std::string& key, std::int64_t limit_ms);
  Status note(Status status);

  std::mutex mutex_;
  std::unique_ptr<LauncherLine> line_;
  // An answer that did not come in time may come when another one is due.
  Status broken_;
  int exchanges_ = 0;  // keys differ by it: nothing may be put twice under one
};

}  // namespace gyre::rendezvous
