#include "bench/training/train/checkpoint_head.h"

#include <nlohmann/json.hpp>

namespace gyre::training {
namespace {

constexpr std::size_t alignment = 4096;
constexpr std::size_t max_bytes = 1 << 20;
// So that no sum of them, in bytes, overflows.
constexpr std::uint64_t max_elements = std::uint64_t{1} << 48;
constexpr int version = 1;

bool take_number(const nlohmann::json& document, const char* name, std::uint64_t* value) {
  const auto found = document.find(name);
  if (found == document.end() || !found->is_number_unsigned()) return false;
  *value = found->get<std::uint64_t>();
  return true;
}

bool take_tensors(const nlohmann::json& list, CheckpointHead* head) {
  if (!list.is_array() || list.empty()) return false;
  std::uint64_t sum = 0;
  for (const nlohmann::json& tensor : list) {
    if (!tensor.is_array() || tensor.size() != 2 || !tensor[0].is_string() ||
        !tensor[1].is_number_unsigned())
      return false;
    const auto count = tensor[1].get<std::uint64_t>();
    if (count == 0 || count > max_elements || (sum += count) > max_elements) return false;
    head->tensors.emplace_back(tensor[0].get<std::string>(), count);
  }
  return true;
}

}  // namespace

CheckpointHead CheckpointHead::of(const Model& model, const std::string& optimizer,
                                  const TrainingProgress& progress) {
  CheckpointHead head{progress, optimizer, {}};
  for (const TensorShape& shape : model.tensors())
    head.tensors.emplace_back(shape.name, shape.count);
  return head;
}

std::uint64_t CheckpointHead::elements() const {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : tensors) sum += count;
  return sum;
}

std::string encode_head(const CheckpointHead& head) {
  nlohmann::ordered_json document = {{"gyre_training", version},     {"steps", head.progress.steps},
                                     {"epoch", head.progress.epoch}, {"taken", head.progress.taken},
                                     {"optimizer", head.optimizer},  {"tensors", head.tensors}};
  std::string text = document.dump();
  text.resize((text.size() + alignment) / alignment * alignment, ' ');
  text.back() = '\n';
  return text;
}

std::string decode_head(std::string_view file, CheckpointHead* head, std::uint64_t* begin) {
  *head = {};
  const std::size_t end = file.substr(0, max_bytes).find('\n');
  if (end == std::string_view::npos || (end + 1) % alignment != 0)
    return "it is no checkpoint of this program";
  const auto document = nlohmann::json::parse(file.substr(0, end), nullptr, false);
  if (!document.is_object() || !document.contains("gyre_training"))
    return "it is no checkpoint of this program";
  if (document["gyre_training"] != version) return "it is of another version of this program";
  const auto optimizer = document.find("optimizer");
  const auto tensors = document.find("tensors");
  if (optimizer == document.end() || !optimizer->is_string() || tensors == document.end() ||
      !take_tensors(*tensors, head) || !take_number(document, "steps", &head->progress.steps) ||
      !take_number(document, "epoch", &head->progress.epoch) ||
      !take_number(document, "taken", &head->progress.taken))
    return "its first line is damaged";
  head->optimizer = optimizer->get<std::string>();
  *begin = end + 1;
  return "";
}

}  // namespace gyre::training
