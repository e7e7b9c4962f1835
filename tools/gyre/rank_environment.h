// A rank's environment variables, for Gyre and in torchrun's names, and the sealed memory that
// carries the job's secret. The secret is never in an environment, an argument or a log.
//
//   Rendezvous  memory of 8 bytes "GYRERUN1", 32 bytes secret, 16 bytes job token, inherited by
//               every rank under one descriptor number; lib/rendezvous reads it
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <map>
#include <string>
#include <vector>

namespace gyre::tools {

struct Rendezvous {
  FileDescriptor descriptor;
  std::string job_id;  // made of the token, which is public
};
Result<Rendezvous> make_rendezvous();

using Variables = std::map<std::string, std::string>;

struct JobEnvironment {
  Variables variables;  // the same for every rank
  // One OpenMP thread for each rank because nobody chose: several ranks with as many threads as
  // cores each would run against each other.
  bool limits_openmp = false;
};
// This process's environment and the job's place in it; `overrides` are NAME=VALUE.
Result<JobEnvironment> job_environment(int ranks, const Rendezvous& rendezvous,
                                       const std::vector<std::string>& overrides);
// The same with the rank's own variables, as exec takes them.
std::vector<std::string> rank_environment(const JobEnvironment& job, int rank, int ranks);

}  // namespace gyre::tools
