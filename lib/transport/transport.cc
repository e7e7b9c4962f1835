#include "lib/transport/transport.h"

namespace gyre::transport {

Status link_failure(Status why, std::string_view what, int peer) {
  const bool own = why.code() == Code::SystemError || why.code() == Code::InternalError;
  Status told = std::move(why).while_doing(what);
  return own ? told : std::move(told).blame({peer});
}

}  // namespace gyre::transport
