#include "tests/support/kernels/relay_mesh.h"

#include "tests/support/exec/launch_job.h"

namespace gyre::tests {

struct RelayMesh::Half {
  struct Line {
    alignas(128) std::byte bytes[128];
  };
  std::vector<Line> own, mirror, own_rings, mirror_rings;
  FifoMemory incoming;
  std::unique_ptr<exec::DeviceRelay> relay;

  explicit Half(const exec::DeviceShape& shape)
      : own(shape.relay_words_bytes() / 128 + 1),
        mirror(own.size()),
        own_rings(shape.relay_rings_bytes() / 128 + 1),
        mirror_rings(own_rings.size()),
        incoming(exec::DeviceRelay::fifo_shape(shape)) {}
  exec::DeviceLink link() {
    return {.own = own[0].bytes,
            .peers = mirror[0].bytes,
            .lends = false,
            .own_rings = own_rings[0].bytes,
            .peers_rings = mirror_rings[0].bytes};
  }
};

RelayMesh::RelayMesh(std::uint32_t channels, std::uint64_t slot_bytes, std::uint32_t slot_shift)
    : shape_{.channels = channels,
             .slot_bytes = slot_bytes,
             .slot_shift = slot_shift,
             .ll_shift = 2,
             .ll128_shift = 2} {}
RelayMesh::~RelayMesh() = default;

RelayMesh::Half& RelayMesh::half(const Key& key) {
  auto& found = halves_[key];
  if (found == nullptr) found = std::make_unique<Half>(shape_);
  return *found;
}

cuda::DeviceEnd RelayMesh::send_end(int rank, plan::Link link, std::uint32_t channel) {
  return exec::send_end(shape_, this->link(rank, link), channel, cuda::DeviceProtocol::simple);
}
cuda::DeviceEnd RelayMesh::receive_end(int rank, plan::Link link, std::uint32_t channel) {
  return exec::receive_end(shape_, this->link(rank, link), channel, cuda::DeviceProtocol::simple);
}

exec::DeviceLink RelayMesh::link(int rank, plan::Link link) {
  Half& own = half({rank, link.peer, link.channel});
  if (own.relay != nullptr) return own.link();
  Half& far = half({link.peer, rank, link.channel});
  const auto connection = [](const FifoMemory& memory) {
    return std::make_unique<PlainConnection>(memory.view, false);
  };
  own.relay = std::make_unique<exec::DeviceRelay>(
      link.peer, shape_, own.link(), connection(far.incoming), connection(own.incoming));
  far.relay = std::make_unique<exec::DeviceRelay>(
      rank, shape_, far.link(), connection(own.incoming), connection(far.incoming));
  return own.link();
}

Grid RelayMesh::grid(int rank, std::function<bool()> ended) {
  return {rank, 1, 32, [this, ended = std::move(ended)] {
            if (cuda::device::thread_index() == 0) drive(ended);
          }};
}

void RelayMesh::drive(const std::function<bool()>& ended) {
  while (!ended() && failure_.empty()) {
    for (auto& [key, half] : halves_) {
      bool moved = false;
      const Status status = half->relay->advance(moved);
      if (!status.ok()) failure_ = status.message();
      let_others_run();
    }
    let_others_run();
  }
}

}  // namespace gyre::tests
