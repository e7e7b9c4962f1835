// How a communicator's options follow from its config and the environment, and which of the two
// wins.
#include "lib/api/options.h"

#include "kernels/cuda/launch.h"
#include "tests/support/comm/ranks.h"

#include <fmt/core.h>

#include <functional>

namespace options_test {

using namespace gyre;
using namespace gyre::comm;
using namespace gyre::tests;

namespace {

using Change = std::function<void(gyreConfig_t&)>;

gyreConfig_t config_with(const Change& change) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  if (change) change(config);
  return config;
}

struct Field {
  const char* name;
  Change set;
  const char* variable;
  const char* value;
  std::function<std::int64_t(const CommunicatorOptions&)> read;
  std::int64_t by_default, by_field, by_variable;
};

// Every field that a variable says, too.
const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"timeoutMs", [](gyreConfig_t& c) { c.timeoutMs = 1500; }, "GYRE_TIMEOUT", "7",
       [](const auto& o) { return o.timeout_ns / ns_per_ms; }, 1'800'000, 1500, 7000},
      {"initTimeoutMs", [](gyreConfig_t& c) { c.initTimeoutMs = 2500; }, "GYRE_INIT_TIMEOUT", "9",
       [](const auto& o) { return o.settings.init_timeout_s; }, 120, 3, 9},
      {"reproducible", [](gyreConfig_t& c) { c.reproducible = 1; }, "GYRE_REPRODUCIBLE", "0",
       [](const auto& o) { return std::int64_t{o.reproducible}; }, 0, 1, 0},
      {"not reproducible", [](gyreConfig_t& c) { c.reproducible = 0; }, "GYRE_REPRODUCIBLE", "1",
       [](const auto& o) { return std::int64_t{o.reproducible}; }, 0, 0, 1},
      {"maxCTAs", [](gyreConfig_t& c) { c.maxCTAs = 3; }, "GYRE_MAX_CTAS", "2",
       [](const auto& o) { return std::int64_t{o.max_channels}; }, cuda::max_channels, 3, 2},
      {"maxCTAs and 0", [](gyreConfig_t& c) { c.maxCTAs = 3; }, "GYRE_MAX_CTAS", "0",
       [](const auto& o) { return std::int64_t{o.max_channels}; }, cuda::max_channels, 3, 3},
      {"minCTAs", [](gyreConfig_t& c) { c.minCTAs = 2; }, "GYRE_MIN_CTAS", "4",
       [](const auto& o) { return std::int64_t{o.min_channels}; }, 1, 2, 4},
  };
  return all;
}

std::int64_t made(const Field& field, const gyreConfig_t& config) {
  const auto options = make_options(&config);
  REQUIRE(options.ok());
  return field.read(*options);
}

std::int64_t split(const Field& field, const CommunicatorOptions& parent,
                   const gyreConfig_t* config) {
  const auto options = make_child_options(config, parent);
  REQUIRE(options.ok());
  return field.read(*options);
}

}  // namespace

TEST_CASE("a variable beats the field of the same meaning", "[options]") {
  for (const Field& field : fields()) {
    INFO(field.name);
    CHECK(made(field, config_with({})) == field.by_default);
    CHECK(made(field, config_with(field.set)) == field.by_field);
    const WithVariables variables(Variables{{field.variable, field.value}});
    CHECK(made(field, config_with(field.set)) == field.by_variable);
  }
}

TEST_CASE("what the config of a split leaves out is the parent's, but for what a variable says",
          "[options]") {
  for (const Field& field : fields()) {
    INFO(field.name);
    const gyreConfig_t nothing = config_with({}), all = config_with(field.set);
    const auto plain = make_options(&nothing), parent = make_options(&all);
    REQUIRE((plain.ok() && parent.ok()));
    CHECK(split(field, *parent, nullptr) == field.by_field);
    CHECK(split(field, *parent, &nothing) == field.by_field);
    CHECK(split(field, *plain, &all) == field.by_field);
    const WithVariables variables(Variables{{field.variable, field.value}});
    CHECK(split(field, *parent, nullptr) == field.by_field);
    CHECK(split(field, *parent, &nothing) == field.by_variable);
    CHECK(split(field, *plain, &all) == field.by_variable);
  }
}

TEST_CASE("a child without a name of its own has the parent's", "[options]") {
  const gyreConfig_t nothing = config_with({});
  const gyreConfig_t named = config_with([](gyreConfig_t& c) { c.commName = "first"; });
  const gyreConfig_t other = config_with([](gyreConfig_t& c) { c.commName = "second"; });
  const auto parent = make_options(&named);
  REQUIRE(parent.ok());
  CHECK((*make_child_options(&nothing, *parent)).label == "first");
  CHECK((*make_child_options(&other, *parent)).label == "second");
}

TEST_CASE("a transport between hosts leaves the others out", "[options]") {
  const auto with = [](const char* name) {
    return config_with([&](gyreConfig_t& c) { c.netName = name; });
  };
  for (const auto& [name, setting] : {std::pair("tcp", "^rdma"), std::pair("Socket", "^rdma"),
                                      std::pair("rdma", "^tcp"), std::pair("IB", "^tcp")}) {
    CAPTURE(name);
    const gyreConfig_t config = with(name), nothing = with(nullptr), other = with("tcp");
    const auto made = make_options(&config);
    REQUIRE(made.ok());
    CHECK(made->settings.transport == setting);
    CHECK((*make_child_options(&nothing, *made)).settings.transport == setting);
    CHECK((*make_child_options(&other, *made)).settings.transport == "^rdma");
  }
  const gyreConfig_t config = with("shm");
  const Status refused = make_options(&config).status();
  CHECK(refused.code() == Code::InvalidUsage);
  for (const char* part : {"config.netName", "\"shm\" is not", "rdma (IB), tcp (Socket)"})
    CHECK(refused.message().find(part) != std::string_view::npos);
  const WithVariables variables(Variables{{"GYRE_TRANSPORT", "tcp"}});
  CHECK(make_options(&config)->settings.transport == "tcp");
}

}  // namespace options_test
