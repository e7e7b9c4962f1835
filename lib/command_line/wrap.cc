#include "lib/command_line/wrap.h"

#include <algorithm>

namespace gyre::command_line {

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  const std::string new_line = '\n' + std::string(indent, ' ');
  std::string page;
  while (true) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t spaces = std::min(line.find_first_not_of(' '), line.size());
    const std::string own_indent(line.substr(0, spaces));
    line.remove_prefix(spaces);
    const std::size_t room = columns > indent + spaces ? columns - indent - spaces : 1;
    page += own_indent;
    while (line.size() > room) {
      std::size_t end = line.rfind(' ', room);
      if (end == line.npos) end = line.find(' ');
      if (end == line.npos) break;
      page += std::string(line.substr(0, end)) + new_line + own_indent;
      line.remove_prefix(end + 1);
    }
    page += line;
    if (text.empty()) return page;
    page += text.front() == '\n' ? "\n" : new_line;
  }
}

}  // namespace gyre::command_line
