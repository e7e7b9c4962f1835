// RankLife: one rank of a trial. It joins, runs its errands, and writes the result of each to the
// diary. After an error it does what the script calls the aftermath.
#pragma once

#include "tests/campaign/errand.h"
#include "tests/campaign/slate.h"
#include "tests/campaign/verb.h"
#include <gyre/gyre.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace gyre::campaign {

class RankLife {
 public:
  // `on_begin` hears of each errand that begins, by number.
  RankLife(const Errands& errands, int rank, std::function<void(int rank, int errand)> on_begin);

  int rank() const { return rank_; }
  // All of it but the end; on a thread of its own.
  void run();
  // It has destroyed all it had and went before the others.
  bool has_left() const { return has_left_; }
  // Once every rank has run: nobody may have written to the slates, then or now.
  void end();
  // From any thread: aborts all its communicators, as if by another thread of the program.
  void abort_all();
  // What it does once, within its next group.
  void prepare_fork(std::function<void()> act);
  // In a child of this process: a call on the parent's communicator.
  gyreResult_t call_in_child();

 private:
  struct Pen {  // the slates of one errand
    Slate* in;
    Slate* out;
  };
  void begin(int number);
  bool is_well(int number, gyreResult_t result, gyreComm_t comm);
  bool join();
  bool carry_out(const Errand& errand, int number);
  bool call(const Errand& errand, int number, const CallKind& kind);
  bool split(const Errand& errand, int number);
  gyreResult_t awaited(gyreResult_t begun, gyreComm_t comm, gyreStream_t stream);
  void verify(const CallSite& site, const CallKind& kind);
  void look_at(const Slate& slate, int number);
  void destroy_all();
  void aftermath();
  void meet_again();
  Pen pen_of(bool lent, bool in_place, int number);
  CallSite site_of(const Errand& errand, int number, const Pen& pen);
  gyreComm_t comm_of(int comm);

  const Errands& errands_;
  const int rank_;
  const std::function<void(int, int)> on_begin_;
  std::vector<std::unique_ptr<Slate>> slates_;  // heap and lent, in and out, even and odd errands
  gyreStream_t stream_ = nullptr, by_caller_ = nullptr;
  std::map<int, gyreComm_t> places_;  // where splits put handles; by errand
  int failed_split_ = -1;             // an errand
  gyreComm_t broken_ = nullptr;       // on which it was told
  std::mutex comms_mutex_;            // of what abort_all takes from under run
  std::map<int, gyreComm_t> comms_;
  std::function<void()> in_group_;  // guarded alike
  bool was_aborted_ = false, has_left_ = false;
};

}  // namespace gyre::campaign
