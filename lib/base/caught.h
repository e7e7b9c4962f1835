// How exceptions become errors: `caught` where they end, at C functions and bodies of threads, and
// `thrown_by` on the way there.
#pragma once

#include "lib/base/forks.h"
#include "lib/base/status.h"

#include <exception>
#include <new>

namespace gyre {

// Runs `body` (returning Status); nothing thrown gets past it.
template <typename Body>
Status caught(const Body& body) {
  try {
    return body();
  } catch (const ForkedInside& forked) {
    return invalid_usage(forked.what());
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& error) {
    return internal_error(error.what());
  } catch (...) {
    return internal_error("something was thrown that is no std::exception");
  }
}

// What `body` throws, as an error; but what a forked child throws goes on its way.
template <typename Body>
Status thrown_by(const Body& body) {
  try {
    body();
    return {};
  } catch (const ForkedInside&) {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

}  // namespace gyre
