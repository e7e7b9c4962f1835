// Calls that have to be refused on one rank alone: wrong arguments, and right ones at the wrong
// place. A refused call changes neither the buffers nor the communicator.
#pragma once

#include <gyre/gyre.h>

#include <string>
#include <vector>

namespace gyre::tests {

struct RefusalScene {
  gyreComm_t comm;
  int size, member;
  float* in;  // 64 numbers each
  float* out;
};

struct RefusalKind {
  const char* name;
  gyreResult_t code;  // what it has to be answered with
  gyreResult_t (*call)(const RefusalScene& scene);
};

const std::vector<RefusalKind>& refusals();
// Makes it. What is wrong with the answer, or with the memory afterwards; empty if nothing is.
std::string refused(const RefusalKind& kind, gyreComm_t comm, int size, int member);

}  // namespace gyre::tests
