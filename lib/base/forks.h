// Detects fork(). A child has its parent's memory but only one thread. It must not continue with
// its parent's connections, nor with work that the parent's threads had begun.
#pragma once

#include <cstdint>
#include <exception>
#include <type_traits>

namespace gyre {

// Another number in the child than in its parent.
std::uint32_t fork_count();

class ForkInCallback final : public std::exception {
 public:
  const char* what() const noexcept override {
    return "fork() was called in a function that Gyre had called, and the child has returned from "
           "it: the child must end in that function, or call exec";
  }
};

// Calls a function of the user's. In a child that comes back from it the caller must not go on.
template <typename Function>
auto call_user(const Function& function) {
  const std::uint32_t before = fork_count();
  if constexpr (std::is_void_v<decltype(function())>) {
    function();
    if (fork_count() != before) throw ForkInCallback();
  } else {
    auto result = function();
    if (fork_count() != before) throw ForkInCallback();
    return result;
  }
}

}  // namespace gyre
