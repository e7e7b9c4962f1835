#include "lib/plan/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gyre::plan {

namespace {

std::vector<std::int32_t> peers(const Lane& lane, const MoveLinks& links) {
  std::vector<std::int32_t> ranks;
  for (std::uint32_t i = 0; i < links.count; ++i) ranks.push_back(lane.links[links[i]].peer);
  return ranks;
}

}  // namespace

Geometry unit_geometry(const Plan& plan) {
  const Layout unit = Layout::even(1, plan.chunk_count());
  return {unit, unit, 1, plan.chunk_count()};
}

std::string verbs(const Step& step) {
  std::string words;
  const auto add = [&words](bool on, const char* word) {
    if (on) words += (words.empty() ? "" : " ") + std::string(word);
  };
  add(step.receives(), "recv");
  add(step.reduces(), "reduce");
  add(step.stores(), "store");
  add(step.sends(), "send");
  add(step.finishes(), "finish");
  add(step.paired(), "paired");
  add(step.packed(), "packed");
  add(step.always_sends(), "always_send");
  add(step.has(step_flag::staged), "staged");
  return words;
}

std::string to_text(const Plan& plan) {
  const Geometry geometry = unit_geometry(plan);
  std::string text;
  for (std::uint32_t number = 0; number < plan.lane_count(); ++number) {
    const Lane lane = plan.lane(number);
    for (Cursor cursor(lane, geometry, 1); !cursor.done(); cursor.advance()) {
      const Move move = cursor.move();
      std::vector<std::uint32_t> chunks;
      for_each_piece(move, [&](const Piece& piece) { chunks.push_back(piece.chunk); });
      text +=
          fmt::format("lane {} step {}.{:<3}{:<32}[{}] > [{}] > [{}]\n", number, move.step_index,
                      move.repeat, verbs(*move.step), fmt::join(peers(lane, move.recv), ", "),
                      fmt::join(chunks, ", "), fmt::join(peers(lane, move.send), ", "));
    }
  }
  return text;
}

}  // namespace gyre::plan
