#include "bench/training/train/text_data.h"

#include "bench/training/train/data_file.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace gyre::training {
namespace {

namespace fs = std::filesystem;
const char* const default_folder = "/usr/share/common-licenses";

std::vector<std::string> default_paths() {
  std::vector<std::string> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(default_folder, error))
    if (!entry.is_symlink(error) && entry.is_regular_file(error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TextData encode_text(const std::string& text) {
  std::array<bool, 256> occurs{};
  for (const char character : text) occurs[static_cast<std::uint8_t>(character)] = true;
  std::array<std::uint8_t, 256> code{};
  TextData data;
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    code[byte] = static_cast<std::uint8_t>(data.characters.size());
    data.characters += static_cast<char>(byte);
  }
  data.codes.reserve(text.size());
  for (const char character : text)
    data.codes.push_back(code[static_cast<std::uint8_t>(character)]);
  return data;
}

std::string load_text(std::vector<std::string> paths, TextData* data) {
  const bool is_given = !paths.empty();
  if (!is_given) paths = default_paths();
  if (paths.empty())
    return std::string("there is no text in ") + default_folder + ": give some by --data";
  std::string text;
  for (const std::string& path : paths)
    if (std::string why = read_data_file(path, &text); !why.empty()) return why;
  *data = encode_text(text);
  data->source = is_given && paths.size() == 1
                     ? paths[0]
                     : std::to_string(paths.size()) + " files" +
                           (is_given ? "" : std::string(" of ") + default_folder);
  data->source += ", " + std::to_string(text.size()) + " characters";
  return "";
}

}  // namespace gyre::training
