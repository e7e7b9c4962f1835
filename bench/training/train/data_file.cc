#include "bench/training/train/data_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#if defined(GYRE_WITH_ZLIB)
#include <zlib.h>
#endif

namespace gyre::training {
namespace {

// Of all files together: a mistaken --data should not fill the memory.
constexpr std::size_t max_data_bytes = std::size_t{1} << 30;

#if defined(GYRE_WITH_ZLIB)
// What is not gzip's is read as it is.
std::string read_whole(const std::string& path, std::string* text) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return std::strerror(errno);
  char buffer[1 << 16];
  int count = 0;
  while ((count = gzread(file, buffer, sizeof buffer)) > 0 && text->size() < max_data_bytes)
    text->append(buffer, static_cast<std::size_t>(count));
  int error = Z_OK;
  const char* const why = gzerror(file, &error);
  std::string story = error == Z_ERRNO ? std::strerror(errno) : why;
  const int closed = gzclose_r(file);
  if (count < 0) return story;
  return closed == Z_OK ? "" : "it ends too early";
}
#else
std::string read_whole(const std::string& path, std::string* text) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!(content << file.rdbuf())) return errno == 0 ? "it is empty" : std::strerror(errno);
  if (content.view().starts_with("\x1f\x8b")) return "this build has no zlib: gunzip it first";
  *text += content.view();
  return "";
}
#endif

}  // namespace

std::string read_data_file(const std::string& path, std::string* text) {
  const std::size_t before = text->size();
  std::string why = read_whole(path, text);
  if (why.empty() && text->size() == before) why = "it is empty";
  if (why.empty() && text->size() >= max_data_bytes) why = "there is more than 1 GiB of data";
  return why.empty() ? "" : path + ": " + why;
}

}  // namespace gyre::training
