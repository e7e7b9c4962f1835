// What is logged, by level and subsystem, and the grammar of GYRE_DEBUG_SUBSYS.
#include "lib/base/log.h"

#include "tests/support/catch.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

namespace log_test {

using namespace gyre;

namespace {

// A log file of this test's own while it lives.
class LogFile {
 public:
  LogFile(LogLevel level, const std::string& subsystems)
      : path_(std::filesystem::temp_directory_path() / ("gyre-log-" + std::to_string(getpid()))) {
    const auto mask = parse_subsystems(subsystems);
    REQUIRE(mask.ok());
    REQUIRE(configure_log(level, path_, *mask).ok());
  }
  ~LogFile() {
    (void)configure_log(LogLevel::warn, "/dev/null");
    std::filesystem::remove(path_);
  }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool has(const std::string& words) const { return text().find(words) != std::string::npos; }

 private:
  const std::string path_;
};

SubsystemMask masks(std::initializer_list<Subsystem> subsystems) {
  SubsystemMask mask = 0;
  for (const Subsystem one : subsystems) mask |= mask_of(one);
  return mask;
}

}  // namespace

TEST_CASE("lists of subsystems mean what they say", "[log]") {
  const auto parsed = [](const char* list) { return *parse_subsystems(list); };
  CHECK(parsed("NET") == mask_of(Subsystem::net));
  CHECK(parsed("init,Coll,P2P") == masks({Subsystem::init, Subsystem::coll, Subsystem::p2p}));
  CHECK(parsed("ALL") == all_subsystems);
  CHECK(parsed("^ALL") == 0);
  CHECK(parsed("^net,SHM") == (all_subsystems & ~masks({Subsystem::net, Subsystem::shm})));
  CHECK(parsed("ALL,NET") == all_subsystems);
  for (int i = 0; i < subsystem_count; ++i)
    CHECK(parsed(std::string(subsystem_name(static_cast<Subsystem>(i))).c_str()) == 1u << i);
}

TEST_CASE("what is no subsystem is refused, and the nearest is named", "[log]") {
  const auto refusal = [](const char* list) {
    const auto mask = parse_subsystems(list);
    CHECK(mask.status().code() == Code::InvalidUsage);
    return std::string(mask.status().message());
  };
  CHECK(refusal("TUNNING").find("did you mean TUNING?") != std::string::npos);
  CHECK(refusal("NET,COL").find("did you mean COLL?") != std::string::npos);
  for (const char* list : {"", "^", "NET,", ",NET", "NET SHM", "NET,^SHM", "0", "NETWORKING"})
    CHECK(refusal(list).find("INIT, BOOTSTRAP") != std::string::npos);
}

TEST_CASE("INFO and TRACE lines are those of the subsystems asked for", "[log]") {
  const LogFile log(LogLevel::trace, "NET,COLL");
  log_info(Subsystem::net, "net {}", 1);
  log_info(Subsystem::shm, "shm {}", 2);
  log_trace(Subsystem::coll, "coll {}", 3);
  log_trace(Subsystem::p2p, "p2p {}", 4);
  log_warn("warn {}", 5);
  CHECK(log.has("GYRE INFO NET net 1\n"));
  CHECK(log.has("GYRE TRACE COLL coll 3\n"));
  CHECK(log.has("GYRE WARN warn 5\n"));
  CHECK_FALSE(log.has("shm"));
  CHECK_FALSE(log.has("p2p"));
}

TEST_CASE("a level keeps what is below it out of all subsystems", "[log]") {
  for (const LogLevel level : {LogLevel::none, LogLevel::warn, LogLevel::info}) {
    const LogFile log(level, "ALL");
    log_warn("loud");
    log_info(Subsystem::init, "middle");
    log_trace(Subsystem::init, "quiet");
    CHECK(log.has("loud") == (level >= LogLevel::warn));
    CHECK(log.has("middle") == (level >= LogLevel::info));
    CHECK_FALSE(log.has("quiet"));
  }
}

TEST_CASE("lines show a rank while the process is exactly one", "[log]") {
  const LogFile log(LogLevel::warn, "ALL");
  const auto shows = [&](const std::string& rank, const char* words) {
    log_warn("{}", words);
    const std::string text = log.text();
    const std::size_t begin = text.rfind(std::to_string(getpid()));
    return text.find(rank + " GYRE WARN " + words, begin) != std::string::npos;
  };
  CHECK_FALSE(shows("]", "nobody yet"));
  {
    const LoggedRank first(3);
    CHECK(shows(" [3]", "alone"));
    const LoggedRank same(3);
    CHECK(shows(" [3]", "twice"));
    {
      const LoggedRank other(4);
      CHECK_FALSE(shows("]", "two ranks"));
    }
    CHECK_FALSE(shows("]", "one of two is left"));
  }
  CHECK_FALSE(shows("]", "nobody any more"));
  const LoggedRank next(5);
  CHECK(shows(" [5]", "another one"));
  forget_logged_ranks();
  CHECK_FALSE(shows("]", "a child"));
}

TEST_CASE("nothing is put into words that nobody reads", "[log]") {
  const LogFile log(LogLevel::info, "NET");
  int times = 0;
  const auto say = [&] {
    ++times;
    return "words";
  };
  if (logs_trace(Subsystem::net)) log_trace(Subsystem::net, "{}", say());
  if (logs_info(Subsystem::shm)) log_info(Subsystem::shm, "{}", say());
  CHECK(times == 0);
  if (logs_info(Subsystem::net)) log_info(Subsystem::net, "{}", say());
  CHECK(times == 1);
}

}  // namespace log_test
