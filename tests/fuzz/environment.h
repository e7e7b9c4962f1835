// An environment as lines NAME=VALUE: readable in the corpus, and easy for a fuzzer's dictionary.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace gyre::fuzz {

// The first of two lines with one name counts, as with execve; lines without "=" are left out, and
// what follows a NUL, which no variable can hold.
inline std::map<std::string, std::string> environment_of(std::span<const std::uint8_t> bytes) {
  std::map<std::string, std::string> environment;
  std::string text(bytes.begin(), bytes.end());
  text = text.substr(0, text.find('\0'));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::size_t equals = line.find('=');
    if (equals != line.npos) environment.emplace(line.substr(0, equals), line.substr(equals + 1));
    begin = end + 1;
  }
  return environment;
}

}  // namespace gyre::fuzz
