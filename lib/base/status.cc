#include "lib/base/status.h"

#include <fmt/format.h>

#include <cstring>

namespace gyre {

std::string_view code_text(Code code) {
  switch (code) {
#define GYRE_CODE_TEXT(name, value, text, remedy) \
  case Code::name:                                \
    return text;
    GYRE_CODES(GYRE_CODE_TEXT)
#undef GYRE_CODE_TEXT
  }
  return "unknown result code";
}

std::string_view code_remedy(Code code) {
  switch (code) {
#define GYRE_CODE_REMEDY(name, value, text, remedy) \
  case Code::name:                                  \
    return remedy;
    GYRE_CODES(GYRE_CODE_REMEDY)
#undef GYRE_CODE_REMEDY
  }
  return "";
}

Status::Status(Code code, std::string message) : detail_(new Detail{code, std::move(message), {}}) {
  assert(code != Code::Success);
}

Status Status::from_errno(std::string call, int error_number) {
  const char* name = strerrorname_np(error_number);
  return Status(Code::SystemError, fmt::format("{}: {} ({})", call, name ? name : "errno",
                                               strerrordesc_np(error_number)));
}

Status::Status(const Status& other)
    : detail_(other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) detail_ = other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr;
  return *this;
}

const std::vector<int>& Status::culprits() const {
  static const std::vector<int> nobody;
  return ok() ? nobody : detail_->culprits;
}

Status Status::while_doing(std::string_view what) && {
  if (!ok()) detail_->message = fmt::format("{}: {}", what, detail_->message);
  return std::move(*this);
}

Status Status::blame(std::vector<int> ranks) && {
  if (!ok()) detail_->culprits = std::move(ranks);
  return std::move(*this);
}

std::string Status::full_text() const {
  if (ok()) return "no error";
  return fmt::format("{} ({}; what to do: {})", detail_->message, code_text(detail_->code),
                     code_remedy(detail_->code));
}

Status invalid_argument(std::string message) {
  return Status(Code::InvalidArgument, std::move(message));
}
Status invalid_usage(std::string message) { return Status(Code::InvalidUsage, std::move(message)); }
Status internal_error(std::string message) {
  return Status(Code::InternalError, std::move(message));
}

}  // namespace gyre
