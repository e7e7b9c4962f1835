#include "lib/plan/draw.h"

#include "lib/plan/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace gyre::plan {

namespace {

constexpr int margin = 64;      // pixels, left of the first column and above the first row
constexpr int row_height = 40;  // from a rank to the next
constexpr int legend_limit = 16;
constexpr int min_width = 720;  // of the line that explains the strokes

// Wide columns for a few moves, narrow ones for many.
int column_width(std::uint64_t columns) {
  return static_cast<int>(
      std::clamp<std::uint64_t>(1600 / std::max<std::uint64_t>(columns, 1), 24, 96));
}

// Hues a golden angle apart, so that chunks with neighbouring numbers differ.
std::string colour(std::uint32_t chunk) {
  return fmt::format("hsl({},70%,42%)", static_cast<std::uint32_t>(chunk * 137.508) % 360);
}

std::string colour(const MessageInTransit& flight) {
  return flight.chunks.empty() ? "#999" : colour(flight.chunks.front());
}

const char* dashes(Delivery delivery) {
  if (delivery == Delivery::pull) return " stroke-dasharray=\"2 3\"";
  return delivery == Delivery::push ? "" : " stroke-dasharray=\"7 3\"";
}

class Picture {
 public:
  Picture(const Plan& plan, const Timeline& timeline)
      : plan_(plan), timeline_(timeline), column_(column_width(timeline.end)) {}

  std::string document() {
    const int width = std::max(x(timeline_.end) + margin, min_width);
    const int height = y(plan_.rank_count()) + margin;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"12\" y=\"22\" font-size=\"15\">{2} {3}, {4} ranks</text>\n",
        width, height, plan_.algorithm(), collective_name(plan_.collective()), plan_.rank_count());
    grid();
    for (const MessageInTransit& flight : timeline_.flights) arrow(flight);
    legend();
    return text_ + "</svg>\n";
  }

 private:
  int x(std::uint64_t time) const { return margin + static_cast<int>(time) * column_; }
  static int y(std::int32_t rank) { return margin + rank * row_height; }

  void grid() {
    for (std::uint64_t time = 0; time <= timeline_.end; ++time) {
      text_ += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#eee\"/>\n",
                           x(time), y(0) - 10, y(plan_.rank_count() - 1) + 10);
    }
    for (std::int32_t rank = 0; rank < plan_.rank_count(); ++rank) {
      text_ += fmt::format(
          "<line x1=\"{0}\" y1=\"{2}\" x2=\"{1}\" y2=\"{2}\" stroke=\"#bbb\"/>"
          "<text x=\"12\" y=\"{3}\">rank {4}</text>\n",
          x(0), x(timeline_.end), y(rank), y(rank) + 4, rank);
    }
  }

  // From the sender's row to the receiver's, with a head that a marker would not colour everywhere.
  void arrow(const MessageInTransit& flight) {
    const double from_x = x(flight.sent);
    const double to_x = x(std::max(flight.received, flight.sent + 1));
    const double from_y = y(flight.from);
    const double to_y = y(flight.to) + (flight.from == flight.to ? -6 : 0);
    const double length = std::max(1.0, std::hypot(to_x - from_x, to_y - from_y));
    const double ahead_x = (to_x - from_x) / length;
    const double ahead_y = (to_y - from_y) / length;
    const double base_x = to_x - 8 * ahead_x;
    const double base_y = to_y - 8 * ahead_y;
    text_ += fmt::format(
        "<g class=\"message\" stroke=\"{0}\" fill=\"{0}\"><title>rank {1} to {2}, channel {3}: "
        "chunks [{4}]</title><line x1=\"{5:.0f}\" y1=\"{6:.0f}\" x2=\"{7:.1f}\" y2=\"{8:.1f}\" "
        "stroke-width=\"1.6\"{9}/>",
        colour(flight), flight.from, flight.to, flight.channel, fmt::join(flight.chunks, ", "),
        from_x, from_y, base_x, base_y, dashes(flight.delivery));
    text_ += fmt::format(
        "<path stroke=\"none\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\"/></g>\n", to_x,
        to_y, base_x - 3 * ahead_y, base_y + 3 * ahead_x, base_x + 3 * ahead_y,
        base_y - 3 * ahead_x);
  }

  void legend() {
    const int top = y(plan_.rank_count());
    const int shown = std::min<int>(legend_limit, static_cast<int>(plan_.chunk_count()));
    for (int chunk = 0; chunk < shown; ++chunk) {
      text_ +=
          fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">chunk {}</text>\n", margin + chunk * 68,
                      top, colour(static_cast<std::uint32_t>(chunk)), chunk);
    }
    text_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" fill=\"#666\">if memory can be shared: dotted, read in place; "
        "solid, "
        "written in place; dashed, through a slot</text>\n",
        margin, top + 22);
  }

  const Plan& plan_;
  const Timeline& timeline_;
  int column_;
  std::string text_;
};

}  // namespace

Result<std::string> draw(std::span<const Plan> plans) {
  if (plans.empty()) return invalid_argument("a drawing of no plans");
  GYRE_ASSIGN(const Timeline flights, timeline(plans, plans.front().chunk_count(), 1));
  return Picture(plans.front(), flights).document();
}

}  // namespace gyre::plan
