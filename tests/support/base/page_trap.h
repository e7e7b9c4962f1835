// A page whose first reader or writer stops there, in the middle of its work, while something else
// happens. One at a time in a process.
#pragma once

#include "tests/support/catch.h"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <sys/mman.h>
#include <utility>

#if defined(__SANITIZE_THREAD__)
// The trap is sprung by this thread's own access, not in the middle of malloc.
extern "C" inline __attribute__((used, visibility("default"))) const char*
__tsan_default_options() {
  return "report_signal_unsafe=0";
}
#endif

namespace gyre::tests {

class PageTrap {
 public:
  static constexpr std::size_t page_bytes = 4096;

  // `meanwhile` runs on the thread that touches the page.
  PageTrap(void* page, std::function<void()> meanwhile) {
    meanwhile_ = std::move(meanwhile);
    page_ = static_cast<std::byte*>(page);
    is_sprung_ = false;
    REQUIRE(mprotect(page, page_bytes, PROT_NONE) == 0);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    action.sa_sigaction = [](int, siginfo_t* about, void*) {
      if (about->si_addr < page_ || about->si_addr >= page_ + page_bytes) std::abort();
      mprotect(page_, page_bytes, PROT_READ | PROT_WRITE);
      if (!is_sprung_.exchange(true)) meanwhile_();
    };
    REQUIRE(sigaction(SIGSEGV, &action, &before_) == 0);
  }
  ~PageTrap() { (void)sigaction(SIGSEGV, &before_, nullptr); }
  PageTrap(const PageTrap&) = delete;
  PageTrap& operator=(const PageTrap&) = delete;
  bool is_sprung() const { return is_sprung_; }

 private:
  inline static std::byte* page_ = nullptr;
  inline static std::atomic<bool> is_sprung_{false};
  inline static std::function<void()> meanwhile_;
  struct sigaction before_ {};
};

}  // namespace gyre::tests
