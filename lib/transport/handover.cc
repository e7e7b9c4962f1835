#include "lib/transport/handover.h"

#include "lib/base/log.h"
#include "lib/transport/transport.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gyre::transport {
namespace {

struct HandoverMessage {
  std::array<char, 8> magic = {'G', 'Y', 'R', 'E', 'M', 'E', 'M', '1'};
  std::uint64_t bytes = 0;
};
static_assert(sizeof(HandoverMessage) == 16);

// Room for exactly one descriptor. CMSG_SPACE would leave room for a second one, which nobody would
// close; the length given to the kernel is therefore CMSG_LEN.
struct alignas(cmsghdr) ControlRoom {
  std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes{};
};

msghdr one_handover(iovec& part, ControlRoom& room) {
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));
  return message;
}

FileDescriptor descriptor_in(msghdr& message) {
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
      head->cmsg_len != CMSG_LEN(sizeof(int)))
    return {};
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
  return FileDescriptor(descriptor);
}

// At a listener, so that it hands over what the ticket stands for.
Status show_ticket_at_listener(const FileDescriptor& socket, const trust::Ticket& ticket) {
  trust::TicketHello hello;
  hello.ticket = ticket;
  // A fresh socket takes the 40 bytes at once.
  if (send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof hello)
    return {};
  return failure_on_the_way("send of a ticket to the listener", errno);
}

}  // namespace

Status hand_over(const FileDescriptor& socket, const FileDescriptor& memory, std::uint64_t bytes) {
  HandoverMessage handover;
  handover.bytes = bytes;
  iovec part{&handover, sizeof handover};
  ControlRoom room;
  msghdr message = one_handover(part, room);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = memory.get();
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof handover) return {};
  if (errno == EPIPE || errno == ECONNRESET)
    return Status(Code::RemoteError, "the peer closed the connection before it took the memory");
  return Status::from_errno("sendmsg of shared memory", errno);
}

void answer_with_memory(const FileDescriptor& socket, const FileDescriptor& memory,
                        std::uint64_t bytes, std::string_view what) {
  const Status sent = hand_over(socket, memory, bytes);
  if (sent.code() == Code::RemoteError)
    log_info(Subsystem::shm, "{}: {}", what, sent.message());
  else if (!sent.ok())
    log_warn("{}: {}", what, sent.message());
}

Result<std::optional<FileDescriptor>> take_over(const FileDescriptor& socket, std::uint64_t bytes,
                                                bool* unread) {
  HandoverMessage handover;
  iovec part{&handover, sizeof handover};
  ControlRoom room;
  msghdr message = one_handover(part, room);
  const ssize_t got = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<FileDescriptor>();
  // A local socket that is closed while bytes are in it resets the other end.
  if (unread != nullptr) *unread = got < 0 && errno == ECONNRESET;
  if (got == 0 || (got < 0 && errno == ECONNRESET))
    return Status(Code::RemoteError,
                  "its listener closed on our ticket (the rank is gone, or gave up the link)");
  if (got < 0) return failure_on_the_way("recvmsg of shared memory", errno);
  FileDescriptor memory = descriptor_in(message);
  if (got != sizeof handover || handover.magic != HandoverMessage().magic ||
      handover.bytes != bytes)
    return Status(Code::RemoteError, "its listener did not answer with the link's memory");
  if (!memory.has_value())
    return Status(Code::SystemError,
                  "the kernel could not install the memory's descriptor (see ulimit -n)");
  return std::optional<FileDescriptor>(std::move(memory));
}

Result<std::optional<FileDescriptor>> connect_to_listener(const std::string& listener_name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (listener_name.empty() || listener_name.size() >= sizeof address.sun_path)
    return Status(Code::RemoteError, "its listener has no proper name");
  std::memcpy(address.sun_path + 1, listener_name.data(), listener_name.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + listener_name.size());
  FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.has_value()) return Status::from_errno("socket(AF_UNIX)", errno);
  if (connect(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<FileDescriptor>();
    if (errno == ECONNREFUSED)
      return Status(Code::RemoteError,
                    fmt::format("nobody listens at @{}: its process has ended", listener_name));
    return failure_on_the_way(fmt::format("connect to @{}", listener_name), errno);
  }
  ucred peer{};
  socklen_t peer_length = sizeof peer;
  if (getsockopt(listener.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) != 0)
    return Status::from_errno("getsockopt(SO_PEERCRED)", errno);
  if (peer.uid != geteuid())
    return Status(Code::RemoteError, fmt::format("@{} belongs to user {}, not to user {}",
                                                 listener_name, peer.uid, geteuid()));
  return std::optional<FileDescriptor>(std::move(listener));
}

Result<std::optional<FileDescriptor>> MemoryRequest::advance() {
  if (losses_.pauses()) return std::optional<FileDescriptor>();
  if (!socket_.has_value()) {
    GYRE_ASSIGN(std::optional<FileDescriptor> listener, connect_to_listener(listener_name_));
    if (!listener.has_value()) return std::optional<FileDescriptor>();
    socket_ = std::move(*listener);
    Status shown = show_ticket_at_listener(socket_, ticket_);
    if (shown.code() == Code::RemoteError) return note_loss(shown);
    GYRE_TRY(std::move(shown));
  }
  bool unread = false;
  Result<std::optional<FileDescriptor>> memory = take_over(socket_, bytes_, &unread);
  if (unread) return note_loss(memory.status());
  if (!memory.ok() || memory->has_value()) socket_.reset();
  return memory;
}

Result<std::optional<FileDescriptor>> MemoryRequest::note_loss(const Status& why) {
  socket_.reset();
  GYRE_TRY(losses_.note(why.message()));
  return std::optional<FileDescriptor>();
}

}  // namespace gyre::transport
