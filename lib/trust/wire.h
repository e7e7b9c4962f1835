// Writer and Reader: the bytes of one message between processes. Numbers are little endian. The
// Reader trusts nothing: it checks every length against a limit and against the bytes that are
// there.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gyre::trust {

static_assert(std::endian::native == std::endian::little, "messages are written in memory order");

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
  }
  // Cut at 65535 bytes, the most that its length field can say.
  void put_text(std::string_view text) {
    text = text.substr(0, UINT16_MAX);
    put(static_cast<std::uint16_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void put_block(std::span<const std::uint8_t> block) {
    put(static_cast<std::uint32_t>(block.size()));
    bytes_.insert(bytes_.end(), block.begin(), block.end());
  }
  void put_rest(std::span<const std::uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  bool get(T& value) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    if (bytes_.size() < sizeof value) return false;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return true;
  }
  bool get_text(std::string& text, std::size_t most) {
    std::uint16_t length = 0;
    if (!get(length) || length > most || bytes_.size() < length) return false;
    text.assign(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return true;
  }
  // A text for people: what could begin a line of its own or steer a terminal becomes '?'.
  bool get_words(std::string& text, std::size_t most) {
    if (!get_text(text, most)) return false;
    for (char& message : text)
      if (const auto code = static_cast<unsigned char>(message); code < ' ' || code == 0x7f)
        message = '?';
    return true;
  }
  bool get_block(std::vector<std::uint8_t>& block, std::size_t most) {
    std::uint32_t length = 0;
    if (!get(length) || length > most || bytes_.size() < length) return false;
    block.assign(bytes_.begin(), bytes_.begin() + length);
    bytes_ = bytes_.subspan(length);
    return true;
  }
  std::span<const std::uint8_t> rest() { return std::exchange(bytes_, {}); }
  std::size_t left() const { return bytes_.size(); }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace gyre::trust
