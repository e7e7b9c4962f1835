// Turns exceptions into errors. `caught` is for the places where they must end: C functions and
// bodies of threads. `thrown_by` is for the places before that.
#pragma once

#include "lib/base/forks.h"
#include "lib/base/status.h"

#include <exception>
#include <new>
#include <string>

namespace gyre {

// An error with words; where there is no memory for them, that.
template <typename Words>
Status error_saying(const Words& words) noexcept {
  try {
    return words();
  } catch (...) {
    return Status::out_of_memory();
  }
}

// Puts into `place` what `words` returns; where there is no memory for it, what needs none.
template <typename Words>
void write_words(std::string& place, const Words& words) noexcept {
  try {
    place = words();
  } catch (...) {
    place = "out of memory";  // short enough
  }
}

// Runs `body` (returning Status); nothing thrown gets past it.
template <typename Body>
Status caught(const Body& body) noexcept {
  try {
    return body();
  } catch (const ForkInCallback& forked) {
    return error_saying([&] { return invalid_usage(forked.what()); });
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& error) {
    return error_saying([&] { return internal_error(error.what()); });
  } catch (...) {
    return error_saying(
        [] { return internal_error("an exception was thrown that is not a std::exception"); });
  }
}

// What `body` throws, as an error; but what a forked child throws goes on its way.
template <typename Body>
Status thrown_by(const Body& body) {
  try {
    body();
    return {};
  } catch (const ForkInCallback&) {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& error) {
    return error_saying([&] { return internal_error(error.what()); });
  }
}

}  // namespace gyre
