// RDMA in a build without the header of libibverbs: it reaches nobody, and says why.
#include "transports/rdma/rdma.h"

namespace gyre::transport {
namespace {

constexpr const char* why =
    "this build has no RDMA: infiniband/verbs.h of libibverbs-dev was not there, or -Dverbs is "
    "disabled";

class AbsentRdmaTransport final : public Transport {
 public:
  std::string_view name() const override { return "rdma"; }
  Reachability reach(const trust::ProcessIdentity&) const override { return {.reason = why}; }
  Result<Listening> listen(const LinkKey&, const FifoShape&,
                           const trust::ProcessIdentity&) override {
    return invalid_usage(why);
  }
  Result<std::unique_ptr<Connection>> connect(const LinkKey& key, const FifoShape&,
                                              const Endpoint&) override {
    return invalid_usage(why).blame({key.peer});
  }
};

}  // namespace

std::unique_ptr<Transport> make_rdma_transport(const TransportEnvironment&) {
  return std::make_unique<AbsentRdmaTransport>();
}

}  // namespace gyre::transport
