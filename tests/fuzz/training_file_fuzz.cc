// Files that bench/training/train reads. Input: u8 which, then the file.
#include "bench/training/train/checkpoint_head.h"
#include "bench/training/train/digits_data.h"
#include "tests/fuzz/input.h"

namespace training_file_fuzz {

using namespace gyre::training;

namespace {

void read_checkpoint(std::string_view file) {
  CheckpointHead head, again;
  std::uint64_t begin = 0, begin_again = 0;
  if (const std::string why = decode_head(file, &head, &begin); !why.empty()) {
    GYRE_DEMAND(gyre::fuzz::is_one_line(why));
    return;
  }
  GYRE_DEMAND(begin > 0 && begin <= file.size() && begin % 4096 == 0);
  GYRE_DEMAND(head.elements() > 0 && head.elements() < std::uint64_t{1} << 60);
  GYRE_DEMAND(decode_head(encode_head(head), &again, &begin_again) == "" && again == head);
}

void read_digits(std::string_view file) {
  DigitsData data;
  if (const std::string why = parse_digits(file, &data); !why.empty()) {
    GYRE_DEMAND(gyre::fuzz::is_one_line(why));
    return;
  }
  GYRE_DEMAND(data.values.size() == data.count() * DigitsData::features);
  for (const std::uint8_t value : data.values) GYRE_DEMAND(value <= 16);
  for (const std::uint8_t label : data.labels) GYRE_DEMAND(label < DigitsData::kinds);
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data + 1), bytes - 1);
  data[0] % 2 == 0 ? read_checkpoint(file) : read_digits(file);
  return 0;
}

GYRE_FUZZ_TARGET(training_file)

}  // namespace training_file_fuzz
