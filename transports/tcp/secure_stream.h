// A ByteStream under TLS 1.3. The key comes from the endpoint's secret, so both ends prove that
// they have it from the control plane. Records are as large as TLS allows. Large parts are
// encrypted from where they lie.
#pragma once

#include "lib/trust/secure_socket.h"
#include "transports/tcp/byte_stream.h"

#include <memory>

namespace gyre::transport {

using StreamSecret = trust::Secret;

// How a link's stream is protected: not at all without `tls`.
struct StreamSecurity {
  std::shared_ptr<const trust::Tls> tls;
  StreamSecret secret{};
};

// Depends on the secret and the meaning of the stream alone.
Result<std::shared_ptr<const trust::SessionKey>> data_key(const StreamSecret& secret);

// The sending end is the client.
Result<std::unique_ptr<ByteStream>> make_stream(const StreamSecurity& security,
                                                std::shared_ptr<FileDescriptor> socket,
                                                trust::SessionRole role);

}  // namespace gyre::transport
