// UCX without a device: it fills the table of lib/loaded/ucx.h from a list of transports. One at a
// time.
#pragma once

#include "lib/loaded/ucx.h"

#include <memory>
#include <string>
#include <vector>

namespace gyre::tests {

// A transport on a device, with UCX's units: bytes per second and seconds.
struct FakeUcxTransport {
  std::string component;  // its memory domain has the same name
  std::string transport;
  std::string device;
  double dedicated = 0, shared = 0;
  double latency = 0, latency_per_endpoint = 0, overhead = 0;
};

struct FakeUcxOptions {
  std::vector<FakeUcxTransport> transports = {};
  unsigned major = 1, minor = 13, release = 1;
  // The library's name of a function, which fails from the call of that number on.
  std::string failing = {};
  int failing_from = 1;
  // The library's name of a function that is not there.
  std::string absent = {};
};

class FakeUcx {
 public:
  explicit FakeUcx(FakeUcxOptions options);
  ~FakeUcx();
  FakeUcx(const FakeUcx&) = delete;
  FakeUcx& operator=(const FakeUcx&) = delete;

  // As loaded::load_ucx.
  Result<std::unique_ptr<const loaded::Ucx>> load() const;
  int open_objects() const;
  int calls() const;  // of functions that make or ask something

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gyre::tests
