// The common parts of all C functions: they look handles up, remember errors, and turn a Status
// into a code.
#pragma once

#include "lib/base/caught.h"
#include "lib/comm/group.h"
#include <gyre/gyre.h>

namespace gyre::comm {

inline gyreResult_t to_result(const Status& status) {
  return static_cast<gyreResult_t>(status.code());
}

// Keeps the text for gyreGetLastError and returns the code.
gyreResult_t answer(const Status& status) noexcept;
// The same, on that communicator too, if it is one.
gyreResult_t answer(gyreComm_t comm, const Status& status) noexcept;

Result<HandleTable<Communicator>::Pin> find_communicator(gyreComm_t comm);
Result<HandleTable<HostStream>::Pin> find_stream(gyreStream_t stream);
// Of what was done on it since this was last asked.
Status take_first_error(HostStream& stream);

// The communicator, for a call without a stream that is carried out alone and at once. None: the
// call takes the long way.
[[gnu::always_inline]] inline HandleTable<Communicator>::Entry enter_alone(gyreComm_t comm) {
  Process* const here = known_process();
  if (here == nullptr || !is_outside_groups() || here->worker.has_work_of_callers()) [[unlikely]]
    return {};
  return here->communicators.enter(reinterpret_cast<std::uintptr_t>(comm));
}

// Whether a call is carried out by its caller before it returns: neither queued nor in a group.
bool is_at_once(const Communicator& communicator, gyreStream_t stream);
Status enter_and_carry_out(Communicator& communicator, const Request& request);

// Carries the work out, queues it on its stream, or keeps it for the end of the group.
Status submit(HandleTable<Communicator>::Pin pin, Work work, gyreStream_t stream);

// Keeps it for the end of the open group.
Status keep_in_group(GroupedCall call);
// The calls of the thread's short group, as usual ones behind `calls`.
Status move_short_group(std::vector<GroupedCall>& calls);

// A refused call spoils the open group, if there is one: nothing of it will be carried out.
gyreResult_t in_group(gyreComm_t comm, const Status& status) noexcept;

// Runs `body` (returning Status) for a C function; nothing thrown gets past it.
template <typename Body>
gyreResult_t guarded(Body&& body) {
  return answer(caught(body));
}
// For a function that is called on `comm`.
template <typename Body>
gyreResult_t guarded(gyreComm_t comm, Body&& body) {
  return answer(comm, caught(body));
}

}  // namespace gyre::comm
