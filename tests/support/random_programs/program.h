// A Program: what several ranks do with Gyre, as data. It is drawn from a seed, printed, predicted
// by a model that shares no code with the library, and carried out on the C API. A rank is a place
// in the whole program; a member, a place in one communicator. A queue of a rank is 0, the NULL
// stream, or one of its host streams, counted from 1.
#pragma once

#include "lib/base/element.h"
#include <gyre/gyre.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace gyre::tests {

// Of a program's vectors, whose indices are numbers of ranks, members, buffers and so on.
inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

inline constexpr int nobody = -1;
inline constexpr std::byte untouched_byte{0xA5};

// What a buffer holds at first. `small` and `factors` are numbers whose sums and products are exact
// in their type, however they are combined.
enum class Filling : std::uint8_t { untouched, bits, small, factors };

struct ProgramBuffer {
  int rank = 0;
  std::size_t bytes = 0;
  std::size_t shift = 0;   // bytes by which it is misaligned
  bool allocated = false;  // by gyreMemAlloc
  Filling filling = Filling::untouched;
  ElementType type = ElementType::uint8;
  std::uint64_t seed = 0;
};

struct ProgramCommunicator {
  std::vector<int> members;  // their ranks
  bool blocking = true;
  int parent = nobody;  // communicator 0 has none
  int place_of(int rank) const;
};

enum class Verb : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  reduce_scatter,
  all_gather,
  all_to_all,
  gather,
  scatter,
  all_to_all_v,
  all_gather_v,
  reduce_scatter_v,
  barrier,
};
inline constexpr int verb_count = 12;

struct Place {
  int buffer = nobody;  // the argument is NULL
  std::size_t offset = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// What one member brings to a collective. The tables are those of the v-forms.
struct Part {
  Place input, output;
  int queue = 0;
  std::int64_t scalar = 1;  // of PreMulSum
  bool registered = false;  // its buffers are named to the communicator first
  std::vector<std::size_t> send_counts = {}, send_places = {};
  std::vector<std::size_t> receive_counts = {}, receive_places = {};
};

struct Call {
  int comm = 0;
  Verb verb = Verb::barrier;
  ElementType type = ElementType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  std::vector<Part> parts = {};  // by member
};

struct Message {
  int comm = 0;
  int from = 0, to = 0;  // members
  int tag = 0;
  bool from_any = false, any_tag = false;  // how the receiver asks
  ElementType type = ElementType::uint8;
  std::size_t count = 0;
  Place input = {}, output = {};
  int send_queue = 0, receive_queue = 0;
};

struct Split {
  int comm = 0;
  bool configured = false;  // or the parent's config
  bool blocking = true;
  std::vector<int> colors = {}, keys = {};
  std::vector<int> children = {};  // by member: the communicator it gets, or nobody
};

// What one rank does alone.
struct StreamWait {
  int rank, queue, other;
};
struct Synchronize {
  int rank, queue;
};
struct Settle {  // of a non-blocking communicator: asked until it is done
  int comm, member;
};
struct Verify {
  int buffer;
};
struct Destroy {
  int comm, member;
  bool finalize;
};

// A call that has to be refused on this rank alone, and change nothing.
struct Refusal {
  int comm, member;
  int kind;  // into refusals()
};

// Something that breaks the communicator; every member has to be told what. In the first, the odd
// member calls something else; then it is not there; then it does nothing until the deadline.
enum class Fault : std::uint8_t {
  count,
  type,
  op,
  root,
  verb,
  order,
  missing,
  extra,
  blocks,
  abort,
  leave,
  silence,
  no_answer,    // to sends and receives
  abort_aside,  // by another thread, while the odd member is in the call
};
struct Break {
  int comm, odd;  // the member that errs
  Fault fault;
  std::size_t count;  // of what is called
};

// A rank that has destroyed its communicators goes; with the last one of it, its process ends.
struct Leave {
  int rank;
};

using Act = std::variant<Call, Message, Split, StreamWait, Synchronize, Settle, Verify, Destroy,
                         Refusal, Break, Leave>;
struct Step {
  int group = 0;  // neighbours of one number other than 0 are one group on each thread
  Act act;
};

struct Program {
  std::uint32_t seed = 0;
  std::map<std::string, std::string> settings;
  int timeout_ms = 0;
  bool by_init_all = false;
  std::vector<int> thread_of_rank;
  std::vector<int> process_of_thread = {};  // empty: all in one
  int streams_each = 0;
  std::vector<std::vector<bool>> by_caller = {};  // its streams that callers drive; by rank
  std::vector<ProgramCommunicator> comms;
  std::vector<ProgramBuffer> buffers;
  std::vector<Step> steps;

  int ranks() const { return static_cast<int>(thread_of_rank.size()); }
  int processes() const;
  int process_of_rank(int rank) const;
  bool is_by_caller(int rank, int queue) const;
  // Threads that are still there at a step.
  int threads_at(std::size_t step) const;
};

enum class Temper : std::uint8_t { legal, refused, broken, silent };
// Where the ranks live. In processes the programs are richer: ranks leave early, some streams are
// driven by callers, and communicators are aborted by another thread.
enum class Housing : std::uint8_t { threads, processes };
Program draw_program(std::uint32_t seed, Temper temper, Housing housing = Housing::threads);
std::string shown(const Program& program);
std::string shown(const Program& program, const Step& step);
const char* fault_name(Fault fault);

// ------------------------------------------------------------------------------ the model

// `count` elements of a member's output are those of another's input, or of all of them reduced.
struct Piece {
  int source;  // nobody: all, reduced
  std::size_t source_first;
  int target;
  std::size_t target_first, count;
};
std::vector<Piece> pieces_of(const Call& call);
// Elements of a member's input and output that the call names.
struct Extents {
  std::size_t input = 0, output = 0;
};
Extents extents_of(const Call& call, int member);
// In place: the element of the larger side where the smaller one lies.
std::size_t own_first(const Call& call, int member);
bool sums(Verb verb);
// The largest magnitude of small numbers for sums over 8 ranks to be exact.
std::int64_t max_small(ElementType type);

std::vector<std::byte> first_bytes(const ProgramBuffer& buffer);
using Memories = std::vector<std::vector<std::byte>>;  // by buffer
// What every Verify has to find: by step, empty for other acts.
Memories expected_bytes(const Program& program);

// ------------------------------------------------------------------------------ the run

// Carries it out on threads of this process. What went wrong, empty if nothing did.
std::string run_program(const Program& program);
// The same by forked processes; this one has a single thread and uses no communicator itself.
std::string run_in_processes(const Program& program);
// Drops steps while it still fails, within so many runs; the smallest that does.
Program shrunk(Program program, int max_runs, std::string (*run)(const Program&) = run_program);

}  // namespace gyre::tests
