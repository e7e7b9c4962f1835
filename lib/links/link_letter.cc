#include "lib/links/link_letter.h"

#include "lib/trust/wire.h"

namespace gyre::comm {

control::Letter encode(const LinkLetter& letter) {
  trust::Writer writer;
  writer.put(letter.transport);
  writer.put(letter.probe.pid);
  writer.put(letter.probe.descriptor);
  writer.put(letter.probe.inode);
  writer.put_rest(letter.endpoint);
  return writer.take();
}

std::optional<LinkLetter> decode_link_letter(const control::Letter& bytes, std::size_t transports) {
  LinkLetter letter;
  trust::Reader reader(bytes);
  if (!reader.get(letter.transport) || letter.transport >= transports ||
      !reader.get(letter.probe.pid) || !reader.get(letter.probe.descriptor) ||
      !reader.get(letter.probe.inode))
    return std::nullopt;
  const auto rest = reader.rest();
  letter.endpoint.assign(rest.begin(), rest.end());
  return letter;
}

}  // namespace gyre::comm
