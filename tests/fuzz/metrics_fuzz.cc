// A client's request at the metrics listener, and the listener's address from GYRE_METRICS. Input:
// u8 which; for addresses then u16 local rank; then the text.
#include "lib/control/metrics_place.h"
#include "lib/control/metrics_request.h"
#include "tests/fuzz/input.h"

#include <sys/un.h>

namespace metrics_fuzz {

using namespace gyre;
using namespace gyre::control;

namespace {

// A second, simple reading: line by line, with less said of what lines may hold.
bool looks_like(std::string_view text, RequestKind asked) {
  const std::size_t line_end = text.find('\n');
  const std::string_view line = text.substr(0, line_end);
  switch (asked) {
    case RequestKind::metrics:
      return line.starts_with("GET /metrics ") || line.starts_with("GET /metrics?");
    case RequestKind::other_path:
      return line.starts_with("GET ") && !line.starts_with("GET /metrics ") &&
             !line.starts_with("GET /metrics?");
    case RequestKind::other_method:
      return !line.starts_with("GET ") && line.find(" HTTP/1.") != line.npos;
    default:
      return true;
  }
}

bool has_end(std::string_view text) {
  return text.find("\n\n") != text.npos || text.find("\n\r\n") != text.npos;
}

void ask(std::string_view text) {
  text = text.substr(0, max_request_bytes + 16);
  RequestKind before = RequestKind::unclear;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    // Exactly as long, so that a look beyond the end is seen.
    const std::vector<char> beginning(text.begin(),
                                      text.begin() + static_cast<std::ptrdiff_t>(length));
    const RequestKind asked = judge_request({beginning.data(), beginning.size()});
    GYRE_DEMAND(before == RequestKind::unclear || asked == before);
    GYRE_DEMAND(looks_like(text, asked));
    const bool answered = asked != RequestKind::unclear && asked != RequestKind::malformed;
    GYRE_DEMAND(!answered || has_end(text.substr(0, length)));
    GYRE_DEMAND(asked != RequestKind::unclear || length < max_request_bytes);
    before = asked;
  }
}

void place(fuzz::Input& input) {
  const int local_rank = input.take<std::uint16_t>();
  const auto bytes = input.rest();
  const std::string text(bytes.begin(), bytes.end());
  const auto read = read_metrics_place(text, local_rank);
  if (!read.ok()) {
    GYRE_DEMAND(read.status().message().find("GYRE_METRICS=") == 0);
    return;
  }
  if (read->address.family() == AF_UNIX) {
    GYRE_DEMAND(text.starts_with("unix:/") && read->path[0] == '/');
    GYRE_DEMAND(read->path.size() < sizeof sockaddr_un().sun_path);
    return;
  }
  GYRE_DEMAND(read->path.empty());
  const std::string shown = trust::format_address(read->address);
  const auto again = read_metrics_place(shown, 0);
  GYRE_DEMAND(again.ok() && trust::format_address(again->address) == shown);
  // No local rank makes a port of its own of "any", or any of a port.
  const auto first = read_metrics_place(text, 0);
  GYRE_DEMAND(first.ok());
  GYRE_DEMAND(trust::format_address(first->address).ends_with(":0") == shown.ends_with(":0"));
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.take<std::uint8_t>() == 1) {
    place(input);
  } else {
    const auto bytes = input.rest();
    ask({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return 0;
}

GYRE_FUZZ_TARGET(metrics)

}  // namespace metrics_fuzz
