#include "lib/base/status.h"

#include "lib/base/errno_text.h"

#include <fmt/core.h>

#include <atomic>
#include <new>

namespace gyre {

struct Status::Detail {
  Code code;
  std::string message;
  std::vector<int> culprits;
  std::atomic<int> holders{1};

  Detail(Code of, std::string text, std::vector<int> ranks)
      : code(of), message(std::move(text)), culprits(std::move(ranks)) {}
};

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

Status::Status(Code code, std::string message) : detail_(new Detail(code, std::move(message), {})) {
  assert(code != Code::Success);
}

// Made in place and never destroyed; a text this short needs no memory of its own.
Status Status::out_of_memory() noexcept {
  alignas(Detail) static std::byte place[sizeof(Detail)];
  static Detail* const known = new (place) Detail(Code::SystemError, "out of memory", {});
  Status status;
  status.detail_ = known;
  status.share();
  return status;
}

void Status::share() const noexcept { detail_->holders.fetch_add(1, std::memory_order_relaxed); }

void Status::let_go() noexcept {
  // Pairs with itself: the last holder sees all that others have done with it.
  if (detail_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail_;
}

void Status::make_own() {
  if (detail_->holders.load(std::memory_order_acquire) == 1) return;
  Status own;
  own.detail_ = new Detail(detail_->code, detail_->message, detail_->culprits);
  std::swap(detail_, own.detail_);
}

Code Status::failure_code() const { return detail_->code; }
std::string_view Status::failure_message() const { return detail_->message; }

Status Status::from_errno(std::string call, int error_number) {
  return Status(Code::SystemError, fmt::format("{}: {}", call, errno_text(error_number)));
}

// Never destroyed: threads may ask while the process ends.
const std::vector<int>& Status::culprits() const {
  alignas(std::vector<int>) static std::byte place[sizeof(std::vector<int>)];
  static const std::vector<int>* const nobody = new (place) std::vector<int>;
  return ok() ? *nobody : detail_->culprits;
}

Status Status::while_doing(std::string_view what) && {
  if (!ok()) {
    std::string text = fmt::format("{}: {}", what, detail_->message);
    make_own();
    detail_->message = std::move(text);
  }
  return std::move(*this);
}

Status Status::blame(std::vector<int> ranks) && {
  if (!ok()) {
    make_own();
    detail_->culprits = std::move(ranks);
  }
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
