// Parses the request of a client of the metrics listener: the head of an HTTP request, as far as it
// has arrived. Not an HTTP server: one path, one method, no body, no second request.
#pragma once

#include <cstddef>
#include <string_view>

namespace gyre::control {

// A scraper's request has about 300 bytes.
inline constexpr std::size_t max_request_bytes = 2048;

enum class RequestKind {
  unclear,       // more must come
  metrics,       // GET /metrics
  other_path,    // 404
  other_method,  // 405
  malformed,     // 400: no request of HTTP/1, or a longer one
};

// `bytes` is what there is so far. Whatever was judged of a beginning holds for the whole.
RequestKind judge_request(std::string_view bytes);

}  // namespace gyre::control
