// Settings: every GYRE_ variable, in one table with its type, range, default and meaning. Parsing
// is strict: a bad value is an error that names the variable, the value and what is accepted. An
// unknown GYRE_ name warns with the nearest known one. A communicator reads them once, when it is
// made.
#pragma once

#include "lib/base/status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gyre {

struct Settings {
  // What to say, and where.
  std::string debug = "WARN";
  std::string debug_file;
  std::string debug_subsystems = "ALL";
  std::string flight_file;
  std::string metrics;  // where a scraper finds them; its grammar is lib/control/metrics_place.h's
  // What to choose. The grammars of algorithm and protocol are the tuner's, see lib/tune.
  std::string algorithm;
  std::string protocol;
  std::string transport;         // comma list, best first, or ^ and a list to exclude
  std::string transport_plugin;  // libraries with more of them, separated by ':'
  std::int64_t slot_bytes = 0;   // 0: the tuner's table
  // Which network.
  std::string socket_interface;
  std::string socket_family = "ANY";
  std::string tcp_security = "ticket";
  std::string cma = "auto";
  static constexpr std::int64_t max_tcp_sockets = 8;
  std::int64_t tcp_sockets = 1;  // of a connection
  bool tcp_checksum = false;
  bool shm_disable = false;
  std::string topology_file;  // says what this host is made of
  // Between GPUs; see transports/p2p.
  bool p2p_disable = false;
  std::string p2p_level = "SYS";
  std::string net_gdr_level = "PXB";
  // RDMA; see transports/rdma.
  bool ib_disable = false;
  std::string ib_hca;
  std::int64_t ib_gid_index = -1;  // -1: by type and address
  std::int64_t ib_traffic_class = 0;
  std::int64_t ib_service_level = 0;
  std::int64_t ib_timeout = 20;
  std::int64_t ib_retry_count = 7;
  std::int64_t ib_qps_per_connection = 1;
  // How long to wait.
  std::int64_t timeout_s = 1800;
  std::int64_t init_timeout_s = 120;
  std::int64_t liveness_timeout_s = 10;
  std::int64_t spin_count = -1;  // polls before yielding the processor; -1: from the load
  // How ranks find each other (InitEnv); see lib/rendezvous.
  std::int64_t rank = -1;
  std::int64_t size = -1;
  std::int64_t local_rank = -1;
  std::int64_t local_size = -1;
  std::string job_id;
  std::string rendezvous_file;
  std::string rendezvous_address;  // host:port of rank 0, with a secret from rendezvous_secret_file
  std::string rendezvous_secret_file;
  std::int64_t rendezvous_fd = -1;
  std::int64_t max_channels = 0, min_channels = 0;  // of CUDA communicators; 0: see config
  bool reproducible = false;
  bool check_calls = true;
  std::int64_t first_sequence = 0;

  // Names of those that a variable says; the others have their defaults.
  std::set<std::string, std::less<>> said;
  bool says(std::string_view name) const { return said.contains(name); }
};

struct Setting {
  struct Integer {
    std::int64_t Settings::*field;
    std::int64_t least, most;
  };
  struct Size {
    std::int64_t Settings::*field;
    std::int64_t least, most;
  };  // K, M, G of 1024
  struct Switch {
    bool Settings::*field;
  };  // 0 or 1
  struct Keyword {
    std::string Settings::*field;
    std::vector<std::string_view> words;
  };
  struct Text {
    std::string Settings::*field;
  };
  using Kind = std::variant<Integer, Size, Switch, Keyword, Text>;

  std::string_view name;
  Kind kind;
  std::string_view meaning;
};

const std::vector<Setting>& settings_table();

// The same as people read it.
struct SettingGroup {
  std::string_view title;
  std::vector<Setting> settings;
};
const std::vector<SettingGroup>& settings_groups();
std::string accepted_values(const Setting& setting);  // "a whole number from 0 to 9"
std::string default_text(const Setting& setting);     // "unset": there is none

// Values by name; `warnings` gets one line for each unknown GYRE_ name.
Result<Settings> parse_settings(const std::map<std::string, std::string>& environment,
                                std::vector<std::string>* warnings);
// Every GYRE_ variable of the process's environment, now; and what they say.
std::map<std::string, std::string> given_settings();
Result<Settings> read_settings(std::vector<std::string>* warnings);

// The integer of a whole string: optional sign, digits, nothing else, in range.
Result<std::int64_t> parse_integer(std::string_view text, std::int64_t least, std::int64_t most);
// A size: digits, optional fraction, optional K, M, G or T (powers of 1024).
Result<std::int64_t> parse_size(std::string_view text, std::int64_t least, std::int64_t most);
// The candidate with the least edit distance to `word`; empty if none is close.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace gyre
