// IdServer: rank 0's side of a meeting. It sends the id to each of the other ranks that asks at a
// rendezvous address, on the control thread. It ends when all have the id or the deadline has
// passed. The other side, ask_for_id, blocks its caller. Over a network anybody can connect. So
// only a few clients are admitted at a time, and an unauthenticated one costs a descriptor for two
// seconds at most. It is the first to make room, before clients that named our key.
#pragma once

#include "lib/base/log.h"
#include "lib/rendezvous/id_connection.h"
#include "lib/rendezvous/rendezvous_address.h"

#include <map>
#include <memory>
#include <optional>
#include <set>

namespace gyre::rendezvous {

class IdServer {
 public:
  struct IdExchange {
    trust::UniqueId id;
    std::uint32_t size = 0;
    std::uint32_t number = 0;  // earlier meetings of this process
    std::int64_t deadline_ns = 0;
  };
  static Result<std::shared_ptr<IdServer>> start(FileDescriptor listener,
                                                 const RendezvousAddress& point,
                                                 const IdExchange& meeting);
  ~IdServer() { trust::wipe(answer_); }
  IdServer(const IdServer&) = delete;
  IdServer& operator=(const IdServer&) = delete;
  // Readable when there is something to do.
  int descriptor() const { return epoll_.get(); }
  // Does it; false when the server is done.
  bool serve();

 private:
  struct IdClient {
    IdConnection line;
    std::int64_t end_ns;
    bool known = false;                   // it asked as a rank does
    bool answered = false;                // it closes when it has read the answer
    std::optional<std::uint32_t> rank{};  // that was given the id
  };
  using IdClients = std::map<std::uint64_t, IdClient>;  // oldest first

  IdServer() = default;
  void accept_some();
  bool make_room();
  void admit(FileDescriptor socket);
  void look_after(IdClients::iterator visit);
  // False: the visit is over.
  bool attend(IdClient& client);
  Status reply(IdClient& client, const IdMessage& message);
  void note_end(const IdClient& client, const Status& why);
  std::string objection(const IdRequest& request) const;
  void leave(IdClients::iterator visit);
  void tick();
  bool done() const { return over_ || served_.size() + 1 == meeting_.size; }
  Status watch(int operation, int descriptor, std::uint32_t events, std::uint64_t key);

  FileDescriptor epoll_, listener_, timer_;
  RendezvousAddress point_;
  IdExchange meeting_;
  IdMessage answer_;
  bool accepting_ = true;
  bool over_ = false;
  std::uint64_t next_key_ = 0;
  IdClients clients_;
  std::map<std::uint32_t, trust::Token> process_of_;  // the ranks that asked
  std::set<std::uint32_t> served_;                    // those of them that have the id
  RateLimitedWarning warnings_{ns_per_s};
};

// Asks again and again until rank 0 is there and has answered, with another id than `tried`.
Result<trust::UniqueId> ask_for_id(const RendezvousAddress& point, const IdRequest& request,
                                   const std::optional<trust::UniqueId>& tried,
                                   std::int64_t timeout_s, Wait& wait);

}  // namespace gyre::rendezvous
