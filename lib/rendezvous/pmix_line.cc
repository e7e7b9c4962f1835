// PMIx: a library speaks to the launcher, and tells by a callback on its own thread when it is
// done.
#include "lib/base/wait.h"
#include "lib/loaded/pmix.h"
#include "lib/rendezvous/launcher_line.h"

#include <fmt/core.h>

#include <atomic>
#include <cstring>
#include <functional>

namespace gyre::rendezvous {
namespace {

// What one of the library's threads tells when a call has ended. The call may outlive our patience.
struct PmixCall {
  std::atomic<std::uint32_t> done = 0;
  loaded::PmixStatus status = loaded::pmix::ok;  // these two are the library's until done
  std::string text;

  void end(loaded::PmixStatus how) {
    status = how;
    done.store(1, std::memory_order_release);  // pairs with the acquire in wait_for
    wake_futex(&done);
  }
};

class PmixLine final : public LauncherLine {
 public:
  explicit PmixLine(std::unique_ptr<const loaded::Pmix> library) : pmix_(std::move(library)) {}

  Status greet() {
    const loaded::PmixStatus status = pmix_->init(&root_, nullptr, 0);
    root_.rank = 0;
    return judged("PMIx_Init", status);
  }
  Status put(const std::string& key, const std::string& value, Wait&) override {
    loaded::PmixValue text{};
    text.type = loaded::pmix::is_text;
    text.text = value.c_str();
    GYRE_TRY(judged("PMIx_Put", pmix_->put(loaded::pmix::for_all, key.c_str(), &text)));
    return judged("PMIx_Commit", pmix_->commit());
  }
  Status fence(Wait& wait) override {
    const auto done = [](loaded::PmixStatus status, void* call) { take(call)->end(status); };
    const auto start = [&](void* call) { return pmix_->fence(nullptr, 0, nullptr, 0, done, call); };
    return run("PMIx_Fence_nb", start, wait).status();
  }
  Result<std::string> get(const std::string& key, Wait& wait) override {
    const auto got = [](loaded::PmixStatus status, loaded::PmixValue* value, void* own) {
      const std::shared_ptr<PmixCall> call = take(own);
      const bool is_text = value != nullptr && value->type == loaded::pmix::is_text;
      if (status == loaded::pmix::ok && is_text && value->text != nullptr) call->text = value->text;
      call->end(status);
    };
    const auto start = [&](void* call) {
      return pmix_->get(&root_, key.c_str(), nullptr, 0, got, call);
    };
    GYRE_ASSIGN(std::string text, run("PMIx_Get_nb", start, wait));
    if (text.empty()) return Status(Code::RemoteError, "PMIx_Get_nb gave no text");
    return text;
  }
  void finish(Wait&) override { (void)pmix_->finalize(nullptr, 0); }

 private:
  using Start = std::function<loaded::PmixStatus(void* call)>;

  static std::shared_ptr<PmixCall> take(void* call) {
    const std::unique_ptr<std::shared_ptr<PmixCall>> own(
        static_cast<std::shared_ptr<PmixCall>*>(call));
    return *own;
  }

  Result<std::string> run(std::string_view what, const Start& start, Wait& wait) {
    const auto call = std::make_shared<PmixCall>();
    auto own = std::make_unique<std::shared_ptr<PmixCall>>(call);
    const loaded::PmixStatus status = start(own.get());
    if (status == loaded::pmix::done_at_once) return std::string();
    GYRE_TRY(judged(what, status));
    (void)own.release();  // the callback's
    GYRE_TRY(wait_for(what, *call, wait));
    GYRE_TRY(judged(what, call->status));
    return std::move(call->text);
  }

  static Status wait_for(std::string_view what, PmixCall& call, Wait& wait) {
    const auto arm = [&](WaitSet& set) {
      set.add_futex(&call.done, 0);
      return true;
    };
    while (call.done.load(std::memory_order_acquire) == 0)
      if (wait.pause(arm, [] {}) == Wait::Outcome::deadline)
        return Status(Code::Timeout, fmt::format("the launcher does not answer ({})", what));
    return Status();
  }

  Status judged(std::string_view what, loaded::PmixStatus status) const {
    if (status == loaded::pmix::ok || status == loaded::pmix::done_at_once) return Status();
    const char* const text = pmix_->error_text(status);
    return Status(Code::RemoteError, fmt::format("{} failed: {} ({})", what,
                                                 text != nullptr ? text : "no text", status));
  }

  const std::unique_ptr<const loaded::Pmix> pmix_;
  loaded::PmixProcess root_{};
};

}  // namespace

Result<std::unique_ptr<LauncherLine>> open_pmix(std::unique_ptr<const loaded::Pmix> library) {
  auto line = std::make_unique<PmixLine>(std::move(library));
  GYRE_TRY(line->greet());
  return std::unique_ptr<LauncherLine>(std::move(line));
}

}  // namespace gyre::rendezvous
