#include "lib/comm/immediate_transfer.h"

#include "lib/comm/short_wait.h"

namespace gyre::comm {

bool ImmediateTransfer::await(Mailbox& box, const Transfer& transfer, const WaitPolicy& policy) {
  record_.blocked();
  Mailbox::Taken taken = Mailbox::Taken::not_here;
  return wait_shortly(policy, [&] {
    taken = box.take_now(transfer);
    if (taken == Mailbox::Taken::taken) return ShortWait::done;
    const bool goes_on = taken == Mailbox::Taken::not_here && state_.is_sound();
    return goes_on ? ShortWait::waits : ShortWait::ends;
  });
}

}  // namespace gyre::comm
