#include "tests/support/device/lending.h"

#include "tests/support/device/device_ranks.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gyre::tests {

std::map<std::string, std::string> directly(std::map<std::string, std::string> more) {
  more.emplace("GYRE_BUFFSIZE", "4096");
  more.emplace("GYRE_PROTO", "Direct");
  return more;
}

std::string first_of(std::initializer_list<std::function<std::string()>> steps) {
  for (const auto& step : steps)
    if (std::string failed = step(); !failed.empty()) return failed;
  return "";
}

CommunicatorPin pinned(gyreComm_t comm) {
  return comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(comm));
}

std::size_t take_lent(DeviceProcess& here, gyreComm_t comm) {
  std::size_t lent = 0;
  auto pin = pinned(comm);
  const exec::DeviceShape& shape = device_resources(*pin).executor().shape();
  for (int peer = 0; peer < here.ranks(); ++peer)
    for (int plan_channel = 0; plan_channel < 3 && peer != pin->rank(); ++plan_channel) {
      exec::DeviceLink link;
      try {
        link = device_resources(*pin).links().link({peer, plan_channel});
      } catch (const std::out_of_range&) {
        continue;  // not open
      }
      if (link.peers == nullptr) continue;
      for (std::uint32_t channel = 0; channel < shape.channels; ++channel) {
        const auto end = exec::receive_end(shape, link, channel, cuda::DeviceProtocol::simple);
        for (std::size_t slot = 0; slot < std::size_t{1} << shape.slot_shift; ++slot) {
          lent += end.notes[slot].delivery != transport::DeliveryMode::staged;
          end.notes[slot].delivery = transport::DeliveryMode::staged;
        }
      }
    }
  return lent;
}

std::string Summing::allocate(const std::function<bool(int rank)>& shares) {
  for (std::size_t place = 0; place < here_.comms.size(); ++place)
    for (auto* side : {&in_, &out_}) {
      void* memory = nullptr;
      if (!shares(here_.rank(place)))
        memory = here_.allocate(place, count);
      else if (gyreMemAllocOn(&memory, count * sizeof(std::int32_t), 0) != gyreSuccess)
        return last_error();
      else
        shared_.push_back(memory);
      side->push_back(static_cast<std::int32_t*>(memory));
    }
  return "";
}

std::string Summing::allocate_registered() {
  for (std::size_t place = 0; place < here_.comms.size(); ++place) {
    std::int32_t* const in = here_.allocate(place, count);
    if (std::string refused = use(place, in, here_.allocate(place, count), true); !refused.empty())
      return refused;
  }
  return "";
}

std::string Summing::use(std::size_t place, std::int32_t* in, std::int32_t* out, bool registers) {
  in_.resize(std::max(in_.size(), place + 1));
  out_.resize(in_.size());
  in_[place] = in;
  out_[place] = out;
  for (std::int32_t* memory : {in, out}) {
    if (!registers) continue;
    void*& handle = handles_[place].emplace_back();
    if (gyreCommRegister(here_.comms[place], memory, count * sizeof *memory, &handle) !=
        gyreSuccess)
      return last_error(here_.comms[place]);
  }
  return "";
}

std::string Summing::deregister() {
  for (auto& [place, handles] : std::exchange(handles_, {}))
    for (void* handle : handles)
      if (gyreCommDeregister(here_.comms[place], handle) != gyreSuccess)
        return last_error(here_.comms[place]);
  return "";
}

void Summing::release() {
  for (void* memory : std::exchange(shared_, {})) (void)gyreMemFree(memory);
  if (!here_.comms.empty()) (void)deregister();
  here_.free_all();
  in_.clear();
  out_.clear();
}

bool Summing::is_lent() const {
  const auto lends = [&](std::size_t place, void* memory) {
    return device_resources(*pinned(here_.comms[place])).regions()->find(memory, 4).region != 0;
  };
  for (std::size_t place = 0; place < here_.comms.size(); ++place)
    for (void* memory : shared_)
      if (!lends(place, memory)) return false;
  for (const auto& [place, handles] : handles_)
    if (!lends(place, in_[place]) || !lends(place, out_[place])) return false;
  return true;
}

std::string Summing::await_lent() {
  if (!soon([this] { return is_lent(); })) return "it is not lent";
  return here_.meet() ? "" : "no meeting";
}

void Summing::fill() {
  for (std::size_t place = 0; place < in_.size(); ++place)
    for (std::size_t i = 0; i < count; ++i) {
      in_[place][i] = brought(here_.rank(place), i) + round_;
      out_[place][i] = -1;
    }
}

std::string Summing::wrong() const {
  for (std::size_t place = 0; place < out_.size(); ++place)
    for (std::size_t i = 0; i < count; ++i)
      if (out_[place][i] != sum_of_all(here_.ranks(), i) + round_ * here_.ranks())
        return "element " + std::to_string(i) + " of rank " + std::to_string(here_.rank(place)) +
               " is " + std::to_string(out_[place][i]);
  return "";
}

std::string Summing::sum() {
  ++round_;
  fill();
  std::string failed = here_.call([this](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
    return call(place, comm, stream);
  });
  failed += here_.finish();
  return failed.empty() ? wrong() : failed;
}

std::string Summing::sum(std::vector<std::size_t>& lent) {
  std::string failed = here_.meet() ? "" : "no meeting";
  for (const gyreComm_t comm : here_.comms) (void)take_lent(here_, comm);
  failed += here_.meet() ? sum() : "no meeting";
  failed += here_.meet() ? "" : "no meeting";
  lent.clear();
  for (const gyreComm_t comm : here_.comms) lent.push_back(take_lent(here_, comm));
  failed += here_.meet() ? "" : "no meeting";
  return failed;
}

std::string Summing::expect(bool is_lent) {
  std::vector<std::size_t> lent;
  if (std::string failed = sum(lent); !failed.empty()) return failed;
  for (const std::size_t one : lent)
    if ((one > 0) != is_lent) return std::to_string(one) + " messages are not copied";
  return "";
}

}  // namespace gyre::tests
