#include "lib/transport/transport.h"

#include "lib/base/shortage.h"

namespace gyre::transport {

Status link_failure(Status why, std::string_view what, int peer) {
  const bool own = why.code() == Code::SystemError || why.code() == Code::InternalError;
  Status told = std::move(why).while_doing(what);
  return own ? told : std::move(told).blame({peer});
}

Status failure_on_the_way(std::string call, int error_number) {
  Status failed = Status::from_errno(std::move(call), error_number);
  return is_shortage(error_number) ? failed
                                   : Status(Code::RemoteError, std::string(failed.message()));
}

}  // namespace gyre::transport
