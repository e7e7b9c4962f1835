// Backend: a c10d process group over Gyre. Collectives use one communicator for each device that
// has tensors, in the order of their calls. Sends and receives use a second one (comm_queues.h).
// CPU and CUDA devices are served alike; the differences are in the queues.
#pragma once

#include "tools/pytorch/src/comm_queues.h"
#include "tools/pytorch/src/torch_versions.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gyre_torch {

using TensorLists = std::vector<Tensors>;
using Milliseconds = std::chrono::milliseconds;

class ProcessGroupGyre final : public TorchBackend {
 public:
  static constexpr const char* backend_name = "gyre";

  ProcessGroupGyre(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                   Milliseconds timeout, const std::string& group);
  ~ProcessGroupGyre() override;

  const std::string getBackendName() const override { return backend_name; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(Milliseconds timeout) override;
  std::uint64_t getSequenceNumberForGroup() override;
  void setSequenceNumberForGroup() override {}
  void enableCollectivesTiming() override {}  // always on

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;

  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                 const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ScatterOptions& options) override;

  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  // Through the store, so that a rank that hangs in a collective is found too.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override;

  // Else a device's communicators are made by the first call with a tensor there.
  void eagerConnectSingleDevice(at::Device device) override;

  // Memory that peers on this host reach directly; FSDP2 asks for it if it is told to
  // (set_allocate_memory_from_process_group_for_comm).
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long count, at::TensorOptions options) override;

  // The mean over the ranks, in place: begun here, and carried out by the thread that finishes,
  // with all others that were begun. No thread is woken, and ranks that finish first reduce what
  // one that computes still has begun. In one order on all ranks; one thread at a time.
  void begin_average(const at::Tensor& tensor);
  // Throws the first error.
  void finish_averages();

  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;
  // Ends what is under way with an error, here and on all ranks. Any thread; returns within 1 s.
  void abort() override;
  // Hooks are called before that, and when an operation fails.
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, AbortHooks::Hook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
  // The hook is called after each operation that has ended well, on another thread.
  void registerOnCompletionHook(CompletionHook::Hook&& hook) override;
  // Throws if what is under way does not end within the group's timeout.
  void waitForPendingWorks() override;
  // Waits for what is under way, then leaves.
  void shutdown() override;
  ErrorType getError() override;

 private:
  // What kind of call it is, as the caller gave it.
  struct Kind {
    c10d::OpType type;
    const char* name;  // "all_reduce"
    bool is_async;
    Milliseconds timeout;
  };
  // Numbers are the same on all ranks for collectives, and each rank's own for transfers.
  Description describe(const Kind& kind, const Tensors& shown, bool is_transfer);
  // Its place in the order of collectives; carried out or begun.
  WorkPointer submit(const Kind& kind, Operation operation);
  bool is_gathered(Operation& operation, bool is_transfer);
  WorkPointer transfer(const Kind& kind, Tensors& tensors, bool sends, int peer, int tag);
  std::string missing_ranks(const std::string& prefix, Milliseconds limit, bool wait_for_all);
  void leave();

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  CommQueues queues_;
  std::mutex mutex_;            // of what follows, and never held while anything waits
  std::uint64_t sequence_ = 0;  // of collectives
  std::uint64_t transfers_begun_ = 0;
  std::uint64_t monitored_ = 0;  // barriers
  bool coalescing_ = false;
  struct CoalescedCalls {
    std::vector<Operation> collectives, transfers;
  };
  CoalescedCalls coalesced_;
  // Begun and not finished; of the thread that does.
  std::vector<std::pair<std::shared_ptr<HostCommQueue>, WorkPointer>> averages_;
};

}  // namespace gyre_torch
