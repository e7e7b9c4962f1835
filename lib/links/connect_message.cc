#include "lib/links/connect_message.h"

#include "lib/trust/wire.h"

namespace gyre::comm {

control::MessageBytes encode(const ConnectMessage& message) {
  trust::Writer writer;
  writer.put(message.transport);
  writer.put(message.probe.pid);
  writer.put(message.probe.descriptor);
  writer.put(message.probe.inode);
  writer.put(message.probe.word_address);
  writer.put(message.probe.word);
  writer.put_rest(message.endpoint);
  return writer.take();
}

std::optional<ConnectMessage> decode_connect_message(const control::MessageBytes& bytes,
                                                     std::size_t transports) {
  ConnectMessage message;
  trust::Reader reader(bytes);
  if (!reader.get(message.transport) || message.transport >= transports ||
      !reader.get(message.probe.pid) || !reader.get(message.probe.descriptor) ||
      !reader.get(message.probe.inode) || !reader.get(message.probe.word_address) ||
      !reader.get(message.probe.word))
    return std::nullopt;
  const auto rest = reader.rest();
  message.endpoint.assign(rest.begin(), rest.end());
  return message;
}

}  // namespace gyre::comm
