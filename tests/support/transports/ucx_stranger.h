// A peer of ucx that says what he likes, over a fake.
#pragma once

#include "lib/base/clock.h"
#include "lib/loaded/shared_ucp.h"
#include "lib/transport/endpoint.h"
#include "transports/ucx/notice.h"

#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gyre::tests {

// Somebody who has a worker of his own, and says what he likes.
class UcxStranger {
 public:
  explicit UcxStranger(const loaded::Ucp& table)
      : table_(table), context_(*loaded::UcpSharedContext::make(table, ns_per_s)) {
    loaded::UcpWorkerParameters parameters{};
    must(table.make_worker(context_->get(), &parameters, &worker_) == loaded::ucx::ok);
    loaded::UcpHandlerParameters handler{};
    handler.handler = hear;
    handler.user = this;
    must(table.handle_messages(worker_, &handler) == loaded::ucx::ok);
  }
  ~UcxStranger() { table_.destroy_worker(worker_); }
  UcxStranger(const UcxStranger&) = delete;
  UcxStranger& operator=(const UcxStranger&) = delete;

  void aim_at(const transport::UcpPlace& target) {
    there = target;
    loaded::UcpEndpointParameters parameters{};
    parameters.address = reinterpret_cast<const loaded::UcpAddress*>(there.worker.data());
    must(table_.make_endpoint(worker_, &parameters, &endpoint_) == loaded::ucx::ok);
  }
  // At a receiver's end, of which he knows all.
  void aim_at(const transport::Endpoint& endpoint, const transport::FifoShape& shape) {
    const auto contents = transport::decode_endpoint(endpoint, "ucx", shape, 0);
    must(contents.ok());
    ticket = contents->ticket;
    std::string bytes;
    for (const std::string& part : contents->places) bytes += part;
    aim_at(*transport::decode_ucp_place(
        {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
  }
  transport::UcpPlace place(std::uint64_t link) const {
    loaded::UcpWorkerAttributes attributes{};
    attributes.field_mask = loaded::ucp::worker_address;
    must(table_.query_worker(worker_, &attributes) == loaded::ucx::ok);
    transport::UcpPlace own{
        link,
        {},
        std::string(reinterpret_cast<const char*>(attributes.address), attributes.address_bytes)};
    table_.release_address(worker_, attributes.address);
    return own;
  }
  void progress() { table_.progress(worker_); }

  transport::UcpNotice notice(transport::UcpNoticeKind kind, std::uint64_t number = 0) const {
    transport::UcpNotice made;
    made.kind = kind;
    made.link = there.link;
    made.number = number;
    return made;
  }
  // Of a message, a whole one.
  void send(transport::UcpNotice notice, std::vector<std::uint8_t> bytes = {},
            bool promised = false) {
    if (notice.kind == transport::UcpNoticeKind::message)
      notice.whole = static_cast<std::uint32_t>(bytes.size());
    send_as_is(notice, std::move(bytes), promised);
  }
  void send_as_is(const transport::UcpNotice& notice, std::vector<std::uint8_t> bytes = {},
                  bool promised = false) {
    send_raw({reinterpret_cast<const std::uint8_t*>(&notice), sizeof notice}, std::move(bytes),
             promised);
  }
  void send_raw(std::span<const std::uint8_t> header, std::vector<std::uint8_t> bytes = {},
                bool promised = false) {
    loaded::UcpRequestParameters parameters{};
    parameters.flags = promised ? loaded::ucp::send_rendezvous : loaded::ucp::send_eager;
    const std::vector<std::uint8_t>& kept = kept_.emplace_back(std::move(bytes));
    void* const request = table_.send(endpoint_, 1, header.data(), header.size(), kept.data(),
                                      kept.size(), &parameters);
    if (loaded::ucp::is_request(request)) table_.free_request(request);
  }
  void say_hello() {
    send(notice(transport::UcpNoticeKind::hello),
         transport::encode(transport::UcpHello{ticket, place(7)}));
  }

  trust::Ticket ticket{};
  transport::UcpPlace there;
  std::optional<transport::UcpHello> heard;

 private:
  // Nothing of the fake that it uses fails.
  static void must(bool holds) {
    if (!holds) std::abort();
  }
  static loaded::UcxStatus hear(void* user, const void* /*header*/, std::size_t /*bytes*/,
                                void* data, std::size_t bytes,
                                const loaded::UcpArrivalParameters* /*parameters*/) {
    if (auto hello = transport::decode_ucp_hello({static_cast<const std::uint8_t*>(data), bytes}))
      static_cast<UcxStranger*>(user)->heard = std::move(hello);
    return loaded::ucx::ok;
  }

  const loaded::Ucp& table_;
  const std::shared_ptr<loaded::UcpSharedContext> context_;
  loaded::UcpWorker* worker_ = nullptr;
  loaded::UcpEndpoint* endpoint_ = nullptr;
  std::list<std::vector<std::uint8_t>> kept_;
};

}  // namespace gyre::tests
