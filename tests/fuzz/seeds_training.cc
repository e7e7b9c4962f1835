// Seeds of the files that bench/training/train reads: checkpoints and digits.
#include "bench/training/train/checkpoint_head.h"
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

void add_checkpoints(Seeds& seeds) {
  const auto add = [&](const std::string& name, const std::string& text) {
    seeds.add("training_file", "checkpoint_" + name, Script(0).rest_text(text));
  };
  const training::CheckpointHead head{
      {.steps = 17, .epoch = 2, .taken = 48}, "adamw", {{"places", 5}, {"characters", 1 << 20}}};
  const std::string text = encode_head(head);
  add("honest", text + "numbers");
  add("cut", text.substr(0, text.size() - 1));
  add("not_json", std::string(text.size() - 1, '[') + "\n");
  add("another", std::string("{}").append(text.size() - 3, ' ') + "\n");
  const auto change = [&](const std::string& name, const std::string& from, const std::string& to) {
    std::string changed = text.substr(0, text.size() - 1);
    changed.replace(changed.find(from), from.size(), to);
    changed.resize(text.size(), ' ');
    changed.back() = '\n';
    add(name, changed);
  };
  change("version", "\"gyre_training\":1", "\"gyre_training\":2");
  change("negative", "17", "-1");
  change("without_epoch", "\"epoch\"", "\"epocs\"");
  change("without_elements", ",5]", ",0]");
  change("text_for_count", ",5]", ",\"5\"]");
  change("too_many", "1048576", "281474976710656");
  change("no_list", "[[", "7,[[");
  change("no_name", "\"places\"", "[]");
}

void add_digits(Seeds& seeds) {
  const auto add = [&](const std::string& name, const std::string& text) {
    seeds.add("training_file", "digits_" + name, Script(1).rest_text(text));
  };
  std::string line;
  for (int i = 0; i < 64; ++i) line += std::to_string(i % 17) + ",";
  std::string text;
  for (int i = 0; i < 10; ++i) text += line + std::to_string(i) + (i % 2 == 0 ? "\n" : "\r\n");
  add("honest", text);
  add("few", line + "1\n");
  add("cut", text.substr(0, text.size() - 10));
  add("as_floats", text + "0.0," + line.substr(2) + "1e0");
  const std::pair<const char*, const char*> labels[] = {
      {"large", "10"}, {"negative", "-1"}, {"half", "0.5"},  {"nan", "nan"},
      {"more", "1,"},  {"none", ""},       {"spaced", " 1"}, {"endless", "1e999"}};
  for (const auto& [name, label] : labels) add(std::string("label_") + name, line + label + "\n");
}

}  // namespace

void add_training_seeds(Seeds& seeds) {
  add_checkpoints(seeds);
  add_digits(seeds);
}

}  // namespace gyre::fuzz
