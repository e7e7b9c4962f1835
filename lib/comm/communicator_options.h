// CommunicatorOptions: the options of a communicator, from the caller's config and the settings.
#pragma once

#include "lib/base/log.h"
#include "lib/base/settings.h"
#include "lib/base/state_page.h"

#include <cstdint>
#include <memory>
#include <string>

namespace gyre::exec {
class CudaDevice;
}
namespace gyre::loaded {
struct CudaDriver;
}

namespace gyre::comm {

struct CommunicatorOptions {
  Settings settings;
  bool blocking = true;
  bool reproducible = false;
  std::int64_t timeout_ns = 0;
  std::string name;
  std::string label;  // the caller's name for it
  // What the log takes this process for; a split's ranks are known by those of its parent.
  std::shared_ptr<const LoggedRank> logged_rank;
  StatePage* state_page = nullptr;  // of the process: where tools see the communicator
  // The GPU whose memory it works on; null: host memory.
  std::shared_ptr<const exec::CudaDevice> device;
  // How many blocks of a GPU it may use; make_options sets them.
  std::uint32_t max_channels = 0, min_channels = 1;
  // Tells what memory is of a device; null where nobody in this process uses CUDA.
  const loaded::CudaDriver* driver = nullptr;
};

}  // namespace gyre::comm
