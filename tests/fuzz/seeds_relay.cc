// Seeds of the messages that a peer's relay sends about kernels' links.
#include "lib/cuda/relay_message.h"
#include "tests/fuzz/seeds.h"

#include <cstring>

namespace gyre::fuzz {
namespace {

using exec::RelayMessage;
using exec::RelayWord;

// Acts of `relay`; what each takes is in the target.
class Acts {
 public:
  explicit Acts(std::uint64_t first = 0) { script_.number(first); }
  Acts& sends(std::uint8_t channel) {
    script_.number(std::uint8_t{0}).number(channel);
    return *this;
  }
  Acts& releases(std::uint8_t channel) {
    script_.number(std::uint8_t{1}).number(channel);
    return *this;
  }
  Acts& says(const RelayMessage& message, std::size_t payload) {
    Bytes bytes(sizeof message + payload, 0x5a);
    std::memcpy(bytes.data(), &message, sizeof message);
    return raw(bytes);
  }
  Acts& raw(const Bytes& bytes) {
    script_.number(std::uint8_t{2}).block(bytes);
    return *this;
  }
  Acts& near(std::uint8_t channel, RelayWord word, std::int8_t distance, std::uint8_t payload = 9,
             std::uint8_t place = 0, std::uint8_t change = 0) {
    script_.number(std::uint8_t{3}).number(channel).number(static_cast<std::uint8_t>(word));
    script_.number(distance);
    if (word == RelayWord::tail) script_.number(payload);
    script_.number(place).number(change);
    return *this;
  }
  Acts& pushes(std::uint8_t channel, std::int8_t distance, std::uint8_t bytes = 9,
               std::uint8_t change = 0, std::uint8_t place = 0) {
    script_.number(std::uint8_t{4}).number(channel).number(distance).number(change).number(place);
    script_.number(bytes);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

}  // namespace

void add_relay_seeds(Seeds& seeds) {
  using enum RelayWord;
  const auto add = [&](const char* name, Bytes bytes) {
    seeds.add("relay", name, std::move(bytes));
  };
  const auto message = [](std::uint64_t number, std::uint32_t bytes) {
    return RelayMessage{.word = tail, .number = number, .flag = number << 24 | 5, .bytes = bytes};
  };
  add("messages", Acts().near(0, tail, 0).near(1, tail, 0, 128).near(0, tail, 0, 0).releases(0));
  add("as_they_come", Acts().says(message(1, 8), 8).says(message(2, 0), 0).releases(0));
  add("no_free_slot", Acts().near(0, tail, 0).near(0, tail, 0).near(0, tail, 0));
  add("releases", Acts().sends(1).sends(1).near(1, head, 0).near(1, head, 0).near(1, head, 0));
  add("both_at_once", Acts().sends(1).sends(1).near(1, head, 1).near(1, head, 0));
  add("release_not_sent", Acts().sends(1).near(1, head, 1).near(0, head, 0));
  add("release_again", Acts().sends(1).near(1, head, -1));
  add("numbers_turn", Acts(~0ULL - 1)
                          .near(0, tail, 0)
                          .near(0, tail, 0)
                          .releases(0)
                          .sends(0)
                          .sends(0)
                          .near(0, tail, 0)
                          .near(0, head, 1));
  add("flags_turn", Acts((1ULL << 40) - 2).near(0, tail, 0).near(0, tail, 0).near(0, tail, 0));
  add("goodbye", Acts().says({.word = goodbye}, 0));
  add("goodbye_with_bytes", Acts().says({.word = goodbye}, 1).says({.number = 1}, 0));
  add("cut", Acts().raw(Bytes(31)).raw({}));
  add("out_of_order", Acts().near(0, tail, 1).near(0, tail, -1));
  add("past_the_slot", Acts().near(0, tail, 0, 129).says(message(1, 129), 129));
  add("fewer_bytes", Acts().says(message(1, 64), 63).says(message(1, 64), 65));
  add("word_none", Acts().near(0, RelayWord{0}, 0).near(0, RelayWord{4}, 0));
  add("pushed", Acts().pushes(0, 0).near(0, tail, 0).releases(0).pushes(0, 0).pushes(1, 0, 128));
  add("pushed_no_free_slot", Acts().pushes(0, 0).pushes(0, 0).pushes(0, 0));
  add("pushed_out_of_order", Acts().pushes(0, 1).pushes(0, -1));
  add("pushed_past_the_slot", Acts().pushes(0, 0, 129));
  add("pushed_channel", Acts().pushes(1, 0, 9, 1, 49).pushes(1, 0, 9, 1, 48));
  add("pushed_numbers_turn",
      Acts(~0ULL - 1).pushes(0, 0).pushes(0, 0).releases(0).pushes(0, 0, 9, 1, 24));
  struct Lie {
    const char* name;
    std::uint8_t place;
  };
  for (const Lie& lie :
       {Lie{"lie_channel", 0}, Lie{"lie_word", 4}, Lie{"lie_number", 8}, Lie{"lie_signature", 16},
        Lie{"lie_flag", 19}, Lie{"lie_bytes", 24}, Lie{"lie_reserved", 28}})
    add(lie.name,
        Acts().near(0, tail, 0, 9, lie.place, 2).sends(0).near(0, head, 0, 0, lie.place, 2));
}

}  // namespace gyre::fuzz
