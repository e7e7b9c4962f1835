#include "tests/support/transports/post_office.h"

#include "lib/base/owned.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/socket.h>

namespace gyre::tests {
namespace {

using Bytes = transport::TransportLetters::Bytes;

// The box of one rank. Made before a test forks; only processes with that rank look into it.
struct LetterBox {
  LetterBox() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      std::abort();
    in = FileDescriptor(ends[0]);
    out = FileDescriptor(ends[1]);
  }
  Status post(std::uint64_t key, const Bytes& bytes);
  std::optional<Bytes> collect(std::uint64_t key);

  std::mutex mutex;
  FileDescriptor in, out;
  std::map<std::uint64_t, Bytes> arrived;  // by key
};

std::optional<Bytes> LetterBox::collect(std::uint64_t key) {
  const std::lock_guard lock(mutex);
  Bytes letter(4096);
  for (;;) {
    const ssize_t bytes = recv(in.get(), letter.data(), letter.size(), 0);
    if (bytes < static_cast<ssize_t>(sizeof key)) break;
    std::uint64_t of = 0;
    std::memcpy(&of, letter.data(), sizeof of);
    arrived[of].assign(letter.begin() + sizeof of, letter.begin() + bytes);
  }
  const auto found = arrived.find(key);
  if (found == arrived.end()) return std::nullopt;
  Bytes taken = std::move(found->second);
  arrived.erase(found);
  return taken;
}

Status LetterBox::post(std::uint64_t key, const Bytes& bytes) {
  Bytes letter(sizeof key + bytes.size());
  std::memcpy(letter.data(), &key, sizeof key);
  if (!bytes.empty()) std::memcpy(letter.data() + sizeof key, bytes.data(), bytes.size());
  const auto is_posted = [&] {
    return send(out.get(), letter.data(), letter.size(), MSG_NOSIGNAL) >= 0;
  };
  if (is_posted()) return {};
  (void)collect(0);  // full of letters that nobody has wanted
  return is_posted() ? Status() : Status::from_errno("posting a letter", errno);
}

LetterBox& box_of(std::int32_t rank) {
  static LetterBox* const boxes = new LetterBox[2];
  return boxes[rank & 1];
}

}  // namespace

transport::TransportLetters post_office() {
  (void)box_of(0);
  return {.send = [](std::int32_t to, std::uint64_t key,
                     Bytes bytes) { return box_of(to).post(key, bytes); },
          .receive = [](std::int32_t from,
                        std::uint64_t key) { return box_of(1 - from).collect(key); }};
}

}  // namespace gyre::tests
