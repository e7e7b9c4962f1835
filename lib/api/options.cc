#include "lib/api/options.h"

#include "lib/base/log.h"
#include "lib/comm/process.h"
#include "lib/links/transport_registry.h"

#include <fmt/core.h>

#include <climits>
#include <cstring>

namespace gyre::comm {
namespace {

// The caller's config as this library knows it: fields that the caller's version lacks are
// undefined.
Result<gyreConfig_t> known_config(const gyreConfig_t* given) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  if (given == nullptr) return config;
  if (given->magic != GYRE_CONFIG_MAGIC)
    return invalid_argument("the config was not made with GYRE_CONFIG_INITIALIZER (wrong magic)");
  if (given->size < offsetof(gyreConfig_t, blocking) || given->size > 4096)
    return invalid_argument(
        fmt::format("the config's size {} is not valid: initialize it with GYRE_CONFIG_INITIALIZER",
                    given->size));
  std::memcpy(&config, given, std::min(given->size, sizeof config));
  return config;
}

Result<int> in_range(std::string_view field, int value, int least, int most, int undefined) {
  if (value == GYRE_CONFIG_UNDEF_INT) return undefined;
  if (value < least || value > most)
    return invalid_argument(
        fmt::format("config.{} = {} is not from {} to {}", field, value, least, most));
  return value;
}

// How many a CUDA communicator has: the environment's word, or the config's.
Status choose_channels(CommunicatorOptions& options, const gyreConfig_t& config) {
  constexpr int most = 1 << 20;
  GYRE_ASSIGN(const int max, in_range("maxCTAs", config.maxCTAs, 1, most, most));
  GYRE_ASSIGN(const int min, in_range("minCTAs", config.minCTAs, 1, most, 1));
  const Settings& settings = options.settings;
  const std::int64_t max_wanted = settings.max_channels > 0 ? settings.max_channels : max;
  const std::int64_t min_wanted = settings.min_channels > 0 ? settings.min_channels : min;
  if (min_wanted > max_wanted)
    return invalid_argument(
        fmt::format("minCTAs = {} is more than maxCTAs = {} (config, or "
                    "GYRE_MIN_CTAS and GYRE_MAX_CTAS)",
                    min_wanted, max_wanted));
  options.max_channels =
      static_cast<std::uint32_t>(std::min<std::int64_t>(max_wanted, cuda::max_channels));
  options.min_channels = static_cast<std::uint32_t>(min_wanted);
  return {};
}

// How long to wait: the environment's word, or the config's.
Status choose_deadlines(CommunicatorOptions& options, const gyreConfig_t& config) {
  GYRE_ASSIGN(const int each_ms, in_range("timeoutMs", config.timeoutMs, 1, INT_MAX, 0));
  GYRE_ASSIGN(const int init_ms, in_range("initTimeoutMs", config.initTimeoutMs, 1, INT_MAX, 0));
  Settings& settings = options.settings;
  const bool by_config = each_ms > 0 && !settings.says("GYRE_TIMEOUT");
  options.timeout_ns = by_config ? each_ms * ns_per_ms : settings.timeout_s * ns_per_s;
  if (init_ms > 0 && !settings.says("GYRE_INIT_TIMEOUT"))
    settings.init_timeout_s = (init_ms + std::int64_t{999}) / 1000;
  return {};
}

// Which transport joins hosts: the environment's word, or the config's.
Status choose_network(Settings& settings, const char* name) {
  if (name == nullptr || settings.says("GYRE_TRANSPORT")) return {};
  auto wanted = alone_between_hosts(name);
  if (!wanted.ok()) return std::move(wanted).status().while_doing("config.netName");
  settings.transport = std::move(*wanted);
  return {};
}

}  // namespace

Result<CommunicatorOptions> make_options(const gyreConfig_t* given, int* device) {
  CommunicatorOptions options;
  GYRE_ASSIGN(const gyreConfig_t config, known_config(given));
  std::vector<std::string> warnings;
  GYRE_ASSIGN(options.settings, read_settings(&warnings));
  GYRE_TRY(process().begin_log(options.settings));
  for (const std::string& warning : warnings) log_warn("{}", warning);
  GYRE_ASSIGN(const int blocking, in_range("blocking", config.blocking, 0, 1, 1));
  GYRE_ASSIGN(const int reproducible, in_range("reproducible", config.reproducible, 0, 1, 0));
  GYRE_ASSIGN(*device,
              in_range("device", config.device, GYRE_DEVICE_HOST, INT_MAX, GYRE_CONFIG_UNDEF_INT));
  GYRE_TRY(choose_channels(options, config));
  GYRE_TRY(choose_deadlines(options, config));
  GYRE_TRY(choose_network(options.settings, config.netName));
  options.blocking = blocking != 0;
  const bool by_variable = options.settings.says("GYRE_REPRODUCIBLE");
  options.reproducible = by_variable ? options.settings.reproducible : reproducible != 0;
  options.state_page = &process().state_page;
  if (config.commName != nullptr) options.label = config.commName;
  if (config.commName != nullptr) options.name = fmt::format("\"{}\" ", config.commName);
  return options;
}

int default_device() {
  Status why;
  const int device = process().default_device(&why);
  if (!why.ok()) log_info(Subsystem::init, "host memory: {}", why.message());
  return device;
}

Status choose_device(CommunicatorOptions& options, int device) {
  if (device == GYRE_CONFIG_UNDEF_INT) device = default_device();
  // Somebody else in this process may use CUDA: then a caller can mix its memory up with ours.
  if (device == GYRE_DEVICE_HOST) {
    options.driver = process().services.cuda_in_use();
    options.device = nullptr;
    return {};
  }
  auto opened = process().cuda_device(device);
  if (!opened.ok())
    return std::move(opened).status().while_doing(fmt::format("config.device = {}", device));
  options.device = std::move(opened).value();
  options.driver = &options.device->driver();
  return {};
}

Result<CommunicatorOptions> make_options(const gyreConfig_t* given) {
  int device = GYRE_CONFIG_UNDEF_INT;
  GYRE_ASSIGN(CommunicatorOptions options, make_options(given, &device));
  GYRE_TRY(choose_device(options, device));
  return options;
}

Result<CommunicatorOptions> make_child_options(const gyreConfig_t* given,
                                               const CommunicatorOptions& parent) {
  if (given == nullptr) return parent;
  GYRE_ASSIGN(const gyreConfig_t config, known_config(given));
  int device = GYRE_CONFIG_UNDEF_INT;
  GYRE_ASSIGN(CommunicatorOptions options, make_options(given, &device));
  Settings& settings = options.settings;
  // Neither the config nor a variable of the same meaning says it.
  const auto is_left_out = [](int field, bool by_variable = false) {
    return field == GYRE_CONFIG_UNDEF_INT && !by_variable;
  };
  if (is_left_out(config.blocking)) options.blocking = parent.blocking;
  if (is_left_out(config.reproducible, settings.says("GYRE_REPRODUCIBLE")))
    options.reproducible = parent.reproducible;
  if (is_left_out(config.timeoutMs, settings.says("GYRE_TIMEOUT")))
    options.timeout_ns = parent.timeout_ns;
  if (is_left_out(config.initTimeoutMs, settings.says("GYRE_INIT_TIMEOUT")))
    settings.init_timeout_s = parent.settings.init_timeout_s;
  if (is_left_out(config.minCTAs, settings.min_channels > 0))
    options.min_channels = parent.min_channels;
  if (is_left_out(config.maxCTAs, settings.max_channels > 0))
    options.max_channels = parent.max_channels;
  if (config.netName == nullptr && !settings.says("GYRE_TRANSPORT"))
    settings.transport = parent.settings.transport;
  if (config.commName == nullptr) {
    options.label = parent.label;
    options.name = parent.name;
  }
  if (!is_left_out(device)) {
    GYRE_TRY(choose_device(options, device));
    return options;
  }
  options.device = parent.device;
  options.driver = parent.driver;
  return options;
}

}  // namespace gyre::comm
