#include "lib/transport/transport.h"

#include "lib/base/shortage.h"

#include <algorithm>

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

std::string_view announced_part(std::string_view all, std::string_view first_word) {
  while (!all.empty()) {
    const std::size_t end = std::min(all.find(';'), all.size());
    const std::string_view part = all.substr(0, end);
    if (part.starts_with(first_word)) return part.substr(first_word.size());
    all.remove_prefix(std::min(end + 1, all.size()));
  }
  return {};
}

}  // namespace gyre::transport
