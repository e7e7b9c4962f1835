// Seeds: the inputs that a fuzzer starts from and the default tests replay. The real encoders make
// them, so a change of a format changes them. One function for each family of targets.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace gyre::fuzz {

using Bytes = std::vector<std::uint8_t>;

class Seeds {
 public:
  void add(std::string_view target, std::string_view name, Bytes bytes) {
    files_[std::string(target) + "/" + std::string(name)] = std::move(bytes);
  }
  void add_text(std::string_view target, std::string_view name, std::string_view text) {
    add(target, name, {text.begin(), text.end()});
  }
  // By "target/name".
  const std::map<std::string, Bytes>& files() const { return files_; }

 private:
  std::map<std::string, Bytes> files_;
};

// What Input takes apart: numbers and blocks, one after the other.
class Script {
 public:
  Script() = default;
  explicit Script(std::uint8_t which) { number(which); }
  template <typename T>
  Script& number(T value) {
    static_assert(std::is_integral_v<T>);
    return append(&value, sizeof value);
  }
  Script& block(std::span<const std::uint8_t> bytes) {
    return number(static_cast<std::uint16_t>(bytes.size())).rest(bytes);
  }
  Script& text(std::string_view words) {
    return number(static_cast<std::uint16_t>(words.size())).rest_text(words);
  }
  Script& rest(std::span<const std::uint8_t> bytes) { return append(bytes.data(), bytes.size()); }
  Script& rest_text(std::string_view words) { return append(words.data(), words.size()); }
  operator Bytes() { return bytes_; }

 private:
  Script& append(const void* data, std::size_t size);
  Bytes bytes_;
};

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
inline Bytes changed(Bytes bytes, std::size_t place, std::uint8_t value) {
  bytes.at(place) = value;
  return bytes;
}
inline Bytes cut(Bytes bytes, std::size_t length) {
  bytes.resize(length);
  return bytes;
}
template <std::size_t count>
Bytes bytes_of(const std::array<std::uint8_t, count>& bytes) {
  return {bytes.begin(), bytes.end()};
}

void add_trust_seeds(Seeds& seeds);
void add_bootstrap_seeds(Seeds& seeds);
void add_job_seeds(Seeds& seeds);
void add_transport_seeds(Seeds& seeds);
void add_rdma_seeds(Seeds& seeds);
void add_ucx_seeds(Seeds& seeds);
void add_memory_seeds(Seeds& seeds);
void add_relay_seeds(Seeds& seeds);
void add_state_page_seeds(Seeds& seeds);
void add_environment_seeds(Seeds& seeds);
void add_metrics_seeds(Seeds& seeds);
void add_training_seeds(Seeds& seeds);
void add_topology_seeds(Seeds& seeds);

}  // namespace gyre::fuzz
