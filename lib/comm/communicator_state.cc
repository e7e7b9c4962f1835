#include "lib/comm/communicator_state.h"

#include "lib/comm/backend.h"
#include "lib/links/message_keys.h"

namespace gyre::comm {

std::uint64_t communicator_hash(const trust::UniqueId& id) {
  std::uint64_t hash = 0;
  for (const char c : trust::short_name(id)) hash = hash_with(hash, static_cast<unsigned char>(c));
  return hash;
}

CommunicatorState::~CommunicatorState() {
  if (witness_ != nullptr) witness_->end();
}

void CommunicatorState::answer_peers() {
  witness_ = std::make_shared<Witness>(rank_state);
  const auto answer = [witness = witness_, mine = std::weak_ptr(membership)](
                          int from,
                          const control::MessageBytes& question) -> std::optional<Status> {
    if (const auto ours = mine.lock()) witness->answer(*ours, from, question);
    return std::nullopt;
  };
  membership->listen(message_key(MessageTopic::question), answer);
  if (!options.settings.check_calls) return;
  call_history = std::make_shared<CallHistory>(rank);
  membership->listen(message_key(MessageTopic::call),
                     [call_history = call_history](int from, const control::MessageBytes& message) {
                       return call_history->compare(from, message);
                     });
}

const trust::ProcessIdentity& CommunicatorState::identity_of(int of_rank) const {
  const control::Roster& roster = membership->roster();
  return roster.processes[roster.process_of_rank[static_cast<std::size_t>(of_rank)]];
}

// What the answer will be is for the peer's side to say: it ends the communicator on all ranks.
void CommunicatorState::ask(int peer) {
  if (peer != rank && call_history != nullptr)
    (void)membership->send(peer, message_key(MessageTopic::call), call_history->question());
}

bool CommunicatorState::others_have_left() const {
  for (int other = 0; other < size; ++other)
    if (other != rank && !membership->has_left(other)) return false;
  return size > 1;
}

}  // namespace gyre::comm
