// PathWatch: whether the kernel at the other end of a TCP socket still answers, whatever its
// program does. A thread that waits for that end asks now and then; each time costs a system call.
//
// A path is cut in two cases. Either this end's bytes or questions (keep-alive, probes of a full
// window) have been out for half of the limit, and nothing has arrived for all of it. Or bytes were
// repeated without an answer for all of the limit: the other end's packets may arrive while this
// end's are lost. A peer that does not read has a kernel that answers, so its path is not cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gyre {

// What the kernel knows of the path; the pure part of the watch.
struct PathSight {
  bool has_questions = false;          // something of this end is out and not acknowledged
  bool has_sent_nothing_else = false;  // a full window: it is a probe, sent ever more rarely
  std::uint32_t probes = 0;            // in a row, without an answer
  std::uint32_t repeats = 0;           // of the oldest bytes that are out
  std::int64_t heard_ago_ns = 0;       // anything of the other end
  std::uint64_t answered_bytes = 0;    // of this end, so far

  // Whether it looks cut after a silence of `limit_ns` by its program: one look, for a text.
  bool looks_cut(std::int64_t limit_ns) const {
    return has_questions && (repeats > 1 || heard_ago_ns >= limit_ns / 2);
  }
};

class PathWatch {
 public:
  // How long the path has been silent if it is cut by `limit_ns`; nothing if it is not. While
  // answers are missing, it lets the kernel repeat more often (Linux 6.15).
  std::optional<std::int64_t> find_cut(int socket, std::int64_t now_ns, std::int64_t limit_ns);
  // Something was out when it was looked at last.
  bool is_asking() const { return asked_since_ns_ != 0; }
  std::optional<std::int64_t> judge(const PathSight& sight, std::int64_t now_ns,
                                    std::int64_t limit_ns);
  // How far apart the kernel's repeats may be, after `judge`. In doubt it is a second (a seventh of
  // a long limit), so that a path that heals is used at once, and the kernel's 15 repeats take
  // longer than the limit. Else it is the kernel's own maximum: with a shorter one, it drops after
  // 1.4 s what a closed socket still holds, even for a peer that merely reads late.
  int max_repeat_ms(std::int64_t now_ns, std::int64_t limit_ns) const;

 private:
  std::int64_t asked_since_ns_ = 0;  // 0: nothing is out
  std::uint64_t answered_bytes_ = 0;
};

// Nothing if the kernel does not tell (no TCP socket, not connected).
std::optional<PathSight> look_at_path(int socket);

// Between hosts: questions after a second of silence (a third of the limit, at most 5 s). The limit
// is at least a second. The kernel itself ends an idle connection after 127 questions, and no
// earlier than the limit: a cut that nobody waits for may heal.
void set_path_questions(int socket, std::int64_t limit_ns);
// Before the socket is closed: what it still holds is repeated as if nobody had watched the path.
void end_path_watch(int socket);

}  // namespace gyre
