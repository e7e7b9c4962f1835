#include "lib/gradsync/calls.h"

#include <string>

namespace gyre::gradsync {
namespace {

struct LastError {
  std::string text = "no error";
  std::string shown;  // what gyreGradGetLastError returned
};
thread_local LastError last_error;

}  // namespace

Handles& handles() {
  static Handles all;
  return all;
}

gyreResult_t answer(const Status& status) {
  if (!status.ok()) last_error.text = status.message();
  return static_cast<gyreResult_t>(status.code());
}

}  // namespace gyre::gradsync

const char* gyreGradGetLastError(void) {
  auto& last = gyre::gradsync::last_error;
  last.shown = last.text;
  return last.shown.c_str();
}
