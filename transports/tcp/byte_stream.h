// ByteStream: bytes in one direction over a connected socket, without blocking, in clear or
// encrypted. It knows nothing of messages.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <sys/uio.h>

namespace gyre::transport {

struct IoResult {
  enum class Outcome { moved, blocked, closed, failed };
  Outcome outcome = Outcome::blocked;
  std::size_t bytes = 0;  // when moved: at least one
  std::string cause;      // when failed
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Whether bytes may pass; brought about by `join`, which is called until then.
  virtual bool joined() const = 0;
  virtual Status join() = 0;
  // Whether anything of the other end has come while joining.
  virtual bool has_heard() const { return false; }
  virtual IoResult send(std::span<iovec> parts) = 0;
  virtual IoResult receive(std::span<iovec> parts) = 0;
  // What `send` took and the kernel did not yet.
  virtual bool holds_bytes() const = 0;
  virtual IoResult flush() = 0;
  virtual int descriptor() const = 0;
  // The poll events that it waits for besides those of its user.
  virtual short wanted_events() const = 0;
};

// The socket may serve another stream, the other way.
std::unique_ptr<ByteStream> make_plain_stream(std::shared_ptr<const FileDescriptor> socket);

}  // namespace gyre::transport
