// Two ends of an RC queue pair, for verbs_probe. What fails ends the process with its name, as
// there is nothing to go on with.
#pragma once

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gyre::tests {

void check(bool holds, const std::string& what);
double now_s();
void sleep_s(double seconds);

// A device, and an IPv4 or IPv6 address of its port 1.
struct Place {
  std::string device;
  std::string address;
};

struct WriteOptions {
  std::uint32_t immediate = 0;  // none if 0
  bool is_inline = false;
  std::uint32_t key_change = 0;  // bits of the remote key that are turned
};

class End {
 public:
  static constexpr std::size_t region_bytes = 4 << 20;

  explicit End(const Place& place);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void connect(const End& peer);

  void fill(std::size_t begin, std::size_t bytes, std::uint64_t seed);
  [[nodiscard]] bool is_filled(std::size_t begin, std::size_t bytes, std::uint64_t seed) const;

  void post_receive(std::uint64_t number);
  // From the same place of this end's region, signaled.
  void post_write(const End& target, std::size_t begin, std::size_t bytes,
                  const WriteOptions& options);
  // The next completion; waits five seconds for it, beside those that retries take.
  ibv_wc next();
  void ask_for_event();
  bool has_event(int timeout_ms);
  ibv_event_type async_event(int timeout_ms);

  [[nodiscard]] ibv_qp_state state() const;
  [[nodiscard]] int queue_entries() const { return queue_->cqe; }
  [[nodiscard]] int registration_error(void* start, std::size_t bytes) const;
  void set_to_error();
  void destroy_pair();
  void deregister();

 private:
  void open(const std::string& device);
  void find_gid(const std::string& address);
  void make_pair();

  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_gid_entry gid_{};
  std::uint32_t pair_number_ = 0;
  std::uint32_t key_ = 0;
  std::vector<std::byte> memory_ = std::vector<std::byte>(region_bytes);
};

// A connected sender and receiver.
struct Ends {
  Ends(const Place& from, const Place& to) : sender(from), receiver(to) {
    sender.connect(receiver);
    receiver.connect(sender);
  }
  End sender;
  End receiver;
};

}  // namespace gyre::tests
