// What a launcher answers to PMI's version 1: one line of it, or a whole exchange over a socket
// that holds all the answers already. Input: u8 which; then a command and a wish as blocks, and the
// line; or the answers, in blocks of which each comes at once.
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/base/owned.h"
#include "lib/rendezvous/launcher_line.h"
#include "lib/rendezvous/launcher_store.h"
#include "lib/rendezvous/pmi_reply.h"
#include "tests/fuzz/input.h"

#include <sys/socket.h>

namespace launcher_fuzz {

using namespace gyre;
using namespace gyre::rendezvous;

namespace {

// By another road: all words of the line, and the first of each name.
bool has_word(const std::string& line, const std::string& word) {
  return (" " + line + " ").find(" " + word + " ") != std::string::npos;
}

void read_line(fuzz::Input& input) {
  constexpr std::string_view commands[] = {"get_result", "barrier_out", "my_kvsname"};
  constexpr std::string_view words[] = {"value", "kvsname", ""};
  const std::string command(commands[input.take<std::uint8_t>() % std::size(commands)]);
  const std::string wanted(words[input.take<std::uint8_t>() % std::size(words)]);
  const auto rest = input.rest();
  const std::string line(rest.begin(), rest.end());
  const auto value = read_pmi_reply(line, command, wanted);
  GYRE_DEMAND(fuzz::is_one_line(value.status().message()));
  if (!value.ok()) return;
  GYRE_DEMAND(has_word(line, "cmd=" + command));
  if (wanted.empty()) return GYRE_DEMAND(value->empty());
  GYRE_DEMAND(value->find(' ') == value->npos && has_word(line, wanted + "=" + *value));
}

Wait no_wait() { return Wait(system_clock, {.spins = 0, .yields = 0, .max_sleep_ns = 1}, 0); }

void talk(fuzz::Input& input) {
  int ends[2];
  GYRE_DEMAND(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  FileDescriptor near(ends[0]), far(ends[1]);
  while (!input.empty()) {
    const auto piece = input.take_block();
    (void)!::send(far.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  Wait wait = no_wait();
  auto line = open_pmi(near.get(), wait);
  if (!line.ok()) return GYRE_DEMAND(fuzz::is_one_line(line.status().message()));
  LaunchPlace place;
  place.size = 2;
  place.rank = 1;
  LauncherStore launcher(std::move(*line));
  const auto store = launcher.open(place, 0);
  GYRE_DEMAND(store.ok());
  const auto value = store->get("id", 0);
  GYRE_DEMAND(fuzz::is_one_line(value.status().message()));
  if (value.ok()) {
    GYRE_DEMAND(value->size() <= max_pmi_line);
    const bool is_put = store->set("id", *value).ok();
    GYRE_DEMAND(launcher.open(place, 0).ok() == is_put);
  }
  far.reset();  // the launcher has gone; what it has said can still be heard
  launcher.finish();
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = configure_log(LogLevel::none, "").ok();
  fuzz::Input input(data, size);
  constexpr void (*parts[])(fuzz::Input&) = {read_line, talk};
  if (quiet) parts[input.take<std::uint8_t>() % std::size(parts)](input);
  return 0;
}

GYRE_FUZZ_TARGET(launcher)

}  // namespace launcher_fuzz
