// An option: its names, what --help says of it, and what it fills.
#pragma once

#include "lib/command_line/forms.h"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gyre::command_line {

struct Option {
  std::vector<std::string> names;  // "-n", "--np"
  std::string place;               // not empty: a word without a name may be its value
  std::string value;               // what --help calls its value; empty: it has none
  std::string meaning;
  std::string heading;       // of its part of --help; empty: the first
  std::string default_text;  // not empty: --help shows it
  bool is_required = false;
  bool value_is_optional = false;
  bool takes_several = false;  // values, up to the next option
  std::size_t count = 0;       // of its values, and of mentions without one

  // Of what it fills.
  Form form;                    // of one value
  bool splits = false;          // values are separated by commas, too
  std::function<void()> begin;  // before the first value
  std::function<void(const std::string&)> store;
};

}  // namespace gyre::command_line
