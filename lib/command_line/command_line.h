// The words that a program is called with: which there may be, what they are stored in, what --help
// says of them, and what is said of wrong ones. Every program reads its words alike:
//
//   -n 4, -n4, --np 4, --np=4   an option and its value; the last one counts
//   --                          what follows are no options
//   -h, --help                  print the help and do nothing else, whatever else is wrong
//
// No library for this is used: errors are to name an option as it was typed, and headers of such
// libraries take 20 seconds to compile in each file.
#pragma once

#include "lib/command_line/forms.h"

#include <concepts>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::command_line {

inline constexpr int exit_usage = 2;

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
  std::size_t count = 0;       // how often it was given

  // Of what it fills.
  Form form;                    // of one value
  bool splits = false;          // values are separated by commas, too
  std::function<void()> begin;  // before the first value
  std::function<void(const std::string&)> store;
};

// What to print instead of going on.
struct EarlyEnd {
  bool is_help = false;  // else an error, without the program's name
  std::string text;
};

class CommandLine {
 public:
  // The name is what people type: "gyre run".
  CommandLine(std::string name, std::string description);
  // Options are bound to what they fill.
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // `names` as in "-n,--np"; a name without dashes is a place. What is returned may be changed
  // until the words are read. A vector takes one value of each mention; of numbers, also with
  // commas.
  template <typename Value>
  Option& add_option(std::string_view names, Value& target, Form form, std::string value,
                     std::string meaning);
  Option& add_flag(std::string_view names, bool& target, std::string meaning);
  // The first word that is no option, and all after it, are stored as they are.
  void add_rest(std::vector<std::string>& target, std::string value);
  // At the end of --help: `example` is a line, `footer` a text.
  void add_example(std::string example);
  void set_footer(std::string footer) { footer_ = std::move(footer); }
  // Long names may be cut short, as long as only one begins so.
  void take_beginnings() { takes_beginnings_ = true; }

  // Fills what the options are bound to; nothing: all is right.
  std::optional<EarlyEnd> read(const std::vector<std::string>& words);
  // The same of main(), printed: the process's exit code if there is an answer.
  std::optional<int> read(int argc, const char* const* argv);
  std::string help() const;
  const std::deque<Option>& options() const { return options_; }

 private:
  // A value, or a mention without one, on its way to its option.
  struct Given {
    Option* option;
    std::string typed;  // the option's name as it was typed
    std::vector<std::string> values;
  };
  class WordSorter;

  Option& declare(std::string_view names, std::string value, std::string meaning);
  std::string store(const Given& given);
  std::string missing() const;

  std::string name_, description_, footer_;
  std::vector<std::string> examples_;
  std::deque<Option> options_;
  std::vector<std::string>* rest_ = nullptr;
  std::string rest_value_;
  bool takes_beginnings_ = false;
};

template <typename Value>
struct Stored {
  static constexpr bool is_list = false, is_text = std::same_as<Value, std::string>;
  static Value read(const std::string& text) {
    if constexpr (is_text) return text;
    if constexpr (std::floating_point<Value>) return static_cast<Value>(read_number(text));
    if constexpr (std::integral<Value>) return static_cast<Value>(read_whole(text));
  }
  static void begin(Value&) {}
  static void store(Value& target, const std::string& text) { target = read(text); }
};
template <typename Value>
struct Stored<std::vector<Value>> {
  static constexpr bool is_list = true, is_text = Stored<Value>::is_text;
  static void begin(std::vector<Value>& target) { target.clear(); }
  static void store(std::vector<Value>& target, const std::string& text) {
    target.push_back(Stored<Value>::read(text));
  }
};

template <typename Value>
Option& CommandLine::add_option(std::string_view names, Value& target, Form form, std::string value,
                                std::string meaning) {
  Option& option = declare(names, std::move(value), std::move(meaning));
  option.form = std::move(form);
  option.splits = Stored<Value>::is_list && !Stored<Value>::is_text;
  option.begin = [&target] { Stored<Value>::begin(target); };
  option.store = [&target](const std::string& text) { Stored<Value>::store(target, text); };
  return option;
}

}  // namespace gyre::command_line
