#include "tests/support/fake_verbs/fake_verbs.h"

#include "tests/support/fake_verbs/fake_verbs_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::tests {

FakeVerbs::State* fake_verbs = nullptr;

FakeVerbs::State::State(const FakeVerbsOptions& options)
    : is_late(options.seed != 0), random(options.seed) {
  for (const FakeNicOptions& one : options.devices) {
    auto nic = std::make_unique<FakeNic>();
    nic->options = one;
    one.name.copy(nic->name, sizeof nic->name - 1);
    nics.push_back(std::move(nic));
  }
  calls["dereg_mr"] = 0;  // what gives back allocates nothing
  fill_table(table);
}

bool FakeVerbs::State::fails(std::string_view member) {
  const int count = ++calls[std::string(member)];
  const auto found = failing.find(member);
  return found != failing.end() && found->second == count;
}

FakeVerbs::FakeVerbs(const FakeVerbsOptions& options) : state_(std::make_unique<State>(options)) {
  fake_verbs = state_.get();
  if (state_->is_late) state_->thread = std::thread([this] { state_->run(); });
}

FakeVerbs::~FakeVerbs() {
  if (state_->thread.joinable()) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->ends = true;
    }
    state_->changed.notify_all();
    state_->thread.join();
  }
  fake_verbs = nullptr;
}

const loaded::Verbs& FakeVerbs::table() const { return state_->table; }

std::string FakeVerbs::live() const {
  const std::lock_guard lock(state_->mutex);
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(state_->contexts.size(), "contexts");
  add(state_->domains.size(), "domains");
  add(state_->regions.size(), "regions");
  add(state_->channels.size(), "channels");
  add(state_->queues.size(), "completion queues");
  add(state_->pairs.size(), "queue pairs");
  return text;
}

int FakeVerbs::calls(std::string_view member) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->calls.find(member);
  return found == state_->calls.end() ? 0 : found->second;
}

void FakeVerbs::fail_call(std::string_view member, int k) {
  const std::lock_guard lock(state_->mutex);
  state_->failing[std::string(member)] = state_->calls[std::string(member)] + k;
}

void FakeVerbs::fail_completion(ibv_wc_status status, int k) {
  const std::lock_guard lock(state_->mutex);
  state_->failing_status = status;
  state_->failing_completion = state_->completions + k;
}

int FakeVerbs::completions() const {
  const std::lock_guard lock(state_->mutex);
  return state_->completions;
}

int FakeVerbs::unexpected() const {
  const std::lock_guard lock(state_->mutex);
  return state_->unexpected;
}

std::uint64_t FakeVerbs::bytes_by(std::string_view device) const {
  const std::lock_guard lock(state_->mutex);
  std::uint64_t bytes = 0;
  for (const auto& nic : state_->nics)
    if (nic->options.name == device) bytes += nic->bytes;
  return bytes;
}

std::uint64_t FakeVerbs::bytes_from(const void* registered) const {
  const std::lock_guard lock(state_->mutex);
  return state_->read[registered];
}

std::uint64_t FakeVerbs::bytes_into(const void* registered) const {
  const std::lock_guard lock(state_->mutex);
  return state_->written[registered];
}

void FakeVerbs::know_gpus(const FakeGpuMemory& gpus) {
  const std::lock_guard lock(state_->mutex);
  state_->gpus = gpus;
}

std::uint64_t FakeVerbs::bytes_on_way_to_gpus() const {
  const std::lock_guard lock(state_->mutex);
  std::uint64_t bytes = 0;
  for (const auto& nic : state_->nics)
    for (const FakeNic::GpuWrite& write : nic->gpu_writes) bytes += write.bytes.size();
  return bytes;
}

void FakeVerbs::forget_dmabufs() { state_->table.reg_dmabuf_mr = nullptr; }

std::vector<MemoryRange> FakeVerbs::registered() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<MemoryRange> ranges;
  for (const auto& [key, region] : state_->regions)
    ranges.push_back({static_cast<std::byte*>(region->addr), region->length});
  return ranges;
}

void FakeVerbs::set_port(std::string_view device, int number, ibv_port_state state) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& nic : state_->nics)
    if (nic->options.name == device)
      nic->options.ports[static_cast<std::size_t>(number - 1)].state = state;
  ibv_async_event event{};
  event.event_type = state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  event.element.port_num = number;
  for (FakeContext* const context : state_->contexts)
    if (context->nic->options.name == device) state_->post_event(context, event);
  for (const auto& [pair_number, pair] : state_->pairs) {
    pair->has_lost = false;
    state_->kick(*pair);
  }
}

void FakeVerbs::hold_arrivals(std::string_view device) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& nic : state_->nics)
    if (nic->options.name == device) nic->holds_arrivals = true;
}

void FakeVerbs::hold_last_arrival(std::string_view device) {
  const std::lock_guard lock(state_->mutex);
  for (FakeCompletions* const queue : state_->queues)
    if (static_cast<FakeContext*>(queue->context)->nic->options.name == device &&
        !queue->entries.empty() && (queue->entries.back().completion.opcode & IBV_WC_RECV) != 0)
      queue->entries.back().is_held = true;
}

void FakeVerbs::at_stop(std::function<void()> act) { state_->at_stop = std::move(act); }

void FakeVerbs::show_arrivals(std::string_view device) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& nic : state_->nics)
    if (nic->options.name == device) nic->holds_arrivals = false;
  for (FakeCompletions* const queue : state_->queues)
    if (static_cast<FakeContext*>(queue->context)->nic->options.name == device)
      state_->show(*queue);
}

void FakeVerbs::cut_route(std::string_view device) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& nic : state_->nics)
    if (nic->options.name == device) nic->has_route = false;
}

void FakeVerbs::fail_device(std::string_view device) {
  const std::lock_guard lock(state_->mutex);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  for (FakeContext* const context : state_->contexts)
    if (context->nic->options.name == device) state_->post_event(context, event);
}

void FakeVerbs::give_up() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [number, pair] : state_->pairs)
    if (pair->has_lost) state_->put_into_error(*pair, IBV_WC_RETRY_EXC_ERR);
}

void FakeVerbs::break_pairs() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [number, pair] : state_->pairs)
    state_->put_into_error(*pair, IBV_WC_WR_FLUSH_ERR);
}

void FakeVerbs::overrun_queues() {
  const std::lock_guard lock(state_->mutex);
  for (FakeCompletions* const queue : state_->queues) state_->overrun(*queue);
}

void FakeVerbs::revoke_keys() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [key, region] : state_->regions) region->is_revoked = true;
}

}  // namespace gyre::tests
