// The variables by which launchers tell a process its rank. Input: lines NAME=VALUE.
#include "lib/rendezvous/rendezvous.h"
#include "tests/fuzz/environment.h"
#include "tests/fuzz/input.h"

namespace launch_place_fuzz {

using namespace gyre;

int take_input(const std::uint8_t* data, std::size_t size) {
  const auto environment = fuzz::environment_of({data, size});
  const auto settings = parse_settings(environment, nullptr);
  if (!settings.ok()) return 0;
  std::vector<std::string> warnings;
  const auto place = rendezvous::read_launch_place(*settings, environment, &warnings);
  const auto unheard = rendezvous::read_launch_place(*settings, environment, nullptr);
  GYRE_DEMAND(place.ok() == unheard.ok());
  if (!place.ok()) {
    GYRE_DEMAND(place.status().code() == Code::InvalidUsage);
    return 0;
  }
  GYRE_DEMAND(place->size >= 1 && place->rank >= 0 && place->rank < place->size);
  GYRE_DEMAND(place->local_size >= 1 && place->local_size <= place->size);
  GYRE_DEMAND(place->local_rank >= 0 && place->local_rank < place->local_size);
  GYRE_DEMAND(!place->several_hosts || place->size > 1);
  GYRE_DEMAND(!place->source.empty());
  GYRE_DEMAND(settings->job_id.empty() || place->job_id == settings->job_id);
  return 0;
}

GYRE_FUZZ_TARGET(launch_place)

}  // namespace launch_place_fuzz
