// Status: the outcome of an operation. Result<T>: a Status or a value. Success allocates nothing.
// The function that finds a failure makes the Status, with its cause and values. Callers add what
// they know with `while_doing` and pass it up. Copies share their text, so a failure can be kept
// and passed on even when memory has run out.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gyre {

// One table of codes: the name in gyre.h after "gyre", the value, a text, what the caller can do.
// The first nine values are NCCL's (nccl.h 2.30). gyre.h repeats texts and remedies.
#define GYRE_CODES(X)                                                                           \
  X(Success, 0, "no error", "nothing to do")                                                    \
  X(UnhandledCudaError, 1, "a CUDA call failed", "read the cause; check the device and driver") \
  X(SystemError, 2, "a system call failed", "read the cause; it names the call and the limit")  \
  X(InternalError, 3, "a bug in Gyre", "report it with the output of GYRE_DEBUG=INFO")          \
  X(InvalidArgument, 4, "an argument is wrong", "correct the argument that the text names")     \
  X(InvalidUsage, 5, "the call is not allowed here", "follow the text; the call had no effect") \
  X(RemoteError, 6, "another rank failed", "see why that rank failed; make a new communicator") \
  X(InProgress, 7, "not finished yet", "call gyreCommGetAsyncError again")                      \
  X(Timeout, 8, "a deadline passed", "check the named rank; raise GYRE_TIMEOUT if it is slow")  \
  X(Mismatch, 9, "ranks made different calls", "make the same calls in one order on all ranks") \
  X(Aborted, 10, "the communicator was aborted", "make a new one; gyreCommAbort frees it")

enum class Code : int {
#define GYRE_CODE_ENUMERATOR(name, value, text, remedy) name = value,
  GYRE_CODES(GYRE_CODE_ENUMERATOR)
#undef GYRE_CODE_ENUMERATOR
};

std::string_view code_text(Code code);
std::string_view code_remedy(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(Code code, std::string message);
  // A failed system call: `call` and what it was applied to, then errno's name and text.
  static Status from_errno(std::string call, int error_number);

  // There was no memory for it, nor is there for this Status, which needs none.
  static Status out_of_memory() noexcept;

  Status(const Status& other) noexcept : detail_(other.detail_) {
    if (detail_ != nullptr) share();
  }
  Status(Status&& other) noexcept : detail_(std::exchange(other.detail_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(detail_, other.detail_);
    return *this;
  }
  ~Status() {
    if (detail_ != nullptr) let_go();
  }

  bool ok() const { return detail_ == nullptr; }
  Code code() const { return ok() ? Code::Success : failure_code(); }
  std::string_view message() const { return ok() ? std::string_view() : failure_message(); }
  // Ranks of the communicator that caused the failure, ascending; empty if none is to blame.
  const std::vector<int>& culprits() const;

  // Adds what the caller was doing, outermost first: "while doing X: cause".
  Status while_doing(std::string_view what) &&;
  Status blame(std::vector<int> ranks) &&;
  // The message and the remedy of its code, for people.
  std::string full_text() const;

 private:
  struct Detail;
  void share() const noexcept;
  void let_go() noexcept;
  void make_own();  // what copies share is not changed
  Code failure_code() const;
  std::string_view failure_message() const;

  Detail* detail_ = nullptr;
};

Status invalid_argument(std::string message);
Status invalid_usage(std::string message);
Status internal_error(std::string message);

template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): `return value;` makes a Result
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): and so does `return status;`
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    assert(!std::get<1>(state_).ok());
  }
  bool ok() const { return state_.index() == 0; }
  // Only of a success.
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  Status status() const& { return ok() ? Status() : std::get<1>(state_); }
  Status status() && { return ok() ? Status() : std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

#define GYRE_CONCAT_INNER(a, b) a##b
#define GYRE_CONCAT(a, b) GYRE_CONCAT_INNER(a, b)

// Returns the Status of `expression` from this function if it failed.
#define GYRE_TRY(expression)                           \
  do {                                                 \
    ::gyre::Status gyre_try_status = (expression);     \
    if (!gyre_try_status.ok()) return gyre_try_status; \
  } while (false)

// GYRE_ASSIGN(auto x, f()): x is f's value, or this function returns f's Status.
#define GYRE_ASSIGN(declaration, expression)                        \
  auto GYRE_CONCAT(gyre_result_, __LINE__) = (expression);          \
  if (!GYRE_CONCAT(gyre_result_, __LINE__).ok())                    \
    return std::move(GYRE_CONCAT(gyre_result_, __LINE__)).status(); \
  declaration = std::move(GYRE_CONCAT(gyre_result_, __LINE__)).value()

}  // namespace gyre
