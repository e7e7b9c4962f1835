// Seeds of what RDMA peers say and write.
#include "lib/links/connect_message.h"
#include "lib/transport/endpoint.h"
#include "tests/fuzz/seeds.h"
#include "transports/rdma/address.h"
#include "transports/rdma/queues.h"

#include <cstddef>

namespace gyre::fuzz {
namespace {

using namespace transport;

RdmaAddress some_address(std::uint32_t pairs) {
  RdmaAddress address{.network = RdmaNetwork::roce_ipv4, .mtu = IBV_MTU_4096, .lid = 1};
  address.gid.raw[10] = address.gid.raw[11] = 0xff;
  address.gid.raw[15] = 1;
  address.window = 2;
  address.slots = {0x10000, 7};
  address.notes = {0x20000, 8};
  address.probed = {0x30000, 9};
  for (std::uint32_t i = 0; i < pairs; ++i) address.pairs.push_back({0x11 + i, 0x100 + i});
  address.place = "mlx5_0:1 of host a";
  return address;
}

void add_addresses(Seeds& seeds) {
  enum : std::uint8_t { address, answer, announced, hca };
  const auto add = [&](const char* name, std::uint8_t which, const Bytes& bytes) {
    seeds.add("rdma_address", name, Script(which).rest(bytes));
  };
  const Bytes good = encode(some_address(2));
  add("address", address, good);
  RdmaAddress planned = some_address(2);
  planned.planned = 1;
  add("address_planned", address, encode(planned));
  add("address_most_pairs", address, encode(some_address(max_queue_pairs)));
  add("address_no_pairs", address, encode(some_address(0)));
  add("address_cut", address, cut(good, good.size() - 1));
  add("address_too_long", address, cut(good, good.size() + 1));
  add("address_version", address, changed(good, 0, 9));
  add("address_network", address, changed(good, 1, 4));
  add("address_mtu", address, changed(good, 2, 6));
  add("answer", answer, encode(RdmaAnswer{{}, {some_address(1), std::nullopt}}));
  add("answer_cut", answer, Bytes(20, 1));
  for (const auto& [name, text] :
       {std::pair("none", ""), std::pair("roce", "rdma=roce6,roce4"),
        std::pair("infiniband", "rdma=ib/0000000000000000"), std::pair("foreign", "tcp=roce4"),
        std::pair("commas", "rdma=,,roce4,")})
    add((std::string("announced_") + name).c_str(), announced, bytes_of(text));
  for (const auto& [name, text] :
       {std::pair("none", ""), std::pair("prefix", "mlx5"), std::pair("exact", "=mlx5_0,mlx5_1"),
        std::pair("left_out", "^mlx5_0:1"), std::pair("port", "mlx5_0:2"),
        std::pair("no_port", "mlx5_0:"), std::pair("port_beyond", "mlx5_0:256"),
        std::pair("empty_name", "mlx5_0,")})
    add((std::string("hca_") + name).c_str(), hca, bytes_of(text));
}

void add_endpoints(Seeds& seeds) {
  constexpr std::uint32_t over_fake = 5;
  EndpointContents contents;
  contents.transport = "rdma";
  contents.shape = {.slot_count = 2, .line_count = 4, .slot_bytes = 256};
  const auto add = [&](const char* name, const RdmaAddress& address) {
    const Bytes bytes = encode(address);
    contents.places = {std::string(bytes.begin(), bytes.end())};
    seeds.add("connect_message", name,
              Script(std::uint8_t{0})
                  .rest(comm::encode(comm::ConnectMessage{.transport = over_fake,
                                                          .probe = {1, 2, 3},
                                                          .endpoint = encode_endpoint(contents)})));
  };
  add("rdma", some_address(1));
  add("rdma_pairs", some_address(4));
  RdmaAddress other = some_address(1);
  other.window = 4;
  add("rdma_window_beyond", other);
  other.window = 0;
  add("rdma_no_window", other);
  other = some_address(1);
  other.network = RdmaNetwork::infiniband;
  add("rdma_other_network", other);
}

class Steps {
 public:
  explicit Steps(std::uint8_t pairs_but_one, const Bytes& answer = {}) : script_(pairs_but_one) {
    script_.block(answer);
  }
  Steps& notice(std::uint8_t pair, Notice notice) {
    return raw_notice(pair, notice.to_immediate());
  }
  Steps& raw_notice(std::uint8_t pair, std::uint32_t immediate) {
    script_.number(std::uint8_t{0}).number(pair).number(immediate);
    return *this;
  }
  Steps& message(std::size_t bytes, std::uint8_t place = 0, std::uint8_t change = 0) {
    script_.number(std::uint8_t{1}).number(place).number(change).block(Bytes(bytes, 0x5a));
    return *this;
  }
  Steps& take(std::uint8_t count) {
    script_.number(std::uint8_t{2}).number(count);
    return *this;
  }
  Steps& lend() {
    script_.number(std::uint8_t{4});
    return *this;
  }
  Steps& write(std::uint16_t offset, const Bytes& bytes) {
    script_.number(std::uint8_t{3}).number(offset).block(bytes);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

void add_notices(Seeds& seeds) {
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("rdma_receiver", name, std::move(bytes));
  };
  add("messages", Steps(0).message(0).message(8).message(232).take(2).message(5).take(9));
  add("more_than_slots", Steps(0).message(1).message(1).message(1).message(1).message(1));
  add("closed", Steps(0).message(1).notice(0, {NoticeKind::close, 1}).take(1).message(1));
  add("credit", Steps(0).notice(0, {NoticeKind::credit, 0}));
  add("unknown_kind", Steps(0).raw_notice(0, 0xffffffff));
  add("number_beyond", Steps(0).notice(0, {NoticeKind::message, 4}));
  add("number_behind", Steps(0).notice(0, {NoticeKind::message, Notice::mask}));
  add("lost_rail", Steps(0).message(8).notice(0, {NoticeKind::lost, 1, 7}).message(8).take(2));
  add("lost_note_rail", Steps(0).notice(1, {NoticeKind::lost, 0, 1}).message(8).take(2));
  add("lost_own_rail", Steps(0).notice(0, {NoticeKind::lost, 0, 1}));
  add("lost_all", Steps(0).notice(0, {NoticeKind::lost, 1}).notice(0, {NoticeKind::lost, 1}));
  add("lost_beyond", Steps(0).notice(0, {NoticeKind::lost, 2}));
  add("lost_early",
      Steps(0).notice(0, {NoticeKind::lost, RailQuestion{1, 1}.to_number(), 1}).message(8).take(2));
  add("closed_early", Steps(0).notice(0, {NoticeKind::close, 1}).message(8).take(2));
  add("lost_asked_before",
      Steps(0).notice(0, {NoticeKind::lost, 1, 7}).notice(0, {NoticeKind::lost, 1, 6}).message(8));
  add("message_of_another_round", Steps(0)
                                      .notice(0, {NoticeKind::lost, 1, 7})
                                      .notice(0, {NoticeKind::message, 0, 6})
                                      .message(8));
  add("resume", Steps(0).notice(0, {NoticeKind::resume, 0}));
  add("one_rail", Steps(0, encode(RdmaAnswer{{}, {std::nullopt, std::nullopt}})).message(1));
  add("piece_without_note", Steps(3).notice(1, {NoticeKind::message, 0}).message(8));
  add("note_with_piece", Steps(3).message(8, 20, 1).notice(2, {NoticeKind::message, 0}));
  add("piece_early", Steps(3).notice(1, {NoticeKind::message, 1}).message(8).take(1));
  add("in_the_slot", Steps(0).message(8, 22, 1).take(1));
  add("lie_sequence", Steps(0).message(8, 0, 1));
  add("lie_signature", Steps(0).message(8, 8, 1).take(1));
  add("lie_bytes", Steps(0).message(8, 17, 1));
  add("lie_bytes_beyond_slot", Steps(0).message(8, 18, 1));
  add("lie_packing", Steps(0).message(8, 22, 2));
  add("over_the_notes", Steps(0).write(0, Bytes(24, 0xff)).notice(0, {}).take(1));
  add("beyond_the_notes", Steps(0).write(1024, Bytes(8, 1)).message(1));
  add("lent", Steps(0).lend().message(8, 22, 3).take(1).lend().message(200, 22, 3));
  add("not_lent", Steps(0).message(8, 22, 3));
  add("lent_and_taken", Steps(0).lend().notice(0, {NoticeKind::taken, 1, 1}).lend().lend());
  add("lent_and_lost", Steps(0).lend().notice(0, {NoticeKind::lost, 1, 1}).message(8, 22, 3));
  add("taken_unasked", Steps(0).notice(0, {NoticeKind::taken, 0, 0}).lend());
  add("grant", Steps(0).notice(0, {NoticeKind::grant, 0, 0}));
  add("other_answer", Steps(0, encode(RdmaAnswer{{}, {some_address(2)}})).message(1));
  add("other_ticket", Steps(0, Bytes(100, 1)).message(1));
}

// Notices of a receiver, and messages between them, see the target.
class Replies {
 public:
  Replies& notice(std::uint8_t rail, Notice notice) {
    script_.number(std::uint8_t{0}).number(rail).number(notice.to_immediate());
    return *this;
  }
  Replies& message(std::uint16_t bytes) {
    script_.number(std::uint8_t{1}).number(bytes);
    return *this;
  }
  Replies& grant(std::uint8_t attempt, std::uint8_t place = 0, std::uint8_t change = 0) {
    script_.number(std::uint8_t{2}).number(attempt).number(place).number(change);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_{std::uint8_t{1}};
};

void add_replies(Seeds& seeds) {
  constexpr Notice ready{NoticeKind::credit, 0};
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("rdma_sender", name, std::move(bytes));
  };
  add("messages",
      Replies().message(8).notice(0, ready).message(500).notice(0, {NoticeKind::credit, 2}));
  Replies full;
  full.notice(0, ready);
  for (std::uint16_t i = 0; i < 6; ++i) full.message(i);
  add("full", full.notice(0, {NoticeKind::credit, 4}).message(9));
  add("credit_beyond", Replies().notice(0, ready).message(8).notice(0, {NoticeKind::credit, 2}));
  add("credit_behind", Replies().notice(0, {NoticeKind::credit, Notice::mask}));
  add("message", Replies().notice(0, {NoticeKind::message, 0}));
  add("unknown_kind", Replies().notice(0, {static_cast<NoticeKind>(7), 0}));
  add("closed", Replies().notice(0, ready).message(8).notice(0, {NoticeKind::close, 1}));
  add("closed_before", Replies().notice(0, ready).message(8).notice(0, {NoticeKind::close, 0}));
  add("closed_and_more", Replies().notice(0, {NoticeKind::close, 0}).message(8));
  add("lost", Replies()
                  .notice(0, ready)
                  .message(8)
                  .notice(1, {NoticeKind::lost, 0})
                  .notice(1, {NoticeKind::resume, 1, 1})
                  .message(8));
  add("lost_beyond", Replies().notice(0, ready).notice(0, {NoticeKind::lost, 2}));
  add("lost_both", Replies().notice(0, {NoticeKind::lost, 1}).notice(0, {NoticeKind::lost, 0}));
  add("grant", Replies().notice(0, ready).grant(1).message(300).grant(2).message(8));
  add("grant_before_credit", Replies().grant(1).notice(0, ready).message(300));
  add("grant_lie_sequence", Replies().notice(0, ready).grant(1, 0, 1));
  add("grant_lie_address", Replies().notice(0, ready).grant(1, 20, 1).message(300));
  add("grant_lie_bytes", Replies().notice(0, ready).grant(1, 31, 0xff));
  add("grant_lie_room", Replies().notice(0, ready).grant(1, 26, 1).message(300));
  add("grant_lie_promise", Replies().notice(0, ready).grant(1, 32, 2));
  add("grant_lie_key", Replies().notice(0, ready).grant(1, 40, 1).message(300));
  add("grant_nothing", Replies().notice(0, ready).grant(1, 25, 0x10).message(300));
  add("taken", Replies().notice(0, {NoticeKind::taken, 0}));
  add("resume_unasked", Replies().notice(0, ready).notice(0, {NoticeKind::resume, 0}));
  add("resume_beyond", Replies()
                           .notice(0, ready)
                           .message(8)
                           .notice(1, {NoticeKind::lost, 0})
                           .notice(1, {NoticeKind::resume, 9, 1}));
  add("resume_late", Replies()
                         .notice(0, ready)
                         .notice(1, {NoticeKind::lost, 0})
                         .notice(1, {NoticeKind::resume, 0, 9})
                         .message(8));
}

}  // namespace

void add_rdma_seeds(Seeds& seeds) {
  add_addresses(seeds);
  add_endpoints(seeds);
  add_notices(seeds);
  add_replies(seeds);
}

}  // namespace gyre::fuzz
