#include "transports/rdma/completion.h"

#include <fmt/core.h>

namespace gyre::transport {
namespace {

struct StatusRow {
  ibv_wc_status status;
  const char* name;
  bool is_own;
  const char* remedy;
};

constexpr const char* unanswered =
    "the peer's NIC did not answer: its process or host has ended, its link is down, or packets "
    "are lost. If both live, look at the switches' PFC and ECN settings and at the MTU of every "
    "port on the way, and raise GYRE_IB_TIMEOUT";
constexpr const char* revoked =
    "the peer does not allow this access: it has closed the connection or withdrawn the memory";
constexpr const char* ours = "report it with the output of GYRE_DEBUG=INFO";

constexpr StatusRow rows[] = {
    {IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR", true,
     "a message is longer than the port allows: look at the MTU of both ends"},
    {IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR", true,
     "the device could not send it, as where the route to the peer is gone: look at this host's "
     "kernel log"},
    {IBV_WC_LOC_EEC_OP_ERR, "IBV_WC_LOC_EEC_OP_ERR", true, ours},
    {IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR", true, ours},
    {IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR", false,
     "the queue pair was put into the error state before: by an earlier failure, the driver, or "
     "the device"},
    {IBV_WC_MW_BIND_ERR, "IBV_WC_MW_BIND_ERR", true, ours},
    {IBV_WC_BAD_RESP_ERR, "IBV_WC_BAD_RESP_ERR", false,
     "the peer's NIC answered what makes no sense: look at the firmware of both NICs"},
    {IBV_WC_LOC_ACCESS_ERR, "IBV_WC_LOC_ACCESS_ERR", true, ours},
    {IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR", false, revoked},
    {IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR", false, revoked},
    {IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR", false,
     "the peer's NIC could not do it: look at its host's kernel log"},
    {IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR", false, unanswered},
    {IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR", false, ours},
    {IBV_WC_LOC_RDD_VIOL_ERR, "IBV_WC_LOC_RDD_VIOL_ERR", true, ours},
    {IBV_WC_REM_INV_RD_REQ_ERR, "IBV_WC_REM_INV_RD_REQ_ERR", false, ours},
    {IBV_WC_REM_ABORT_ERR, "IBV_WC_REM_ABORT_ERR", false, "look at the peer's kernel log"},
    {IBV_WC_FATAL_ERR, "IBV_WC_FATAL_ERR", true, "look at this host's kernel log"},
    {IBV_WC_RESP_TIMEOUT_ERR, "IBV_WC_RESP_TIMEOUT_ERR", false, unanswered},
    {IBV_WC_GENERAL_ERR, "IBV_WC_GENERAL_ERR", true, "look at this host's kernel log"},
};

const StatusRow* row_of(ibv_wc_status status) {
  for (const StatusRow& row : rows)
    if (row.status == status) return &row;
  return nullptr;
}

}  // namespace

std::string completion_text(const loaded::Verbs& verbs, ibv_wc_status status) {
  const StatusRow* const row = row_of(status);
  const std::string name =
      row != nullptr ? row->name : fmt::format("status {}", static_cast<int>(status));
  const char* const said = verbs.status_text(status);
  return fmt::format("{} ({})", name, said != nullptr ? said : "unknown");
}

std::string_view completion_remedy(ibv_wc_status status) {
  const StatusRow* const row = row_of(status);
  return row != nullptr ? row->remedy : "";
}

bool is_own_failure(ibv_wc_status status) {
  const StatusRow* const row = row_of(status);
  return row != nullptr && row->is_own;
}

}  // namespace gyre::transport
