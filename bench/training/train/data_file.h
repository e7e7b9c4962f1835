// Files with what a model learns from, whole, unpacked where they are gzip's.
#pragma once

#include <string>

namespace gyre::training {

// Adds a file's content to `text`. Empty, or why it cannot.
std::string read_data_file(const std::string& path, std::string* text);

}  // namespace gyre::training
