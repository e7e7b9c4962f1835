// The message that brings a fifo's memory over a socket: its bytes, its descriptors, and whether
// the memory behind them is acceptable. No descriptor may be left over. Input: u8 number of
// descriptors, then for each: u8 kind of file, u8 seals, u32 bytes; u8 flags (1: the magic is
// right, 2: so is the length, 4: the socket closes, 8: unsealed memory is expected); the message's
// bytes.
#include "lib/transport/handover.h"
#include "tests/fuzz/input.h"
#include "transports/shm/memory.h"

#include <fmt/core.h>

#include <array>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace handover_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 2, .line_count = 4, .slot_bytes = 256};
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::size_t max_descriptors = 4;

struct Parcel {
  FileDescriptor file;
  bool regular = false;
  bool sealed = false;
  bool writable = true;
  std::uint64_t bytes = 0;
};

// The descriptor that would be opened next.
int next_descriptor() { return FileDescriptor(::dup(STDERR_FILENO)).get(); }

Parcel make_parcel(fuzz::Input& input, std::uint64_t right_bytes) {
  Parcel parcel;
  const int kind = input.take<std::uint8_t>() % 4;
  const auto flags = input.take<std::uint8_t>();  // 128: for reading only
  const int seals = flags & size_seals;
  const auto bytes = input.take<std::uint32_t>();
  if (kind < 2) {
    parcel.file = FileDescriptor(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    parcel.regular = true;
    parcel.bytes = kind == 0 ? right_bytes : bytes;
    GYRE_DEMAND(::ftruncate(parcel.file.get(), static_cast<off_t>(parcel.bytes)) == 0);
    GYRE_DEMAND(::fcntl(parcel.file.get(), F_ADD_SEALS, seals) == 0);
    parcel.sealed = seals == size_seals;
    parcel.writable = (flags & 128) == 0;
    if (!parcel.writable)
      parcel.file = FileDescriptor(
          ::open(fmt::format("/proc/self/fd/{}", parcel.file.get()).c_str(), O_RDONLY | O_CLOEXEC));
  } else {
    parcel.file = FileDescriptor(::open(kind == 2 ? "/dev/null" : "/", O_RDONLY | O_CLOEXEC));
  }
  return parcel;
}

void send_handover(const FileDescriptor& socket, std::vector<std::uint8_t> handover,
                   const std::vector<Parcel>& parcels) {
  if (handover.empty()) return;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * max_descriptors)> room{};
  iovec part{handover.data(), handover.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!parcels.empty()) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_LEN(sizeof(int) * parcels.size());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * parcels.size());
    for (std::size_t i = 0; i < parcels.size(); ++i) {
      const int descriptor = parcels[i].file.get();
      std::memcpy(CMSG_DATA(head) + i * sizeof descriptor, &descriptor, sizeof descriptor);
    }
  }
  GYRE_DEMAND(::sendmsg(socket.get(), &message, MSG_NOSIGNAL) ==
              static_cast<ssize_t>(handover.size()));
}

// As a peer's listener writes it, but for what the flags leave wrong.
std::vector<std::uint8_t> make_handover(fuzz::Input& input, std::uint8_t flags,
                                        std::uint64_t right_bytes) {
  const auto rest = input.rest();
  std::vector<std::uint8_t> handover(rest.begin(), rest.end());
  handover.resize(std::min<std::size_t>(handover.size(), 64));
  constexpr std::string_view magic = "GYREMEM1";
  if ((flags & 1) != 0 && handover.size() >= 16) std::ranges::copy(magic, handover.begin());
  if ((flags & 2) != 0 && handover.size() >= 16)
    std::memcpy(handover.data() + 8, &right_bytes, sizeof right_bytes);
  return handover;
}

void receive(fuzz::Input& input) {
  const auto reserved = reserve_fifo(shape);
  GYRE_DEMAND(reserved.ok());
  const std::uint64_t bytes = (*reserved)->mapping.get().bytes;
  std::vector<Parcel> parcels;
  const std::size_t count = input.take<std::uint8_t>() % (max_descriptors + 1);
  while (parcels.size() < count) parcels.push_back(make_parcel(input, bytes));
  const std::uint8_t flags = input.take<std::uint8_t>();
  const std::vector<std::uint8_t> handover = make_handover(input, flags, bytes);
  int ends[2];
  GYRE_DEMAND(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const FileDescriptor near(ends[0]);
  FileDescriptor far(ends[1]);
  send_handover(far, handover, parcels);
  if ((flags & 4) != 0) far.reset();

  const auto taken = take_over(near, bytes);
  if (handover.empty()) GYRE_DEMAND(taken.ok() == ((flags & 4) == 0));
  if (!taken.ok() || !taken->has_value()) return;
  GYRE_DEMAND(handover.size() >= 16 && count >= 1);
  const bool sealed = (flags & 8) == 0;
  const Status mapped = map_received_fifo(**taken, sealed, **reserved);
  const Parcel& first = parcels.front();
  GYRE_DEMAND(mapped.ok() == (first.regular && first.writable && first.bytes == bytes &&
                              (first.sealed || !sealed)));
  if (!mapped.ok()) return;
  // All of it is there.
  const MemoryRange range = (*reserved)->mapping.get();
  range.data[range.bytes - 1] = std::byte{1};
  GYRE_DEMAND((*reserved)->view.slots < range.data + range.bytes);
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int before = next_descriptor();
  receive(input);
  GYRE_DEMAND(next_descriptor() == before);
  return 0;
}

GYRE_FUZZ_TARGET(handover)

}  // namespace handover_fuzz
