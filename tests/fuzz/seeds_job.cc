// Seeds of `job`: what peers of a job do, as acts. The target defines the order of an act's fields.
#include "lib/control/messages.h"
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

using control::Kind;

// An honest job as the target's acts, and the lies that a seed adds.
class Acts {
 public:
  static Acts root(std::uint8_t size, std::uint8_t ranks_here) { return Acts(1, size, ranks_here); }
  static Acts member(std::uint8_t size, std::uint8_t ranks_here) {
    return Acts(0, size, static_cast<std::uint8_t>(ranks_here - 1));
  }
  Acts& guest() { return act(0, 0); }
  Acts& use(std::uint8_t member, std::uint8_t what, std::uint8_t rank = 0) {
    act(1, 0);
    script_.number(member).number(what).number(rank);
    return *this;
  }
  Acts& wait(std::uint8_t seconds, std::uint8_t overslept = 0) {
    act(2, 0);
    script_.number(seconds).number(overslept);
    return *this;
  }
  Acts& raw(std::uint8_t link, std::uint8_t kind, std::string_view body = {}) {
    act(3, link);
    script_.number(kind).text(body);
    return *this;
  }
  Acts& raw(std::uint8_t link, Kind kind, std::string_view body = {}) {
    return raw(link, static_cast<std::uint8_t>(kind), body);
  }
  Acts& join(std::uint8_t link, std::uint8_t rank, std::int8_t more = 0, std::uint8_t process = 0) {
    act(4, link);
    script_.number(more).number(rank).number(process).text("note");
    return *this;
  }
  Acts& place(std::uint8_t link, std::uint8_t process, std::uint8_t parent) {
    act(15, link);
    script_.number(process).number(parent).number(parent);
    return *this;
  }
  Acts& roster(std::uint8_t link, std::uint8_t processes, std::uint8_t own, std::uint16_t place = 0,
               std::uint8_t change = 0) {
    act(5, link);
    script_.number(static_cast<std::uint8_t>(processes - 1))
        .number(own)
        .number(place)
        .number(change);
    return *this;
  }
  Acts& hello(std::uint8_t link, std::uint8_t process) {
    act(6, link);
    script_.number(process);
    return *this;
  }
  Acts& welcome(std::uint8_t link, std::uint8_t process) {
    act(7, link);
    script_.number(process);
    return *this;
  }
  Acts& message(std::uint8_t link, std::uint8_t from, std::uint8_t to, std::uint8_t number = 1) {
    act(8, link);
    script_.number(from).number(to).number(number).text("letter");
    return *this;
  }
  // Of processes.
  Acts& heard(std::uint8_t link, std::uint8_t from, std::uint8_t to, std::uint8_t number = 1) {
    act(13, link);
    script_.number(from).number(to).number(number);
    return *this;
  }
  // A bit a rank.
  Acts& departed(std::uint8_t link, std::string_view bits) {
    act(14, link);
    script_.text(bits);
    return *this;
  }
  Acts& cause(std::uint8_t link, std::uint8_t code, std::uint8_t culprit) {
    act(9, link);
    script_.number(code).number(culprit).text("it fell");
    return *this;
  }
  Acts& leave(std::uint8_t link, std::uint8_t rank) {
    act(10, link);
    script_.number(rank);
    return *this;
  }
  Acts& on_trunk(std::uint8_t link, std::uint8_t what, std::uint8_t number) {
    act(11, link);
    script_.number(what).number(number);
    return *this;
  }
  Acts& hang_up(std::uint8_t link) { return act(12, link); }
  // Bytes that are no record of the session; `link` of two.
  Acts& spoil(std::uint8_t link, std::string_view bytes) {
    act(12, static_cast<std::uint8_t>(128 + link));
    script_.text(bytes);
    return *this;
  }
  // Whoever is dialed next speaks another protocol, or closes.
  Acts& dialed_speaks_other() { return act(0, 128); }
  Acts& dialed_closes() { return act(0, 129); }
  operator Bytes() { return script_; }

 private:
  Acts(std::uint8_t role, std::uint8_t size, std::uint8_t ranks_here) : script_(role) {
    script_.number(static_cast<std::uint8_t>(size - 1)).number(ranks_here);
  }
  Acts& act(std::uint8_t kind, std::uint8_t link) {
    script_.number(kind).number(link);
    return *this;
  }
  Script script_;
};

constexpr std::uint8_t root_left = UINT8_MAX;
// From rank 1 to rank 0, key 7, number 2^32 + 1.
constexpr std::string_view far_message("\1\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0", 24);
enum Use : std::uint8_t { send, receive, abort, leave };
enum OnTrunk : std::uint8_t {
  open_link,
  open_with_false_proof,
  open_unknown,
  opened,
  refused,
  closed,
  refuse_next,
  lie_next,
};

// Rank 0 here, ranks 1 and 2 in two processes that come to the root.
Acts joined_root() {
  return Acts::root(3, 1).guest().join(0, 1).join(1, 2).raw(0, Kind::ready).raw(1, Kind::ready);
}

// Rank 0 here; the root is process 0 and knows where we are.
Acts joined_member() { return Acts::member(3, 1).roster(0, 3, 1).raw(0, Kind::go); }

// The tenth process: its parent in the tree is process 1, whom it dials.
Acts placed_member() { return Acts::member(12, 1).place(0, 9, 1); }

// It has the roster from its parent.
Acts deep_member() { return placed_member().welcome(1, 1).roster(1, 12, 9); }

// Process 1 of many is parent of 9 to 16.
Acts parent() { return Acts::member(12, 1).roster(0, 12, 1); }

Acts parent_of_all() {
  Acts acts = parent();
  for (std::uint8_t child = 9; child < 12; ++child)
    acts.guest().hello(static_cast<std::uint8_t>(child - 8), child);
  for (std::uint8_t link = 1; link < 4; ++link) acts.raw(link, Kind::ready);
  return acts;
}

void add_roots(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) { seeds.add("job", name, std::move(bytes)); };
  add("root_joined", joined_root());
  add("root_letters",
      joined_root().use(0, send, 1).message(0, 1, 0).message(0, 1, 2).use(0, receive, 1));
  add("root_letters_again",
      joined_root().message(0, 1, 0, 2).message(0, 1, 0).message(0, 1, 0).message(0, 1, 0, 200));
  add("root_letter_too_far",
      joined_root().message(0, 1, 0).raw(0, Kind::rank_message, far_message));
  add("root_heard", joined_root().use(0, send, 1).heard(0, 1, 0).heard(0, 1, 2).heard(1, 1, 0));
  add("root_heard_of_nobody", joined_root().heard(0, 1, 7));
  add("root_bad_heard", joined_root().raw(0, Kind::ack, "?"));
  add("root_departed", joined_root().departed(0, "\x04").use(0, send, 2).departed(0, "\x06"));
  add("root_departed_itself", joined_root().departed(0, "\x01"));
  add("root_bad_departed", joined_root().departed(0, "??"));
  add("root_letter_of_another", joined_root().message(0, 2, 0));
  add("root_letter_beyond", joined_root().message(0, 1, 9));
  add("root_letter_early", Acts::root(3, 1).message(0, 1, 0));
  add("root_all_leave", joined_root().leave(0, 1).leave(1, 2).use(0, leave));
  add("root_leave_of_another", joined_root().leave(0, 2));
  add("root_leave_beyond", joined_root().leave(0, 77));
  add("root_child_dies", joined_root().hang_up(0));
  add("root_child_is_garbled", joined_root().spoil(0, "HTTP/1.0 400 Bad Request"));
  add("root_child_leaves_and_dies", joined_root().leave(0, 1).hang_up(0).message(1, 2, 1));
  add("root_aborts", joined_root().use(0, abort));
  add("root_told_of_failure", joined_root().cause(0, 5, 1));
  add("root_told_of_progress", joined_root().cause(0, 6, 1));
  add("root_told_of_rank_beyond", joined_root().cause(0, 5, 200));
  add("root_silence", joined_root().wait(11));
  add("root_deadline", Acts::root(3, 1).join(0, 1).wait(61));
  add("root_deadline_linking", Acts::root(3, 1).guest().join(0, 1).join(1, 2).wait(61));
  add("root_late_after_failure",
      Acts::root(3, 1).join(0, 1, 1).guest().join(1, 2).guest().raw(2, Kind::join, "?"));
  add("root_late_after_join", joined_root().guest().join(2, 2));
  add("root_join_again", joined_root().join(0, 2));
  add("root_without_ranks",
      Acts::root(2, 0).guest().join(0, 0).join(1, 1).raw(0, Kind::ready).raw(1, Kind::ready));
  add("root_two_ranks_of_one", Acts::root(3, 1).join(0, 1).join(0, 2).raw(0, Kind::ready));
  add("root_rank_twice", Acts::root(3, 1).guest().join(0, 1).join(1, 1));
  add("root_other_size", Acts::root(3, 1).join(0, 1, 2));
  add("root_two_identities", Acts::root(3, 1).join(0, 1).join(0, 2, 0, 9));
  add("root_process_twice", Acts::root(3, 1).guest().join(0, 1).join(1, 2, 0, 1));
  add("root_bad_join", Acts::root(3, 1).raw(0, Kind::join, "?"));
  add("root_alone", Acts::root(1, 1));
  add("root_unknown_kinds", Acts::root(3, 1).raw(0, 0).raw(0, 99).raw(0, Kind::ping));
  add("root_wrong_kinds", Acts::root(3, 1)
                              .guest()
                              .raw(0, Kind::roster)
                              .raw(0, Kind::welcome, "x")
                              .raw(1, Kind::go)
                              .raw(1, Kind::ready));
  add("root_kind_of_known", joined_root().raw(0, Kind::go));
  add("root_guest_moves", Acts::root(3, 1).raw(0, Kind::moved).raw(0, Kind::moved));
  add("root_bad_failure", joined_root().raw(0, Kind::failure, "?"));
  add("root_bad_leave", joined_root().raw(0, Kind::leave, "?"));
  add("root_bad_hello", Acts::root(3, 1).raw(0, Kind::hello, "?"));
  add("root_hello_of_guest", Acts::root(12, 1).hello(0, 1).guest().join(1, 1).hello(1, 1));
  add("root_member_leaves_early", Acts::root(3, 1).use(0, leave));
}

void add_members(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) { seeds.add("job", name, std::move(bytes)); };
  add("member_joined", joined_member());
  add("member_letters", joined_member().use(0, send, 2).message(0, 1, 0).use(0, receive, 1));
  add("member_letter_back", joined_member().message(0, 0, 0));
  add("member_all_leave",
      joined_member().leave(0, 1).leave(0, 2).leave(0, root_left).use(0, leave));
  add("member_root_dies", joined_member().hang_up(0));
  add("member_root_dies_early", Acts::member(3, 1).hang_up(0));
  add("member_told_of_failure", Acts::member(3, 1).cause(0, 7, 1));
  add("member_deadline", Acts::member(3, 1).wait(62));
  add("member_stopped", joined_member().wait(20, 255));
  add("member_roster_lacks_it", Acts::member(3, 1).roster(0, 3, 1, 20, 0xff));
  add("member_roster_damaged", Acts::member(3, 1).roster(0, 3, 1, 16, 0xff));
  add("member_roster_misplaced", Acts::member(3, 2).roster(0, 3, 0));
  add("member_roster_twice", Acts::member(3, 1).roster(0, 3, 1).roster(0, 3, 1));
  add("member_roster_bad_part", Acts::member(3, 1).raw(0, Kind::roster, "?"));
  add("member_go_early", Acts::member(3, 1).raw(0, Kind::go));
  add("member_is_asked_to_join", Acts::member(3, 1).join(0, 1));
  add("member_moved", joined_member().raw(0, Kind::moved));
  add("member_two_ranks", Acts::member(3, 2).roster(0, 2, 1).raw(0, Kind::go).use(0, send, 2));
  add("deep_joined", deep_member().raw(1, Kind::go).message(1, 1, 0));
  add("deep_place_of_the_roots", Acts::member(12, 1).place(0, 8, 0).roster(0, 12, 8));
  add("deep_place_beyond", Acts::member(12, 1).place(0, 13, 1));
  add("deep_place_twice", placed_member().place(0, 10, 1));
  add("deep_bad_place", Acts::member(12, 1).raw(0, Kind::place, "?"));
  add("deep_place_after_the_roster", Acts::member(12, 1).roster(0, 12, 1).place(0, 9, 1));
  add("deep_roster_of_the_root", placed_member().roster(0, 12, 9));
  add("deep_roster_before_the_welcome", placed_member().roster(1, 12, 9));
  add("deep_other_place_in_the_roster", placed_member().welcome(1, 1).roster(1, 12, 10));
  add("deep_root_dies", placed_member().hang_up(0));
  add("deep_parent_dies", placed_member().welcome(1, 1).hang_up(1));
  add("deep_parent_says_nothing", placed_member().welcome(1, 1).wait(62));
  const auto unmet = [] { return Acts::member(12, 1); };
  add("deep_parent_speaks_other", unmet().dialed_speaks_other().place(0, 9, 1).wait(1));
  add("deep_parent_closes", unmet().dialed_closes().place(0, 9, 1).wait(1));
  add("deep_other_parent", placed_member().welcome(1, 2));
  add("deep_bad_welcome", placed_member().raw(1, Kind::welcome, "?"));
  add("deep_deadline", placed_member().wait(62));
  add("parent_joined", parent_of_all().raw(0, Kind::go).message(1, 9, 0).message(1, 9, 10));
  add("parent_passes_on",
      parent_of_all().raw(0, Kind::go).message(0, 2, 9).message(2, 10, 2).leave(2, 10));
  add("parent_way_is_gone",
      parent_of_all().raw(0, Kind::go).leave(1, 9).hang_up(1).message(0, 2, 9));
  add("parent_child_dies", parent_of_all().hang_up(2));
  add("parent_early_child", Acts::member(12, 1).guest().hello(1, 9).roster(0, 12, 1));
  add("parent_child_of_another", parent().guest().hello(1, 17).guest().hello(2, 2));
  add("parent_child_twice", parent().guest().hello(1, 9).guest().hello(2, 9));
  add("parent_deadline", parent().guest().hello(1, 9).wait(62));
}

// Rank r is process r's, as far as there are so many.
void add_departures(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) { seeds.add("job", name, std::move(bytes)); };
  add("parent_root_is_gone", parent_of_all()
                                 .raw(0, Kind::go)
                                 .use(0, send, 2)
                                 .leave(0, 0)
                                 .leave(0, 2)
                                 .hang_up(0)
                                 .wait(1)
                                 .message(1, 9, 1)
                                 .wait(2));
  add("parent_heir_comes", parent_of_all()
                               .raw(0, Kind::go)
                               .leave(0, 0)
                               .wait(1)
                               .guest()
                               .hello(4, 5)
                               .message(4, 5, 1)
                               .wait(2)
                               .wait(20));
  add("parent_heir_tells_of_the_gone", parent_of_all()
                                           .raw(0, Kind::go)
                                           .guest()
                                           .hello(4, 5)
                                           .departed(4, std::string_view("\x05\0", 2))
                                           .wait(1)
                                           .cause(4, 5, 3));
  add("deep_parent_is_gone", deep_member()
                                 .raw(1, Kind::go)
                                 .use(0, send, 2)
                                 .leave(1, 1)
                                 .wait(1)
                                 .welcome(2, 0)
                                 .departed(2, std::string_view("\x02\0", 2))
                                 .hang_up(1)
                                 .wait(1)
                                 .wait(20));
  add("deep_told_after_a_failure", deep_member()
                                       .raw(1, Kind::go)
                                       .leave(1, 1)
                                       .use(0, abort)
                                       .wait(1)
                                       .welcome(2, 0)
                                       .guest()
                                       .hello(3, 10)
                                       .wait(12));
}

void add_trunks(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) { seeds.add("job", name, std::move(bytes)); };
  add("trunk_second_link", Acts::root(3, 1).on_trunk(0, open_link, 4).join(0, 1));
  add("trunk_false_proof", Acts::root(3, 1).on_trunk(0, open_with_false_proof, 4).join(0, 1));
  add("trunk_unknown_key", Acts::root(3, 1).on_trunk(0, open_unknown, 4).join(0, 1));
  add("trunk_number_twice", Acts::root(3, 1).on_trunk(0, open_link, 2).join(0, 1));
  add("trunk_number_of_ours", Acts::root(3, 1).on_trunk(0, open_link, 3).join(0, 1));
  add("trunk_link_is_closed", joined_root().on_trunk(0, closed, 2).message(0, 1, 0));
  add("trunk_none_is_closed", joined_root().on_trunk(0, closed, 8).message(0, 1, 0));
  add("trunk_carries_nothing", Acts::root(3, 1).on_trunk(0, closed, 2).wait(3));
  add("trunk_opened_unasked", Acts::member(3, 1).on_trunk(0, opened, 2));
  add("trunk_refused_unasked", Acts::member(3, 1).on_trunk(0, refused, 2));
  add("trunk_refused",
      Acts::member(12, 1).on_trunk(0, refuse_next, 0).place(0, 9, 1).wait(1).wait(1));
  add("trunk_answered_falsely",
      Acts::member(12, 1).on_trunk(0, lie_next, 0).place(0, 9, 1).wait(1).wait(1));
  add("trunk_second_greeting", Acts::root(3, 1).raw(0, Kind::greeting));
  add("trunk_bad_frames", Acts::root(3, 1)
                              .raw(0, Kind::open, "?")
                              .guest()
                              .raw(1, Kind::opened, "?")
                              .guest()
                              .raw(2, Kind::closed, "?")
                              .guest()
                              .raw(3, Kind::refused, "?"));
}

}  // namespace

void add_job_seeds(Seeds& seeds) {
  add_departures(seeds);
  add_trunks(seeds);
  add_roots(seeds);
  add_members(seeds);
}

}  // namespace gyre::fuzz
