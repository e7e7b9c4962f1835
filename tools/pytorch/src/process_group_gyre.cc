#include "tools/pytorch/src/process_group_gyre.h"

#include "tools/pytorch/src/release_gil.h"
#include "tools/pytorch/src/shared_memory.h"

#include <c10/util/Exception.h>

namespace gyre_torch {
namespace {

c10::intrusive_ptr<TorchBackend::Options> make_options(Milliseconds timeout,
                                                       const std::string& group) {
  auto options =
      c10::make_intrusive<TorchBackend::Options>(ProcessGroupGyre::backend_name, timeout);
  options->group_name = group;
  return options;
}

}  // namespace

ProcessGroupGyre::ProcessGroupGyre(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   Milliseconds timeout, const std::string& group)
    : TorchBackend(rank, size),
      store_(store),
      options_(make_options(timeout, group)),
      queues_(store, {.rank = rank,
                      .size = size,
                      .group = group,
                      .timeout = std::make_shared<GroupTimeout>(timeout)}) {}

ProcessGroupGyre::~ProcessGroupGyre() { leave(); }

void ProcessGroupGyre::leave() {
  const ReleaseGil released;  // works that end may need it
  averages_.clear();
  queues_.leave();
}

void ProcessGroupGyre::shutdown() { leave(); }

void ProcessGroupGyre::abort() {
  if (!queues_.are_of_this_process()) return;
  const ReleaseGil released;
  queues_.membership().hooks->call();
  for (const std::shared_ptr<CommQueue>& queue : queues_.all()) queue->communicator().abort();
}

void ProcessGroupGyre::registerAbortHook(std::int64_t id, AbortHooks::Hook hook) {
  const ReleaseGil released;
  queues_.membership().hooks->add(id, std::move(hook));
}

void ProcessGroupGyre::unregisterAbortHook(std::int64_t id) {
  const ReleaseGil released;
  queues_.membership().hooks->remove(id);
}

void ProcessGroupGyre::registerOnCompletionHook(CompletionHook::Hook&& hook) {
  const ReleaseGil released;
  queues_.membership().completions->add(std::move(hook));
  onCompletionHook_ = [](const auto&) {};  // hasHooks() asks for it, and nothing else
}

void ProcessGroupGyre::waitForPendingWorks() {
  if (!queues_.are_of_this_process()) return;  // a forked child leaves its parent's group so
  const ReleaseGil released;
  const auto until = std::chrono::steady_clock::now() + queues_.membership().timeout->load();
  for (const std::shared_ptr<CommQueue>& queue : queues_.all())
    TORCH_CHECK(queue->drain(left_until(until)), "gyre: rank ", getRank(),
                ": operations of the process group have not ended within its timeout");
  queues_.membership().completions->wait_for_pending();
}

ErrorType ProcessGroupGyre::getError() {
  if (!queues_.are_of_this_process()) return ErrorType::COMM_ERROR;
  const ReleaseGil released;
  for (const std::shared_ptr<CommQueue>& queue : queues_.all()) {
    gyreResult_t error = gyreSuccess;
    const gyreComm_t comm = queue->communicator().get();
    if (gyreCommGetAsyncError(comm, &error) != gyreSuccess) return ErrorType::COMM_ERROR;
    if (error == gyreTimeout) return ErrorType::TIMEOUT;
    if (error == gyreRemoteError) return ErrorType::REMOTE_ERROR;
    if (error != gyreSuccess && error != gyreInProgress) return ErrorType::COMM_ERROR;
  }
  return ErrorType::SUCCESS;
}

void ProcessGroupGyre::setTimeout(Milliseconds timeout) {
  queues_.check_process();
  const Milliseconds in_force = timeout_in_force("GYRE_TIMEOUT", timeout);
  const ReleaseGil released;
  for (const std::shared_ptr<CommQueue>& queue : queues_.all())
    queue->communicator().set_timeout(in_force);
  *queues_.membership().timeout = in_force;
  const std::lock_guard lock(mutex_);
  options_->timeout = in_force;
}

std::uint64_t ProcessGroupGyre::getSequenceNumberForGroup() {
  const ReleaseGil released;
  const std::lock_guard lock(mutex_);
  return sequence_;
}

void ProcessGroupGyre::eagerConnectSingleDevice(at::Device device) {
  const ReleaseGil released;
  (void)queues_.open(device, Use::collectives);
}

// Part of a coalesced block, to be carried out at its end.
bool ProcessGroupGyre::is_gathered(Operation& operation, bool is_transfer) {
  const std::lock_guard lock(mutex_);
  auto& parts = is_transfer ? coalesced_.transfers : coalesced_.collectives;
  if (coalescing_) parts.push_back(std::move(operation));
  return coalescing_;
}

Description ProcessGroupGyre::describe(const Kind& kind, const Tensors& shown, bool is_transfer) {
  Description made;
  const std::lock_guard lock(mutex_);
  made.type = kind.type;
  made.sequence = is_transfer ? ++transfers_begun_ : ++sequence_;
  made.timeout = kind.timeout > Milliseconds(0) ? kind.timeout : options_->timeout;
  made.text = c10::str(kind.name, " number ", made.sequence - 1);
  std::int64_t count = 0;
  for (const at::Tensor& tensor : shown) count += tensor.numel();
  if (!shown.empty())
    made.text += c10::str(" of ", count, " ", shown[0].scalar_type(), " elements");
  made.title = "gyre:" + std::string(kind.name);
  return made;
}

// A limit of its own is the host's: on a device nothing waits for it, but for a barrier.
WorkPointer ProcessGroupGyre::submit(const Kind& kind, Operation operation) {
  const ReleaseGil released;
  const at::Device device = device_of(operation);
  const std::shared_ptr<CommQueue> queue = queues_.open(device, Use::collectives);
  if (is_gathered(operation, false)) return nullptr;
  std::unique_lock order(queue->order());
  operation.description = describe(kind, operation.outputs, false);
  const Milliseconds limit = operation.description.timeout;
  const bool has_own_limit = device.is_cpu() && limit < queues_.membership().timeout->load();
  if (!kind.is_async && !has_own_limit) return queue->carry_out(std::move(operation));
  auto work = queue->begin(std::move(operation), CommQueue::Order::in_line);
  order.unlock();
  if (!kind.is_async) work->wait(limit);
  return work;
}

at::Tensor ProcessGroupGyre::allocateTensor(long count, at::TensorOptions options) {
  const ReleaseGil released;
  return allocate_shared(count, options);
}

// What an exception left of a block before is forgotten.
void ProcessGroupGyre::startCoalescing() {
  const ReleaseGil released;
  const std::lock_guard lock(mutex_);
  coalescing_ = true;
  coalesced_ = {};
}

// One group, hence one work.
WorkPointer ProcessGroupGyre::endCoalescing() {
  const ReleaseGil released;
  CoalescedCalls parts;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(coalescing_, "gyre: no coalescing has begun");
    coalescing_ = false;
    parts = std::exchange(coalesced_, {});
  }
  const bool transfers = !parts.transfers.empty();
  if (!transfers && parts.collectives.empty()) return nullptr;
  TORCH_CHECK(!transfers || parts.collectives.empty(),
              "gyre: a coalesced block holds either collectives or sends and receives");
  Operation all = together(std::move(transfers ? parts.transfers : parts.collectives));
  const std::shared_ptr<CommQueue> queue =
      queues_.open(device_of(all), transfers ? Use::transfers : Use::collectives);
  const std::lock_guard order(queue->order());
  all.description = describe(
      {c10d::OpType::COALESCED, transfers ? "send_recv" : "coalesced", true, Milliseconds(0)},
      all.outputs, transfers);
  return queue->begin(std::move(all),
                      transfers ? CommQueue::Order::side_by_side : CommQueue::Order::in_line);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupGyre::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  const Milliseconds timeout = options != nullptr ? options->timeout : options_->timeout;
  return c10::make_intrusive<ProcessGroupGyre>(
      store, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
      timeout_in_force("GYRE_TIMEOUT", timeout),
      options != nullptr ? options->group_name : std::string());
}

}  // namespace gyre_torch
