// Seeds of what ucx peers say.
#include "lib/links/connect_message.h"
#include "lib/transport/endpoint.h"
#include "tests/fuzz/seeds.h"
#include "transports/ucx/notice.h"

namespace gyre::fuzz {
namespace {

using namespace transport;
using Said = UcpNoticeKind;

const UcpPlace some_place{7, "gyre-there", std::string(64, 'w')};

void add_places(Seeds& seeds) {
  enum : std::uint8_t { place, hello };
  const auto add = [&](const char* name, std::uint8_t which, const Bytes& bytes) {
    seeds.add("ucx_notice", name, Script(which).rest(bytes));
  };
  const Bytes good = encode(some_place);
  add("place", place, good);
  add("place_cut", place, cut(good, good.size() - 1));
  add("place_damaged", place, changed(good, 20, 9));
  add("place_without_worker", place, encode(UcpPlace{7, "", ""}));
  add("place_of_a_long_worker", place,
      encode(UcpPlace{7, "", std::string(max_ucp_address + 1, 'w')}));
  add("place_of_a_long_listener", place, encode(UcpPlace{7, std::string(108, 'l'), "w"}));
  add("place_short", place, Bytes(5, 1));
  const Bytes greeting = encode(UcpHello{{1, 2, 3}, some_place});
  add("hello", hello, greeting);
  add("hello_cut", hello, cut(greeting, 31));
  add("hello_damaged", hello, changed(greeting, 60, 1));
}

class Talk {
 public:
  Talk(std::uint8_t end, bool has_joined) : script_(end) {
    script_.number(static_cast<std::uint8_t>(has_joined));
  }
  Talk& say(Said kind, std::uint64_t number, std::size_t bytes = 0, bool promised = false) {
    return say_part(kind, number, 0, bytes, kind == Said::message ? bytes : 0, promised);
  }
  Talk& say_part(Said kind, std::uint64_t number, std::size_t offset, std::size_t bytes,
                 std::size_t whole, bool promised = false) {
    script_.number(std::uint8_t{0}).number(static_cast<std::uint8_t>(kind)).number(number);
    script_.number(static_cast<std::uint32_t>(offset)).number(static_cast<std::uint32_t>(whole));
    script_.number(static_cast<std::uint8_t>(promised)).block(Bytes(bytes, 0x5a));
    return *this;
  }
  Talk& part(std::uint64_t number, std::size_t offset, std::size_t bytes, std::size_t whole,
             bool promised = false) {
    return say_part(Said::message, number, offset, bytes, whole, promised);
  }
  Talk& raw(const Bytes& header) {
    script_.number(std::uint8_t{1}).block(header);
    return *this;
  }
  Talk& go(std::uint8_t count) {
    script_.number(std::uint8_t{2}).number(count);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

void add_talks(Seeds& seeds) {
  constexpr std::uint8_t to_receiver = 2, to_sender = 3;
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("ucx_notice", name, std::move(bytes));
  };
  add("messages", Talk(to_receiver, true)
                      .say(Said::message, 0, 8)
                      .say(Said::message, 1, 512, true)
                      .say(Said::message, 2, 100)
                      .go(3)
                      .say(Said::ask, 0)
                      .say(Said::sweep, 0)
                      .say(Said::closing, 3));
  add("out_of_order", Talk(to_receiver, true)
                          .say(Said::message, 1, 0)
                          .say(Said::message, 5, 256)
                          .say(Said::message, 0, 300)
                          .go(9));
  add("parts", Talk(to_receiver, true)
                   .part(0, 256, 44, 300)
                   .part(1, 0, 64, 100)
                   .part(0, 0, 256, 300)
                   .part(1, 64, 36, 100)
                   .go(2));
  add("part_twice", Talk(to_receiver, true).part(0, 0, 128, 300).part(0, 64, 200, 300));
  add("part_of_another", Talk(to_receiver, true).part(0, 0, 128, 300).part(0, 128, 64, 301));
  add("part_without_bytes", Talk(to_receiver, true).part(0, 0, 100, 300).part(0, 100, 0, 300));
  add("part_beyond", Talk(to_receiver, true).part(0, 256, 64, 300));
  add("part_promised", Talk(to_receiver, true).part(0, 0, 64, 300, true));
  add("long_beyond_slots", Talk(to_receiver, true).say(Said::message, 2, 9000));
  add("promise_beyond_slots", Talk(to_receiver, true).say(Said::message, 2, 1, true));
  add("message_too_long", Talk(to_receiver, true).say(Said::message, 0, 513));
  add("message_twice", Talk(to_receiver, true).say(Said::message, 1).say(Said::message, 1));
  add("message_behind", Talk(to_receiver, true).say(Said::message, ~std::uint64_t{0}));
  add("message_before_hello", Talk(to_receiver, false).say(Said::message, 0));
  add("hello_twice", Talk(to_receiver, true).say(Said::hello, 0, 100).say(Said::hello, 0, 9, true));
  add("hello_of_a_stranger", Talk(to_receiver, false).say(Said::hello, 0, 100).go(1));
  add("credit_to_a_receiver", Talk(to_receiver, true).say(Said::credit, 0));
  add("closed_twice", Talk(to_receiver, true).say(Said::closing, 0).say(Said::closing, 0));
  add("closed_early", Talk(to_receiver, true).say(Said::closing, 1).say(Said::message, 0).go(1));
  add("closed_beyond", Talk(to_receiver, true).say(Said::closing, 65));
  add("no_notice", Talk(to_receiver, true).raw(Bytes(32, 0xee)).raw(Bytes(3, 1)).raw({}));
  add("credits", Talk(to_sender, true).go(2).say(Said::credit, 1).go(2).say(Said::credit, 3).go(1));
  add("credit_beyond", Talk(to_sender, true).go(2).say(Said::credit, 3));
  add("credit_with_bytes", Talk(to_sender, true).say(Said::credit, 0, 4));
  add("no_credit", Talk(to_sender, false).go(2));
  add("receiver_gone", Talk(to_sender, false).say(Said::closing, 0));
  add("receiver_has_all", Talk(to_sender, true).go(2).say(Said::closing, 2).go(1));
  add("receiver_lacks_one", Talk(to_sender, true).go(2).say(Said::closing, 1));
  add("message_to_a_sender", Talk(to_sender, true).say(Said::message, 0));
}

void add_ucx_endpoints(Seeds& seeds) {
  constexpr std::uint32_t over_fake = 6;
  EndpointContents contents;
  contents.transport = "ucx";
  contents.shape = {.slot_count = 2, .line_count = 4, .slot_bytes = 256};
  const auto add = [&](const char* name, const Bytes& place, std::uint8_t flags) {
    contents.flags = flags;
    contents.places = {std::string(place.begin(), place.end())};
    seeds.add("connect_message", name,
              Script(std::uint8_t{0})
                  .rest(comm::encode(comm::ConnectMessage{.transport = over_fake,
                                                          .probe = {1, 2, 3},
                                                          .endpoint = encode_endpoint(contents)})));
  };
  add("ucx", encode(some_place), 0);
  add("ucx_of_this_host", encode(some_place), 1);
  add("ucx_flags", encode(some_place), 2);
  add("ucx_damaged", changed(encode(some_place), 9, 1), 0);
}

}  // namespace

void add_ucx_seeds(Seeds& seeds) {
  add_places(seeds);
  add_talks(seeds);
  add_ucx_endpoints(seeds);
}

}  // namespace gyre::fuzz
