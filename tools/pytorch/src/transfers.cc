// Backend's sends and receives, and its barriers.
#include "tools/pytorch/src/arguments.h"
#include "tools/pytorch/src/device_work.h"
#include "tools/pytorch/src/elements.h"
#include "tools/pytorch/src/release_gil.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <optional>

namespace gyre_torch {

using c10d::OpType;

WorkPointer ProcessGroupGyre::transfer(const Kind& kind, Tensors& tensors, bool sends, int peer,
                                       int tag) {
  const at::Tensor& tensor = only_tensor(tensors, kind.name);
  TORCH_CHECK_VALUE(tag >= 0, "gyre: ", kind.name, " takes tags from 0 on, not ", tag);
  const bool any_source = peer == GYRE_ANY_SOURCE;
  TORCH_CHECK_VALUE(any_source || (peer >= 0 && peer < getSize()), "gyre: ", kind.name,
                    " got rank ", peer, ", and there are ", getSize(), " ranks");
  const bool on_device = !tensor.device().is_cpu();
  TORCH_CHECK_VALUE(!on_device || (tag == 0 && !any_source), "gyre: ", kind.name,
                    " of a tensor on ", tensor.device(),
                    " takes a rank and no tag: there, messages from one rank to ",
                    "another are matched by order alone");
  const Target target(tensor, sends);
  Operation operation;
  operation.outputs = tensors;
  operation.source = std::make_shared<int>(any_source ? -1 : peer);
  int* const source = operation.source.get();
  operation.call = [target, on_device, sends, peer, tag, source](gyreComm_t comm,
                                                                 gyreStream_t stream) {
    const Elements elements = to_move(target.block());
    if (on_device && sends)
      return gyreSend(target.data(), elements.count, elements.type, peer, comm, stream);
    if (on_device)
      return gyreRecv(target.data(), elements.count, elements.type, peer, comm, stream);
    if (sends)
      return gyreSendTagged(target.data(), elements.count, elements.type, peer, tag, comm, stream);
    return gyreRecvTagged(target.data(), elements.count, elements.type, peer, tag, source, nullptr,
                          comm, stream);
  };
  if (!sends) operation.deliver = delivery_of(target);
  const ReleaseGil released;
  const std::shared_ptr<CommQueue> queue = queues_.open(tensor.device(), Use::transfers);
  if (is_gathered(operation, true)) return nullptr;
  const std::lock_guard order(queue->order());
  operation.description = describe(kind, tensors, true);
  return queue->begin(std::move(operation), CommQueue::Order::side_by_side);
}

WorkPointer ProcessGroupGyre::send(Tensors& tensors, int peer, int tag) {
  return transfer({OpType::SEND, "send", true, Milliseconds(0)}, tensors, true, peer, tag);
}

WorkPointer ProcessGroupGyre::recv(Tensors& tensors, int peer, int tag) {
  TORCH_CHECK_VALUE(peer >= 0, "gyre: recv got rank ", peer);
  return transfer({OpType::RECV, "recv", true, Milliseconds(0)}, tensors, false, peer, tag);
}

WorkPointer ProcessGroupGyre::recvAnysource(Tensors& tensors, int tag) {
  return transfer({OpType::RECVANYSOURCE, "recvAnySource", true, Milliseconds(0)}, tensors, false,
                  GYRE_ANY_SOURCE, tag);
}

namespace {

// Older PyTorch names no device; then it is the host, unless the group is bound to one.
template <typename Options>
std::optional<at::Device> named_in(const Options& options) {
  if constexpr (requires { options.device.has_value(); })
    if (options.device) return *options.device;
  return std::nullopt;
}

bool has_cuda_devices() {
  return c10::impl::hasDeviceGuardImpl(at::kCUDA) &&
         c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() > 0;
}

}  // namespace

// PyTorch may pass a device's number without its type, and programs give one (their rank) on hosts
// without devices, too: there it names nothing, as with gloo. The host waits for a device's
// barrier, too, unless it is part of a graph.
WorkPointer ProcessGroupGyre::barrier(const c10d::BarrierOptions& options) {
  Operation operation;
  operation.call = [](gyreComm_t comm, gyreStream_t stream) { return gyreBarrier(comm, stream); };
  const std::optional<at::Device> named = named_in(options);
  if (named && !named->is_cpu())
    operation.device = *named;
  else if (!named && !options.device_ids.empty() && has_cuda_devices())
    operation.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids[0]));
  else if (!named && getBoundDeviceId())
    operation.device = *getBoundDeviceId();
  if (operation.device.is_cuda() && !operation.device.has_index())  // the current one
    operation.device = c10::impl::VirtualGuardImpl(operation.device.type()).getDevice();
  const bool is_waited_for = !is_async(options);
  auto work =
      submit({OpType::BARRIER, "barrier", !is_waited_for, options.timeout}, std::move(operation));
  if (auto* const of_device = dynamic_cast<DeviceWork*>(work.get());
      of_device != nullptr && is_waited_for) {
    const ReleaseGil released;
    of_device->wait_on_host(options.timeout);
  }
  return work;
}

// Each rank sets a key; rank 0 waits for all of them and then tells the verdict by one more. The
// words are those of gloo's, which people and programs look for. Keys stay in the store, so they
// name the meeting: a later group under the same prefix has others.
void ProcessGroupGyre::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) {
  const ReleaseGil released;
  const std::int64_t meeting = queues_.open(at::kCPU, Use::collectives)->communicator().meeting();
  std::uint64_t number = 0;
  Milliseconds limit{};
  {
    const std::lock_guard lock(mutex_);
    number = monitored_++;
    limit = options.timeout != c10d::kUnsetTimeout ? options.timeout : options_->timeout;
  }
  const std::string prefix = c10::str("gyre/monitored_barrier/", meeting, "/", number, "/");
  const auto fail = [&](const std::string& text) {
    C10_THROW_ERROR(DistBackendError, c10::str("gyre: rank ", getRank(), " of ", getSize(),
                                               ": monitored barrier number ", number, ": ", text));
  };
  const std::string verdict_key = prefix + "verdict";
  if (getRank() != 0) {
    const auto reached_alone = [&](const std::string& why) {
      fail(c10::str("Rank ", getRank(), " successfully reached monitoredBarrier, but received ",
                    "errors while waiting for send/recv from rank 0: ", why));
    };
    store_->set(prefix + std::to_string(getRank()), std::vector<std::uint8_t>{1});
    try {
      store_->wait({verdict_key}, limit);
    } catch (const std::exception& error) {
      reached_alone(c10::str("it did not answer within ", limit.count(), " ms: ", error.what()));
    }
    const std::vector<std::uint8_t> verdict = store_->get(verdict_key);
    if (verdict.size() > 1) reached_alone(std::string(verdict.begin() + 1, verdict.end()));
    return;
  }
  const std::string verdict = missing_ranks(prefix, limit, wait_for_all);
  std::vector<std::uint8_t> told{1};
  told.insert(told.end(), verdict.begin(), verdict.end());
  store_->set(verdict_key, told);
  if (!verdict.empty()) fail(verdict);
}

// Rank 0's verdict of a monitored barrier; empty: all have come.
std::string ProcessGroupGyre::missing_ranks(const std::string& prefix, Milliseconds limit,
                                            bool wait_for_all) {
  if (limit <= Milliseconds(0))
    return c10::str("Rank 0 timed out in monitoredBarrier after ", limit.count(), " ms");
  const auto until = std::chrono::steady_clock::now() + limit;
  std::string missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    const auto left =
        std::chrono::duration_cast<Milliseconds>(until - std::chrono::steady_clock::now());
    try {
      store_->wait({prefix + std::to_string(rank)}, std::max(left, Milliseconds(1)));
    } catch (const std::exception&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      if (!wait_for_all) break;
    }
  }
  if (missing.empty()) return missing;
  return c10::str(wait_for_all ? "Ranks " : "Rank ", missing,
                  " failed to pass monitoredBarrier in ", limit.count(), " ms");
}

}  // namespace gyre_torch
