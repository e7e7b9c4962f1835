// The functions of PMIx that Gyre calls, as a table: how a process talks to the launcher that
// started it (Open MPI's mpirun, prterun, srun --mpi=pmix). `load_pmix` fills it by dlopen; a fake
// in the tests fills it itself.
//
// PMIx's headers are not used. The types below are those of its standard from version 2 on, which
// all releases of libpmix.so.2 share.
#pragma once

#include "lib/base/status.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gyre::loaded {

using PmixStatus = int;  // pmix_status_t

struct PmixProcess {  // pmix_proc_t
  char job[256];
  std::uint32_t rank;
};
static_assert(sizeof(PmixProcess) == 260);

struct PmixValue {  // pmix_value_t
  std::uint16_t type;
  union {
    const char* text;
    std::uint64_t rest[3];  // no release has a member beyond these that is a text
  };
};
static_assert(offsetof(PmixValue, text) == 8);

using PmixDone = void (*)(PmixStatus status, void* call);                   // pmix_op_cbfunc_t
using PmixGot = void (*)(PmixStatus status, PmixValue* value, void* call);  // pmix_value_cbfunc_t

namespace pmix {

inline constexpr const char* library = "libpmix.so.2";
inline constexpr PmixStatus ok = 0;
inline constexpr PmixStatus done_at_once = -157;  // PMIX_OPERATION_SUCCEEDED: no callback follows
inline constexpr std::uint8_t for_all = 3;        // PMIX_GLOBAL
inline constexpr std::uint16_t is_text = 3;       // PMIX_STRING

}  // namespace pmix

// result, member, the library's name, parameters. Infos, of which we have none, are left out.
#define GYRE_PMIX_FUNCTIONS(X)                                                                   \
  X(const char*, error_text, "PMIx_Error_string", (PmixStatus status))                           \
  X(PmixStatus, init, "PMIx_Init", (PmixProcess * self, void* infos, std::size_t count))         \
  X(PmixStatus, finalize, "PMIx_Finalize", (const void* infos, std::size_t count))               \
  X(PmixStatus, put, "PMIx_Put", (std::uint8_t scope, const char* key, PmixValue* value))        \
  X(PmixStatus, commit, "PMIx_Commit", ())                                                       \
  X(PmixStatus, fence, "PMIx_Fence_nb",                                                          \
    (const PmixProcess* processes, std::size_t count, const void* infos, std::size_t info_count, \
     PmixDone done, void* call))                                                                 \
  X(PmixStatus, get, "PMIx_Get_nb",                                                              \
    (const PmixProcess* process, const char* key, const void* infos, std::size_t count,          \
     PmixGot got, void* call))

struct Pmix {
#define GYRE_PMIX_MEMBER(result, member, symbol, parameters) result(*member) parameters = nullptr;
  GYRE_PMIX_FUNCTIONS(GYRE_PMIX_MEMBER)
#undef GYRE_PMIX_MEMBER
};

// Filled in; the library stays loaded. The error says what is missing and what to install.
Result<std::unique_ptr<const Pmix>> load_pmix(const char* library = pmix::library);

}  // namespace gyre::loaded
