#include "bench/training/train/digits_data.h"

#include "bench/training/train/data_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>

namespace gyre::training {
namespace {

const char* const default_path =
    "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz";
constexpr int max_value = 16;
constexpr std::size_t made_digits = 1797;  // as many as there are real ones

// "0,0,5,...,7": the numbers of one line. False: it is not that.
bool parse_line(std::string_view line, DigitsData* data) {
  const char* place = line.data();
  const char* const end = line.data() + line.size();
  for (std::size_t i = 0; i <= DigitsData::features; ++i) {
    if (i > 0 && (place == end || *place++ != ',')) return false;
    double value = 0;  // "5", and "5.0" as some tools write it
    const auto [next, error] = std::from_chars(place, end, value);
    const bool is_label = i == DigitsData::features;
    if (error != std::errc() || !(value >= 0 && value <= (is_label ? 9 : max_value))) return false;
    const auto number = static_cast<std::uint8_t>(value);
    if (static_cast<double>(number) != value) return false;
    (is_label ? data->labels : data->values).push_back(number);
    place = next;
  }
  return place == end;
}

}  // namespace

std::string parse_digits(std::string_view text, DigitsData* data) {
  *data = {};
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!parse_line(line, data))
      return "line " + std::to_string(number) +
             " is not 64 numbers of 0 to 16 and a digit, with commas between them";
  }
  return data->count() < DigitsData::kinds ? "there are fewer than ten digits" : "";
}

DigitsData make_digits(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(below));
  };
  std::vector<int> patterns(DigitsData::kinds * DigitsData::features);
  for (int& point : patterns) point = draw(3) == 0 ? max_value : 0;
  DigitsData data;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t kind = static_cast<std::size_t>(draw(DigitsData::kinds));
    data.labels.push_back(static_cast<std::uint8_t>(kind));
    for (std::size_t point = 0; point < DigitsData::features; ++point) {
      const int noise = draw(13) + draw(13) - 12;
      const int value = patterns[kind * DigitsData::features + point] + noise;
      data.values.push_back(static_cast<std::uint8_t>(std::clamp(value, 0, max_value)));
    }
  }
  data.source = "MADE-UP digits of seed " + std::to_string(seed) + " (no " + default_path +
                "; give real ones by --data)";
  return data;
}

std::string load_digits(const std::vector<std::string>& paths, std::uint64_t seed,
                        DigitsData* data) {
  if (paths.size() > 1) return "digits come from one file, and --data names several";
  std::error_code error;
  if (paths.empty() && !std::filesystem::exists(default_path, error)) {
    *data = make_digits(seed, made_digits);
    return "";
  }
  const std::string path = paths.empty() ? default_path : paths[0];
  std::string text;
  if (std::string why = read_data_file(path, &text); !why.empty()) return why;
  if (const std::string why = parse_digits(text, data); !why.empty()) return path + ": " + why;
  data->source = path + ", " + std::to_string(data->count()) + " digits";
  return "";
}

}  // namespace gyre::training
