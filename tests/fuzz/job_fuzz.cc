// A job and its trunks. The peers know the secret and send anything in any order, to the root that
// ranks join, or to a process that joins. Sessions and the control thread are real; deadlines pass
// by moving the clock. For every input, the job's ranks are joining, joined with a consistent
// roster, or failed with a cause, and the job's own messages can be decoded. Input: u8 role, u8
// size, u8 ranks here, then acts: u8 kind, u8 link, and what it needs.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/control/cause.h"
#include "lib/control/job.h"
#include "lib/trust/address.h"
#include "tests/fuzz/input.h"

#include <fmt/core.h>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace job_fuzz {

using namespace gyre;
using namespace gyre::control;
using trust::SecureSession;
using trust::SessionRole;

namespace {

constexpr std::size_t max_links = 6;
constexpr std::uint32_t max_processes = 24;
constexpr int max_acts = 40;
constexpr std::size_t spoilt = 128;  // a link's number from here on: see act

trust::Token token_of(std::uint32_t process) {
  trust::Token token;
  token.fill(static_cast<std::uint8_t>(0x40 + process));
  return token;
}

// What all runs share: the control thread, the key, and the listener of every other process.
struct Stage {
  std::shared_ptr<ControlThread> thread;
  std::unique_ptr<trust::Tls> tls;
  std::shared_ptr<const trust::SessionKey> key;
  trust::ProcessIdentity self;
  std::vector<FileDescriptor> listeners;  // by process
  FileDescriptor arrivals;                // an epoll of them
  Settings settings;

  Stage() {
    (void)configure_log(LogLevel::none, "");
    thread = std::move(ControlThread::start()).value();
    tls = std::move(trust::Tls::create()).value();
    key = std::move(trust::derive_control_key(trust::UniqueId())).value();
    self = process(0);
    self.process.fill(0x11);
    self.listener_name += "-self";
    arrivals = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    for (std::uint32_t number = 0; number < max_processes; ++number) {
      listeners.push_back(std::move(trust::listen_at(listener(number))).value());
      epoll_event event{.events = EPOLLIN, .data = {.fd = listeners.back().get()}};
      GYRE_DEMAND(epoll_ctl(arrivals.get(), EPOLL_CTL_ADD, event.data.fd, &event) == 0);
    }
    settings.init_timeout_s = 60;
  }
  // The socket of whoever was dialed; none if nobody was.
  FileDescriptor answer() const {
    epoll_event event;
    if (epoll_wait(arrivals.get(), &event, 1, 0) != 1) return {};
    return FileDescriptor(::accept4(event.data.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }
  trust::SocketAddress listener(std::uint32_t number) const {
    return *trust::abstract_address(process(number).listener_name);
  }
  trust::ProcessIdentity process(std::uint32_t number) const {
    trust::ProcessIdentity identity;
    identity.process = token_of(number);
    identity.host.fill(0x22);
    identity.host_name = "host";
    identity.listener_name = fmt::format("gyre-fuzz-job-{}-{}", getpid(), number);
    return identity;
  }
};

const Stage& stage() {
  static const Stage made;
  return made;
}

// The other end of a trunk of the job's process, and of the first link on it.
class Peer {
 public:
  Peer(FileDescriptor socket, SessionRole role, std::uint32_t number)
      : process(number), role_(role) {
    session_ =
        std::move(SecureSession::start(*stage().tls, std::move(socket), role, stage().key)).value();
  }
  const std::uint32_t process;
  // To the next link that the job asks for.
  enum class Reply : std::uint8_t { opened, refused, false_proof };
  Reply reply = Reply::opened;
  bool advance() { return session_ != nullptr && session_->advance().ok(); }
  bool established() const { return session_ != nullptr && session_->established(); }
  void close() { session_.reset(); }
  // Beside the session: nothing that follows can be read.
  void spoil(std::span<const std::uint8_t> bytes) {
    if (session_ != nullptr)
      (void)::send(session_->descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Once established: says who it is, and a guest opens its link.
  void greet() {
    if (!established()) return;
    binding_ = *session_->binding();
    transmit(Kind::greeting, encode_greeting(stage().process(process)));
    if (role_ == SessionRole::server) return;
    link_ = 2;
    ask(link_, stage().key->identity, 0);
  }
  // `change` spoils the proof.
  void ask(std::uint64_t number, const std::string& identity, std::uint8_t change) {
    OpenMessage open{number, identity, prove(trust::Prover::opener, number)};
    open.proof[0] ^= change;
    transmit(Kind::open, encode(open));
  }
  void say(Kind kind, std::span<const std::uint8_t> body) {
    const bool on_link = kind < Kind::ping || kind > Kind::closed;
    if (!on_link) return transmit(kind, body);
    transmit(kind, encode_on_link(link_, body));
  }
  // Reads what the job said, which must make sense.
  void hear() {
    if (session_ == nullptr) return;
    (void)session_->advance().ok();
    while (const auto frame = session_->receive()) judge_trunk(*frame);
  }

 private:
  void transmit(Kind kind, std::span<const std::uint8_t> body) {
    if (!established() || !session_->send(static_cast<std::uint8_t>(kind), body).ok()) return;
    (void)session_->transmit().ok();
  }
  trust::KeyProof prove(trust::Prover who, std::uint64_t number) const {
    return *trust::prove(*stage().key, binding_, who, number);
  }
  void check_opened(const OpenedMessage& opened) const {
    GYRE_DEMAND(opened.proof == prove(trust::Prover::answerer, opened.link));
  }
  void judge_trunk(const trust::Frame& frame) {
    std::span<const std::uint8_t> body;
    const auto kind = static_cast<Kind>(frame.type);
    switch (kind) {
      case Kind::ping:
        return GYRE_DEMAND(frame.body.empty());
      case Kind::greeting:
        return GYRE_DEMAND(decode_greeting(frame.body)->process == stage().self.process);
      case Kind::open:
        return answer_open(*decode_open(frame.body));
      case Kind::opened:
        return check_opened(*decode_opened(frame.body));
      default:
        GYRE_DEMAND(decode_on_link(frame.body, &body));
        if (kind != Kind::refused && kind != Kind::closed)
          judge({frame.type, {body.begin(), body.end()}});
    }
  }
  void answer_open(const OpenMessage& open) {
    GYRE_DEMAND(open.proof == prove(trust::Prover::opener, open.link));
    const Reply given = std::exchange(reply, Reply::opened);
    if (given == Reply::refused) return transmit(Kind::refused, encode_on_link(open.link));
    link_ = open.link;
    OpenedMessage opened{link_, prove(trust::Prover::answerer, link_)};
    opened.proof[0] ^= given == Reply::false_proof;
    transmit(Kind::opened, encode(opened));
  }
  void judge(const trust::Frame& frame) {
    std::span<const std::uint8_t> text;
    switch (static_cast<Kind>(frame.type)) {
      case Kind::join:
        return GYRE_DEMAND(decode_join(frame.body).ok());
      case Kind::hello:
      case Kind::welcome:
        return GYRE_DEMAND(decode_hello(frame.body).has_value());
      case Kind::rank_message:
        return GYRE_DEMAND(decode_rank_message(frame.body, &text).has_value());
      case Kind::ack:
        return GYRE_DEMAND(decode_ack(frame.body).has_value());
      case Kind::departed:
        return GYRE_DEMAND(!frame.body.empty());
      case Kind::failure:
        return GYRE_DEMAND(decode_cause(frame.body, 0).has_value());
      case Kind::leave:
        return GYRE_DEMAND(decode_leave(frame.body).has_value());
      case Kind::place:
        return GYRE_DEMAND(decode_place(frame.body).has_value());
      case Kind::roster:
        return GYRE_DEMAND(intake_.take(frame.body).ok());
      default:
        return GYRE_DEMAND(frame.body.empty());
    }
  }

  const SessionRole role_;
  std::unique_ptr<SecureSession> session_;
  trust::ChannelBinding binding_{};
  std::uint64_t link_ = 0;
  RosterAssembly intake_;
};

class Trial final : private LinkTaker {
 public:
  explicit Trial(fuzz::Input& input);
  ~Trial();
  void act(fuzz::Input& input);

 private:
  std::shared_ptr<const trust::SessionKey> find_key(const std::string& identity) override {
    return identity == stage().key->identity ? job_->key() : nullptr;
  }
  void on_link(const std::string&, std::unique_ptr<ControlLink> link) override {
    job_->admit(std::move(link));
  }
  ControlThread& thread() const { return *stage().thread; }
  void admit_guest();
  void accept_dialed();
  void converse(Peer& peer);
  void settle();
  void tick(std::int64_t ahead_ns, std::int64_t overslept_ns);
  void say_join(Peer& peer, fuzz::Input& input);
  void say_place(Peer& peer, fuzz::Input& input);
  void say_roster(Peer& peer, fuzz::Input& input);
  void say_cause(Peer& peer, fuzz::Input& input);
  void say_on_trunk(Peer& peer, fuzz::Input& input);
  void use_member(fuzz::Input& input);
  void pass_time(fuzz::Input& input);
  void check_members() const;

  // What whoever is dialed next says: as it should, another protocol, or it closes.
  enum class Answer : std::uint8_t { session, other, nothing };
  Answer next_answer_ = Answer::session;
  Peer::Reply next_reply_ = Peer::Reply::opened;
  bool is_root_ = false;
  int size_ = 0;
  std::vector<std::shared_ptr<LocalMember>> members_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Trunks> trunks_;
  std::unique_ptr<Job> job_;
  std::int64_t ahead_ns_ = 0;
};

Trial::Trial(fuzz::Input& input) {
  while (stage().answer().has_value()) {
  }
  is_root_ = input.take_flag();
  size_ = 1 + input.take<std::uint8_t>() % 12;
  const int here = is_root_ ? input.take<std::uint8_t>() % 3 : 1 + input.take<std::uint8_t>() % 2;
  const bool spread = here == 2 && size_ > 2;
  for (int i = 0; i < std::min(here, size_); ++i)
    members_.push_back(std::make_shared<LocalMember>(
        stage().thread, std::make_shared<const trust::ProcessIdentity>(stage().self),
        spread ? i * (size_ - 1) : i, size_));
  thread().call([&] {
    const auto root = stage().process(0);
    std::optional<Destination> destination;
    if (!is_root_) destination = Destination{root.host, root.listener_name, {stage().listener(0)}};
    LinkTaker& taker = *this;
    trunks_ = std::make_unique<Trunks>(thread(), *stage().tls, stage().self, taker);
    job_ = std::make_unique<Job>(JobServices{thread(), *trunks_, stage().self}, stage().key,
                                 std::move(destination));
    for (const auto& member : members_)
      job_->enlist(member, size_, MessageBytes{1, 2}, stage().settings);
  });
  if (is_root_) admit_guest();
  tick(0, 0);
  settle();
}

Trial::~Trial() {
  thread().call([&] {
    job_->close();
    (void)job_->flushed();
    (void)job_->has_unreported_failure();
    (void)job_->finished();
  });
  settle();
  thread().call([&] {
    job_.reset();
    (void)trunks_->flushed();
    trunks_->clear();
  });
  thread().call([] {});  // what was retired is gone
}

// A process that came through the listener and has proved the key.
void Trial::admit_guest() {
  if (peers_.size() == max_links) return;
  int ends[2];
  GYRE_DEMAND(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  auto peer = std::make_unique<Peer>(FileDescriptor(ends[0]), SessionRole::client,
                                     static_cast<std::uint32_t>(peers_.size() + 1));
  auto session = std::move(SecureSession::start(*stage().tls, FileDescriptor(ends[1]),
                                                SessionRole::server, stage().key))
                     .value();
  while (!peer->established() || !session->established())
    GYRE_DEMAND(peer->advance() && session->advance().ok());
  thread().call([&] { trunks_->adopt(std::move(session), SessionRole::server); });
  peer->greet();
  peers_.push_back(std::move(peer));
  converse(*peers_.back());
}

// The job has dialed: to the root, or to its parent in the tree.
void Trial::accept_dialed() {
  if (peers_.size() == max_links) return;
  FileDescriptor socket = stage().answer();
  if (!socket.has_value()) return;
  const Answer answer = std::exchange(next_answer_, Answer::session);
  if (answer == Answer::nothing) return;
  constexpr std::string_view other = "HTTP/1.0 400 Bad Request\r\n\r\n";
  if (answer == Answer::other) (void)::send(socket.get(), other.data(), other.size(), MSG_NOSIGNAL);
  auto peer = std::make_unique<Peer>(std::move(socket), SessionRole::server, 0);
  for (int turn = 0; turn < 100 && !peer->established() && peer->advance(); ++turn)
    thread().call([] {});
  peer->reply = std::exchange(next_reply_, Peer::Reply::opened);
  peer->greet();
  peers_.push_back(std::move(peer));
  converse(*peers_.back());
}

// Greetings, then a link that is opened, then what is said on it first.
void Trial::converse(Peer& peer) {
  for (int turn = 0; turn < 3; ++turn) {
    for (int event = 0; event < 2; ++event) thread().call([] {});
    peer.hear();
  }
}

// Twice: what is posted may run before the sockets of the same turn.
void Trial::settle() {
  for (int turn = 0; turn < 2; ++turn) thread().call([] {});
  tick(0, 0);
  accept_dialed();
  for (const auto& peer : peers_) peer->hear();
  check_members();
}

void Trial::tick(std::int64_t ahead_ns, std::int64_t overslept_ns) {
  ahead_ns_ += ahead_ns;
  thread().call([&] {
    const std::int64_t now = SystemClock::read() + ahead_ns_;
    trunks_->tick(now, overslept_ns);
    job_->tick(now, overslept_ns);
  });
}

void Trial::check_members() const {
  for (const auto& member : members_) {
    const Membership::State state = member->state();
    GYRE_DEMAND((state == Membership::State::failed) <= !member->failure().ok());
    if (member->failed()) GYRE_DEMAND(member->failure().code() != Code::InProgress);
    if (state != Membership::State::joined) continue;
    const Roster& roster = member->roster();
    GYRE_DEMAND(static_cast<int>(roster.process_of_rank.size()) == size_);
    const auto process = roster.process_of_rank[static_cast<std::size_t>(member->rank())];
    GYRE_DEMAND(roster.processes[process].process == stage().self.process);
  }
}

// Input: i8 added to the size, u8 rank, u8 whose process, block note.
void Trial::say_join(Peer& peer, fuzz::Input& input) {
  JoinMessage join;
  join.size = static_cast<std::uint32_t>(size_ + input.take<std::int8_t>());
  join.rank = input.take<std::uint8_t>();
  join.init_timeout_ms = 60'000;
  join.liveness_ms = 10'000;
  const auto other = input.take<std::uint8_t>();
  join.process = stage().process(other == 0 ? peer.process : other);
  join.note = input.take_vector();
  peer.say(Kind::join, encode(join));
}

// Input: u8 process, u8 its parent, u8 the parent's rank.
void Trial::say_place(Peer& peer, fuzz::Input& input) {
  const std::uint32_t process = input.take<std::uint8_t>();
  const std::uint32_t parent = input.take<std::uint8_t>() % max_processes;
  peer.say(Kind::place,
           encode(PlaceMessage{process, stage().process(parent), {input.take<std::uint8_t>()}}));
}

// Input: u8 processes, u8 which of them the job's is, u16 place and u8 change in its bytes.
void Trial::say_roster(Peer& peer, fuzz::Input& input) {
  const std::uint32_t processes = 1 + input.take<std::uint8_t>() % max_processes;
  const std::uint32_t own = input.take<std::uint8_t>() % processes;
  RosterMessage message;
  message.liveness_ms = 10'000;
  for (std::uint32_t i = 0; i < processes; ++i)
    message.roster.processes.push_back(i == own ? stage().self : stage().process(i));
  for (int rank = 0; rank < size_; ++rank) {
    const bool here =
        std::ranges::any_of(members_, [&](const auto& m) { return m->rank() == rank; });
    const std::uint32_t other = static_cast<std::uint32_t>(rank) % processes;
    message.roster.process_of_rank.push_back(here ? own : other == own ? 0 : other);
    message.roster.notes.push_back({static_cast<std::uint8_t>(rank)});
  }
  const std::size_t place = input.take<std::uint16_t>();
  const std::uint8_t change = input.take<std::uint8_t>();
  for (auto part : encode_parts(message)) {
    part[place % part.size()] ^= change;
    peer.say(Kind::roster, part);
  }
}

// Input: u8 code, u8 culprit, block text.
void Trial::say_cause(Peer& peer, fuzz::Input& input) {
  const auto code = static_cast<Code>(1 + input.take<std::uint8_t>() % 10);
  const int culprit = input.take<std::uint8_t>();
  peer.say(Kind::failure, encode_cause(Status(code, input.take_text()).blame({culprit})));
}

// Input: u8 what, u8 the number of a link.
void Trial::say_on_trunk(Peer& peer, fuzz::Input& input) {
  const int what = input.take<std::uint8_t>() % 8;
  const std::uint64_t number = input.take<std::uint8_t>();
  const std::string& identity = stage().key->identity;
  if (what == 0) peer.ask(number, identity, 0);
  if (what == 1) peer.ask(number, identity, 1);
  if (what == 2) peer.ask(number, identity.substr(1), 0);
  if (what == 3) peer.say(Kind::opened, encode(OpenedMessage{number, {}}));
  if (what == 4) peer.say(Kind::refused, encode_on_link(number));
  if (what == 5) peer.say(Kind::closed, encode_on_link(number));
  if (what == 6) next_reply_ = Peer::Reply::refused;
  if (what == 7) next_reply_ = Peer::Reply::false_proof;
}

// Input: u8 which member, u8 what it does, u8 to or from which rank.
void Trial::use_member(fuzz::Input& input) {
  if (members_.empty()) return;
  LocalMember& member = *members_[input.take<std::uint8_t>() % members_.size()];
  const int what = input.take<std::uint8_t>() % 4;
  const int rank = input.take<std::uint8_t>() % (size_ + 1);
  if (what == 0) (void)member.send(rank, 7, MessageBytes{4, 5, 6}).ok();
  if (what == 1) (void)member.receive(rank, 7);
  if (what == 2) member.abort(Status(Code::Aborted, "enough"));
  if (what == 3) member.leave();
}

// Input: u8 seconds, u8 tenths of them in which this process stood still.
void Trial::pass_time(fuzz::Input& input) {
  const std::int64_t seconds = input.take<std::uint8_t>();
  tick(seconds * ns_per_s, input.take<std::uint8_t>() * 100 * ns_per_ms);
}

void Trial::act(fuzz::Input& input) {
  const int kind = input.take<std::uint8_t>() % 16;
  const std::size_t link = input.take<std::uint8_t>();
  if (kind == 0 && link >= spoilt) {
    next_answer_ = link == spoilt ? Answer::other : Answer::nothing;
    return;
  }
  if (kind == 0) return admit_guest(), settle();
  if (kind == 1) return use_member(input), settle();
  if (kind == 2) return pass_time(input), settle();
  if (peers_.empty()) return;
  Peer& peer = *peers_[link % peers_.size()];
  switch (kind) {
    case 3: {
      const auto said = static_cast<Kind>(input.take<std::uint8_t>());
      peer.say(said, input.take_block());
      break;
    }
    case 4:
      say_join(peer, input);
      break;
    case 5:
      say_roster(peer, input);
      break;
    case 6:
    case 7: {
      const std::uint32_t process = input.take<std::uint8_t>();
      peer.say(kind == 6 ? Kind::hello : Kind::welcome,
               encode(HelloMessage{process, token_of(process)}));
      break;
    }
    case 8: {
      const std::uint32_t from = input.take<std::uint8_t>(), to = input.take<std::uint8_t>();
      const std::uint64_t number = input.take<std::uint8_t>();
      peer.say(Kind::rank_message,
               encode(RankMessageHead{from, to, 7, number}, input.take_block()));
      break;
    }
    case 9:
      say_cause(peer, input);
      break;
    case 10: {
      const std::uint8_t rank = input.take<std::uint8_t>();
      peer.say(Kind::leave, encode_leave(rank == UINT8_MAX ? no_rank : rank));
      break;
    }
    case 11:
      say_on_trunk(peer, input);
      break;
    case 12:
      if (link < spoilt)
        peer.close();
      else
        peer.spoil(input.take_block());
      break;
    case 13: {
      const std::uint32_t from = input.take<std::uint8_t>(), to = input.take<std::uint8_t>();
      peer.say(Kind::ack, encode(AckMessage{from, to, input.take<std::uint8_t>()}));
      break;
    }
    case 14:
      peer.say(Kind::departed, input.take_block());
      break;
    default:
      say_place(peer, input);
  }
  settle();
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Trial trial(input);
  for (int acts = 0; acts < max_acts && !input.empty(); ++acts) trial.act(input);
  return 0;
}

GYRE_FUZZ_TARGET(job)

}  // namespace job_fuzz
