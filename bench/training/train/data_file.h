// Files of training data, read whole, and unpacked if they are gzip's.
#pragma once

#include <string>

namespace gyre::training {

// Adds a file's content to `text`. Empty, or why it cannot.
std::string read_data_file(const std::string& path, std::string* text);

}  // namespace gyre::training
