// Makes a communicator's options from the caller's config and the environment, and chooses its
// device. The first call configures the process's log.
#pragma once

#include "lib/comm/communicator.h"
#include <gyre/gyre.h>

namespace gyre::comm {

// `device`: as the config says, or GYRE_CONFIG_UNDEF_INT.
Result<CommunicatorOptions> make_options(const gyreConfig_t* given, int* device);
// The device that a communicator without a word of its own works on: the thread's current one, if
// there is a driver and this build has kernels; else none.
int default_device();
Status choose_device(CommunicatorOptions& options, int device);
// For a communicator that is to be made.
Result<CommunicatorOptions> make_options(const gyreConfig_t* given);
// For one that is split off: what `given` leaves out is the parent's.
Result<CommunicatorOptions> make_child_options(const gyreConfig_t* given,
                                               const CommunicatorOptions& parent);

}  // namespace gyre::comm
