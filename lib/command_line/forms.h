// Forms: what the value of an option may be. A form looks at one text and says what is wrong with
// it, in words that follow the option's name ("-n: two is not a number").
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace gyre::command_line {

// Empty: the text is right.
using Form = std::function<std::string(const std::string& text)>;

Form any_text();
Form whole(std::int64_t least, std::int64_t most = std::numeric_limits<std::int64_t>::max());
Form number(double least, double most);
Form one_of(std::vector<std::string> words);
Form size();  // bytes, with K, M, G or T of 1024

// Of a text that its form took.
std::int64_t read_whole(const std::string& text);  // of whole() and size()
double read_number(const std::string& text);

}  // namespace gyre::command_line
