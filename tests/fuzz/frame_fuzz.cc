// The byte stream of a secure session, cut into any pieces: the frames are the same for every cut.
// Input: u8 number of cuts, as many u8 lengths (used in turn), the stream.
#include "lib/trust/frame.h"
#include "tests/fuzz/input.h"

namespace frame_fuzz {

using namespace gyre;
using namespace gyre::trust;

namespace {

struct Outcome {
  std::vector<Frame> frames;
  bool good = true;
};

Outcome take_all(std::span<const std::uint8_t> stream, const std::vector<std::size_t>& cuts) {
  Outcome outcome;
  FrameIntake intake;
  for (std::size_t turn = 0; outcome.good && !stream.empty(); ++turn) {
    const std::size_t piece =
        cuts.empty() ? stream.size() : std::min(cuts[turn % cuts.size()], stream.size());
    outcome.good = intake.take(stream.first(piece)).ok();
    stream = stream.subspan(piece);
    while (auto frame = intake.receive()) outcome.frames.push_back(std::move(*frame));
  }
  return outcome;
}

// The same, written down in the simplest way.
Outcome expected(std::span<const std::uint8_t> stream) {
  Outcome outcome;
  while (stream.size() >= 5) {
    const auto length =
        static_cast<std::uint32_t>(stream[0] + 256 * (stream[1] + 256 * stream[2])) |
        static_cast<std::uint32_t>(stream[3]) << 24;
    outcome.good = length > 0 && length <= max_frame_bytes;
    if (!outcome.good || stream.size() - 4 < length) break;
    const auto body = stream.subspan(5, length - 1);
    outcome.frames.push_back({stream[4], {body.begin(), body.end()}});
    stream = stream.subspan(4 + length);
  }
  return outcome;
}

bool same(const Outcome& a, const Outcome& b) {
  return a.good == b.good &&
         std::ranges::equal(a.frames, b.frames, [](const Frame& x, const Frame& y) {
           return x.type == y.type && x.body == y.body;
         });
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::vector<std::size_t> cuts(input.take<std::uint8_t>() % 8);
  for (std::size_t& cut : cuts) cut = 1 + std::size_t{input.take<std::uint8_t>()};
  const auto stream = input.rest();
  const Outcome whole = take_all(stream, {});
  GYRE_DEMAND(same(whole, expected(stream)));
  GYRE_DEMAND(same(take_all(stream, cuts), whole));

  std::vector<std::uint8_t> again;
  for (const Frame& frame : whole.frames) append_frame(frame.type, frame.body, again);
  GYRE_DEMAND(std::ranges::equal(again, stream.first(again.size())));
  return 0;
}

GYRE_FUZZ_TARGET(frame)

}  // namespace frame_fuzz
