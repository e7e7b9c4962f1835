// IdServer: rank 0's side of a meeting. It answers each of the other ranks at a meeting point with
// the id, on the control thread, and is gone when all have it or the deadline has passed. The other
// side, ask_for_id, blocks its caller. Over a network anybody can connect: few are let in at a
// time, an unauthenticated client is a descriptor for two seconds at most, and makes room before
// those who named our key.
#pragma once

#include "lib/base/log.h"
#include "lib/rendezvous/id_line.h"
#include "lib/rendezvous/meeting_point.h"

#include <map>
#include <memory>
#include <set>

namespace gyre::rendezvous {

class IdServer {
 public:
  struct Meeting {
    trust::UniqueId id;
    std::uint32_t size = 0;
    std::uint32_t number = 0;  // earlier meetings of this process
    std::int64_t deadline_ns = 0;
  };
  static Result<std::shared_ptr<IdServer>> start(FileDescriptor listener, const MeetingPoint& point,
                                                 const Meeting& meeting);
  ~IdServer() { trust::wipe(answer_); }
  IdServer(const IdServer&) = delete;
  IdServer& operator=(const IdServer&) = delete;
  // Readable when there is something to do.
  int descriptor() const { return epoll_.get(); }
  // Does it; false when the server is done.
  bool serve();

 private:
  struct Visitor {
    IdLine line;
    std::int64_t end_ns;
    bool known = false;                   // it asked as a rank does
    bool answered = false;                // it closes when it has read the answer
    std::optional<std::uint32_t> rank{};  // that was given the id
  };
  using Visitors = std::map<std::uint64_t, Visitor>;  // oldest first

  IdServer() = default;
  void accept_some();
  bool make_room();
  void admit(FileDescriptor socket);
  void look_after(Visitors::iterator visit);
  // False: the visit is over.
  bool attend(Visitor& visitor);
  Status reply(Visitor& visitor, const Message& message);
  void note_end(const Visitor& visitor, const Status& why);
  std::string objection(const Question& question) const;
  void leave(Visitors::iterator visit);
  void tick();
  bool done() const { return over_ || served_.size() + 1 == meeting_.size; }
  Status watch(int operation, int descriptor, std::uint32_t events, std::uint64_t key);

  FileDescriptor epoll_, listener_, timer_;
  MeetingPoint point_;
  Meeting meeting_;
  Message answer_;
  bool accepting_ = true;
  bool over_ = false;
  std::uint64_t next_key_ = 0;
  Visitors visitors_;
  std::map<std::uint32_t, trust::Token> process_of_;  // the ranks that asked
  std::set<std::uint32_t> served_;                    // those of them that have the id
  RateLimitedWarning warnings_{ns_per_s};
};

// Asks again and again until rank 0 is there and has answered.
Result<trust::UniqueId> ask_for_id(const MeetingPoint& point, const Question& question,
                                   std::int64_t timeout_s, Wait& wait);

}  // namespace gyre::rendezvous
