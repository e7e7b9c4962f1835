// The heat map of gyre link: a cell for each direction of each link, darker where it is nearer to
// the expectation of its kind, and in warm colours where it is named.
#include "lib/command_line/wrap.h"
#include "lib/topology/xml.h"
#include "tools/gyre/link_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace gyre::tools {
namespace {

constexpr double width = 700, left = 64, max_grid = 560, max_cell = 90, line_height = 18;
constexpr std::size_t title_columns = 76;  // of bold letters of 14 px, 9 px wide
constexpr int max_ticks = 16;

struct Shade {
  std::string_view fill, ink, meaning;
};
// Blue and orange, which those tell apart who see no red or green.
constexpr Shade as_expected = {"#2b6ca8", "#ffffff", "90 % of its kind or more"};
constexpr Shade somewhat_below = {"#8fbfe0", "#10314f", "less, and not slow"};
constexpr Shade is_slow = {"#f2a33a", "#3a2300", "slow"};
constexpr Shade is_dead = {"#3d3d3d", "#ffffff", "dead: no measurement"};
constexpr Shade is_corrupting = {"#b3123a", "#ffffff", "corrupting: bytes change"};
constexpr Shade is_unmeasured = {"#f1f1f1", "#777777", "no link of the plan"};
constexpr std::array<const Shade*, 6> legend = {&as_expected, &somewhat_below, &is_slow,
                                                &is_dead,     &is_corrupting,  &is_unmeasured};

const Shade& shade_of(const JudgedLink& link, const DirectedRate& rate, double share,
                      double slow_below) {
  if (rate.damage.bytes > 0) return is_corrupting;
  if (link.finding == LinkFinding::corrupting && link.measured.has_garbled_talk)
    return is_corrupting;
  if (!link.measured.failure.empty() && link.finding != LinkFinding::corrupting) return is_dead;
  // Slow both ways at once, or late: that is of both directions.
  const bool is_other = link.finding == LinkFinding::slow && link.up_share >= slow_below &&
                        link.down_share >= slow_below;
  if (is_other || share < slow_below) return is_slow;
  return share >= 0.9 ? as_expected : somewhat_below;
}

class HeatMap {
 public:
  HeatMap(const LinkJobFacts& facts, const LinkVerdict& verdict)
      : facts_(facts),
        verdict_(verdict),
        cell_(std::min(max_cell, max_grid / facts.ranks)),
        grid_(cell_ * facts.ranks) {}

  std::string document() {
    add_title();
    add_axes();
    add_cells();
    add_legend();
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
        width, bottom_ + line_height, body_);
  }

 private:
  void add(double x, double y, std::string_view text, std::string_view more = {}) {
    fmt::format_to(std::back_inserter(body_), "<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y,
                   more, topology::xml_text(text));
  }

  void add_title() {
    bottom_ = 10;
    std::string rest = command_line::wrapped(verdict_.sentence, 0, title_columns);
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      bottom_ += line_height;
      add(14, bottom_, rest.substr(0, end), " font-size=\"14\" font-weight=\"bold\"");
      rest.erase(0, std::min(end + 1, rest.size()));
    }
    bottom_ += line_height;
    add(14, bottom_,
        fmt::format("GB/s of {} among {}, one direction a cell",
                    counted(verdict_.links.size(), "link"),
                    counted(static_cast<std::size_t>(facts_.ranks), "rank")));
    top_ = bottom_ + 2.6 * line_height;
  }

  // Every rank, or each second, fifth, tenth ... one, so that the numbers do not touch.
  int tick_step() const {
    for (int power = 1;; power *= 10)
      for (const int factor : {1, 2, 5})
        if (facts_.ranks <= max_ticks * factor * power) return factor * power;
  }

  void add_axes() {
    add(left + grid_ / 2, top_ - 22, "to rank", " text-anchor=\"middle\"");
    add(0, 0, "from rank",
        fmt::format(" text-anchor=\"middle\" transform=\"translate(18 {:.1f}) rotate(-90)\"",
                    top_ + grid_ / 2));
    for (int rank = 0; rank < facts_.ranks; rank += tick_step()) {
      const double middle = (rank + 0.5) * cell_;
      add(left + middle, top_ - 6, std::to_string(rank), " text-anchor=\"middle\"");
      add(left - 8, top_ + middle + 4, std::to_string(rank), " text-anchor=\"end\"");
    }
  }

  void add_cells() {
    fmt::format_to(std::back_inserter(body_),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                   "fill=\"{}\"/>\n",
                   left, top_, grid_, grid_, is_unmeasured.fill);
    for (const JudgedLink& link : verdict_.links) {
      const auto [low, high] = link.measured.pair;
      add_cell(low, high, link, link.measured.up, link.up_share);
      add_cell(high, low, link, link.measured.down, link.down_share);
    }
    bottom_ = top_ + grid_;
  }

  void add_cell(int from, int to, const JudgedLink& link, const DirectedRate& rate, double share) {
    const Shade& shade = shade_of(link, rate, share, verdict_.slow_below);
    ++used_[&shade];
    const double x = left + to * cell_, y = top_ + from * cell_;
    const double gap = cell_ > 12 ? 1 : 0;
    fmt::format_to(std::back_inserter(body_),
                   "<g><title>rank {} to {}: {}, {}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" "
                   "width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/></g>\n",
                   from, to,
                   rate.bytes_per_s > 0 ? rate_text(rate.bytes_per_s) : std::string("no figure"),
                   topology::xml_text(link.reason.empty() ? link.measured.kind : link.reason),
                   x + gap / 2, y + gap / 2, cell_ - gap, cell_ - gap, shade.fill);
    if (cell_ < 34) return;
    const std::string text = &shade == &is_dead     ? "dead"
                             : rate.bytes_per_s > 0 ? fmt::format("{:.3g}", rate.bytes_per_s / 1e9)
                                                    : "-";
    add(x + cell_ / 2, y + cell_ / 2 + 4, text,
        fmt::format(" text-anchor=\"middle\" font-size=\"{}\" fill=\"{}\"", cell_ < 46 ? 10 : 12,
                    shade.ink));
  }

  void add_legend() {
    double x = left;
    bottom_ += 12;
    for (const Shade* const shade : legend) {
      if (shade != &is_unmeasured && used_[shade] == 0) continue;
      const double wide = 30 + 6.4 * static_cast<double>(shade->meaning.size());
      if (x > left && x + wide > width) {
        x = left;
        bottom_ += line_height + 2;
      }
      fmt::format_to(std::back_inserter(body_),
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" fill=\"{}\" "
                     "stroke=\"#bbbbbb\" stroke-width=\"0.5\"/>\n",
                     x, bottom_, shade->fill);
      add(x + 18, bottom_ + 11, shade->meaning);
      x += wide;
    }
    bottom_ += line_height;
  }

  const LinkJobFacts& facts_;
  const LinkVerdict& verdict_;
  const double cell_, grid_;
  double top_ = 0, bottom_ = 0;
  std::string body_;
  std::map<const Shade*, int> used_;
};

}  // namespace

std::string link_svg(const LinkJobFacts& facts, const LinkVerdict& verdict) {
  return HeatMap(facts, verdict).document();
}

}  // namespace gyre::tools
