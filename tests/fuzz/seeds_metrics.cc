// Seeds of requests at the metrics listener, and of its addresses.
#include "lib/control/metrics_request.h"
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

void add_requests(Seeds& seeds) {
  const auto ask = [&](const char* name, std::string_view text) {
    seeds.add("metrics", name, Script(0).rest_text(text));
  };
  const std::string scraper =
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9400\r\nUser-Agent: Prometheus/2.42.0\r\n"
      "Accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
      "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n";
  ask("scraper", scraper);
  ask("scraper_cut", scraper.substr(0, scraper.size() - 1));
  ask("scraper_twice", scraper + scraper);
  ask("plain", "GET /metrics HTTP/1.0\n\n");
  ask("query", "GET /metrics?name[]=up HTTP/1.1\r\n\r\n");
  ask("head", "HEAD /metrics HTTP/1.1\r\n\r\n");
  ask("post", "POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
  ask("other_path", "GET / HTTP/1.1\r\n\r\n");
  ask("longer_path", "GET /metricses HTTP/1.1\r\n\r\n");
  ask("no_target", "GET  HTTP/1.1\r\n\r\n");
  ask("no_version", "GET /metrics\r\n\r\n");
  ask("two", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  ask("no_method", " /metrics HTTP/1.1\r\n\r\n");
  ask("method_wrong", "G(T /metrics HTTP/1.1\r\n\r\n");
  ask("target_wrong", "GET /\x01 HTTP/1.1\r\n\r\n");
  ask("version_wrong", "GET /metrics HTTP/1.x\r\n\r\n");
  ask("no_colon", "GET /metrics HTTP/1.1\r\nHost\r\n\r\n");
  ask("field_wrong", "GET /metrics HTTP/1.1\r\nHost: \x7f\r\n\r\n");
  ask("field_tab", "GET /metrics HTTP/1.1\r\nHost:\t\xc3\xa9\r\n\r\n");
  ask("empty_name", "GET /metrics HTTP/1.1\r\n: x\r\n\r\n");
  ask("tls", std::string_view("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x0a", 12));
  ask("empty", "");
  const std::string long_field = "GET /metrics HTTP/1.1\r\nX: ";
  const std::size_t left = control::max_request_bytes - long_field.size();
  ask("longest", long_field + std::string(left - 4, 'x') + "\r\n\r\n");
  ask("too_long", long_field + std::string(left - 3, 'x') + "\r\n\r\n");
  ask("no_end", std::string(control::max_request_bytes, 'x'));
}

void add_places(Seeds& seeds) {
  const auto at = [&](const char* name, std::uint16_t local_rank, std::string_view text) {
    seeds.add("metrics", name, Script(1).number(local_rank).rest_text(text));
  };
  at("port", 0, "9400");
  at("port_third", 2, "9400");
  at("port_any", 3, "0");
  at("port_beyond", 0, "65536");
  at("port_carried_beyond", 2, "65534");
  at("address", 1, "192.0.2.1:9400");
  at("address_six", 1, "[::1]:9400");
  at("address_name", 0, "localhost:9400");
  at("path", 0, "unix:/run/gyre.sock");
  at("path_each", 0, "unix:/run/gyre-%h-%p.sock");
  at("path_relative", 0, "unix:gyre.sock");
  at("path_empty", 0, "unix:");
  at("path_long", 0, "unix:/" + std::string(107, 'x'));
  at("path_zero", 0, std::string_view("unix:/a\0b", 9));
  at("nothing", 0, "");
}

}  // namespace

void add_metrics_seeds(Seeds& seeds) {
  add_requests(seeds);
  add_places(seeds);
}

}  // namespace gyre::fuzz
