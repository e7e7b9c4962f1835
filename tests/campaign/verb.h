// The calls of the campaign: for each one its inputs, the call itself, and the expected result.
// Values follow from the errand, the member and the position, and wrap, so any order of summation
// gives the same bits.
#pragma once

#include "tests/campaign/errand.h"
#include <gyre/gyre.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::campaign {

// Where a rank stands in a call.
struct CallSite {
  const Errand& errand;
  int number;               // of the errand
  int member, size;         // of its communicator
  std::vector<int> takers;  // members who take part
  gyreComm_t comm;
  gyreStream_t stream;
  std::uint32_t* in;
  std::uint32_t* out;
  std::vector<int> sources = {};        // whom a receive from anyone took
  std::function<void()> in_group = {};  // what befalls it there

  int place() const;  // among the takers
  // Elements of a block that one member has for another in the uneven forms.
  std::size_t uneven(int from, int to) const;
};

std::uint32_t given(int number, int member, std::size_t place);

struct CallKind {
  const char* name;
  std::size_t (*in_blocks)(std::size_t size);
  std::size_t (*out_blocks)(std::size_t size);
  gyreResult_t (*make)(CallSite& site);
  // Of the element of `out`; nothing where it does not matter.
  std::optional<std::uint32_t> (*expected)(const CallSite& site, std::size_t place);
};

std::span<const CallKind> call_kinds();
// NULL: no such verb.
const CallKind* call_kind(const std::string& name);

// Elements that a call's buffers need.
std::size_t in_elements(const Errand& errand, std::size_t size);
std::size_t out_elements(const Errand& errand, std::size_t size);

}  // namespace gyre::campaign
