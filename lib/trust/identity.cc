#include "lib/trust/identity.h"

#include <cstring>

namespace gyre::trust {
namespace {

constexpr std::size_t text_most = 256;
constexpr std::size_t address_most = 8;

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  void put_text(const std::string& text) {
    put(static_cast<std::uint16_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

class Reader {
 public:
  explicit Reader(const std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
  template <typename T>
  bool get(T& value) {
    if (bytes_.size() - place_ < sizeof value) return false;
    std::memcpy(&value, bytes_.data() + place_, sizeof value);
    place_ += sizeof value;
    return true;
  }
  bool get_text(std::string& text) {
    std::uint16_t length = 0;
    if (!get(length) || length > text_most || bytes_.size() - place_ < length) return false;
    text.assign(reinterpret_cast<const char*>(bytes_.data()) + place_, length);
    place_ += length;
    return true;
  }
  bool at_end() const { return place_ == bytes_.size(); }

 private:
  const std::vector<std::uint8_t>& bytes_;
  std::size_t place_ = 0;
};

}  // namespace

std::vector<std::uint8_t> encode(const ProcessIdentity& identity) {
  Writer writer;
  writer.put(identity.process);
  writer.put(identity.host);
  writer.put(identity.net_namespace);
  writer.put(identity.pid);
  writer.put(identity.uid);
  writer.put_text(identity.host_name);
  writer.put_text(identity.door_name);
  writer.put(static_cast<std::uint8_t>(identity.addresses.size()));
  for (const std::string& address : identity.addresses) writer.put_text(address);
  return writer.take();
}

Result<ProcessIdentity> decode_identity(const std::vector<std::uint8_t>& bytes) {
  ProcessIdentity identity;
  Reader reader(bytes);
  std::uint8_t count = 0;
  bool good = reader.get(identity.process) && reader.get(identity.host) &&
              reader.get(identity.net_namespace) && reader.get(identity.pid) &&
              reader.get(identity.uid) && reader.get_text(identity.host_name) &&
              reader.get_text(identity.door_name) && reader.get(count) && count <= address_most;
  for (int i = 0; good && i < count; ++i) {
    identity.addresses.emplace_back();
    good = reader.get_text(identity.addresses.back());
  }
  if (!good || !reader.at_end())
    return Status(Code::RemoteError, "a process sent a malformed identity");
  return identity;
}

}  // namespace gyre::trust
