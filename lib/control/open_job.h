// OpenJob: a job with this process's identity in it. If processes of other hosts may take part, the
// identity has an address, at which the process listens until all ranks have come and are of this
// host. A root that a launcher named listens at that name as well, while the job is open. A root's
// watches are for those who look for its id. They stay when the job has failed, so that whoever is
// late hears of it.
#pragma once

#include "lib/control/job.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace gyre::control {

class OpenJob {
 public:
  // `addresses`: where other hosts reach this process; none where none is expected. `root` as for
  // Job.
  OpenJob(ControlThread& thread, Trunks& trunks, trust::ProcessIdentity process,
          std::vector<std::string> addresses, std::shared_ptr<const trust::SessionKey> key,
          std::optional<Destination> root)
      : self(shown_at(std::move(process), std::move(addresses))),
        job({thread, trunks, *self}, std::move(key), std::move(root)),
        expects_other_hosts_(!self->addresses.empty()) {}

  bool expects_other_hosts() {
    if (job.seeks_root()) return false;
    const Roster* roster = expects_other_hosts_ ? job.roster() : nullptr;
    if (roster != nullptr)
      expects_other_hosts_ = !std::ranges::all_of(
          roster->processes, [&](const auto& one) { return can_meet_locally(one, *self); });
    return expects_other_hosts_;
  }

  const std::shared_ptr<const trust::ProcessIdentity> self;
  Job job;
  std::string root_name;                        // that a launcher gave; empty: none
  std::map<int, ControlThread::Watch> watches;  // by the descriptor

 private:
  static std::shared_ptr<const trust::ProcessIdentity> shown_at(
      trust::ProcessIdentity process, std::vector<std::string> addresses) {
    process.addresses = std::move(addresses);
    return std::make_shared<const trust::ProcessIdentity>(std::move(process));
  }

  bool expects_other_hosts_;
};

}  // namespace gyre::control
