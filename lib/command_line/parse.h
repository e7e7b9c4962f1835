// The words that a program is called with, sorted by CLI11: which option was given by which name,
// and with which text.
#pragma once

#include "lib/command_line/option.h"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace gyre::command_line {

struct Given {
  Option* option;
  std::string typed;                 // its name, or its place
  std::optional<std::string> value;  // none: it was named without one
};

struct SortedWords {
  bool wants_help = false;           // then the others are empty
  std::vector<Given> given;          // one for each value, in the words' order
  std::vector<std::string> unknown;  // options that there are not
  std::vector<std::string> rest;     // words that have no place, as typed
};

// `has_rest`: the first word that is no option, and all after it, are the rest.
SortedWords sort_words(std::deque<Option>& options, bool has_rest, std::vector<std::string> words);

}  // namespace gyre::command_line
