// Programs as text, a line a step; and smaller programs that fail in the same way.
#include "tests/support/random_programs/program.h"

#include <algorithm>
#include <set>

namespace gyre::tests {
namespace {

constexpr const char* verbs[] = {
    "all-reduce", "reduce",  "broadcast",    "reduce-scatter", "all-gather",       "all-to-all",
    "gather",     "scatter", "all-to-all-v", "all-gather-v",   "reduce-scatter-v", "barrier"};
constexpr const char* faults[] = {"another count", "another type",   "another op",  "another root",
                                  "another call",  "opposite order", "a call less", "a call more",
                                  "other blocks",  "abort",          "leave",       "silence",
                                  "no answer",     "an abort aside"};

std::string list(const auto& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : " ") + std::to_string(value);
  return "[" + text + "]";
}

std::string name(const Place& place) {
  if (place.buffer == nobody) return "-";
  return "b" + std::to_string(place.buffer) +
         (place.offset > 0 ? "+" + std::to_string(place.offset) : "");
}

std::string on(int comm) { return " on c" + std::to_string(comm); }
std::string by(int queue) { return queue == 0 ? "" : " s" + std::to_string(queue); }

std::string text_of(const Call& call, const Program&) {
  std::string text = verbs[static_cast<int>(call.verb)] + on(call.comm) + " of " +
                     std::to_string(call.count) + " " + std::string(element_name(call.type));
  if (sums(call.verb)) text += " " + std::string(op_name(call.op));
  text += " root " + std::to_string(call.root) + ":";
  for (const Part& part : call.parts) {
    text += " " + name(part.input) + ">" + name(part.output) + by(part.queue);
    if (call.verb == Verb::all_to_all_v) text += list(part.send_counts) + list(part.send_places);
    if (call.verb == Verb::all_to_all_v || &part == &call.parts[0])
      if (call.verb == Verb::all_to_all_v || call.verb == Verb::all_gather_v ||
          call.verb == Verb::reduce_scatter_v)
        text += list(part.receive_counts) + list(part.receive_places);
    if (call.op == ReduceOp::pre_mul_sum) text += "*" + std::to_string(part.scalar);
    text += ",";
  }
  return text;
}

std::string text_of(const Message& one, const Program&) {
  return "message" + on(one.comm) + " " + std::to_string(one.from) + " to " +
         std::to_string(one.to) + " of " + std::to_string(one.count) + " " +
         std::string(element_name(one.type)) + " tag " + std::to_string(one.tag) +
         (one.from_any ? " from any" : "") + (one.any_tag ? " any tag" : "") + ": " +
         name(one.input) + by(one.send_queue) + " > " + name(one.output) + by(one.receive_queue);
}

std::string text_of(const Split& split, const Program& program) {
  std::string text = "split" + on(split.comm) + " colors " + list(split.colors) + " keys " +
                     list(split.keys) +
                     (split.configured ? split.blocking ? " blocking" : " non-blocking" : "");
  const std::set<int> children(split.children.begin(), split.children.end());
  for (const int child : children)
    if (child != nobody)
      text += " c" + std::to_string(child) + "=" +
              list(program.comms[static_cast<std::size_t>(child)].members);
  return text;
}

std::string text_of(const StreamWait& one, const Program&) {
  return "rank " + std::to_string(one.rank) + ": s" + std::to_string(one.queue) + " waits for s" +
         std::to_string(one.other);
}

std::string text_of(const Synchronize& one, const Program&) {
  return "rank " + std::to_string(one.rank) + ": synchronize s" + std::to_string(one.queue);
}

std::string text_of(const Settle& one, const Program&) {
  return "member " + std::to_string(one.member) + " settles" + on(one.comm);
}

std::string text_of(const Verify& one, const Program&) {
  return "verify b" + std::to_string(one.buffer);
}

std::string text_of(const Destroy& one, const Program&) {
  return "member " + std::to_string(one.member) +
         (one.finalize ? " finalizes and destroys" : " destroys") + " c" + std::to_string(one.comm);
}

std::string text_of(const Refusal& one, const Program&) {
  return "member " + std::to_string(one.member) + on(one.comm) + ": refusal " +
         std::to_string(one.kind);
}

std::string text_of(const Break& one, const Program&) {
  return "member " + std::to_string(one.odd) + on(one.comm) + ": " + fault_name(one.fault) +
         ", count " + std::to_string(one.count);
}

std::string text_of(const Leave& one, const Program&) {
  return "rank " + std::to_string(one.rank) + " leaves";
}

std::string text_of(const ProgramBuffer& buffer) {
  constexpr const char* fillings[] = {"", " of bits", " of small ", " of factors "};
  return "rank " + std::to_string(buffer.rank) + ", " + std::to_string(buffer.bytes) + " bytes" +
         (buffer.shift > 0 ? " at " + std::to_string(buffer.shift) : "") +
         (buffer.allocated ? " of gyreMemAlloc" : "") + fillings[static_cast<int>(buffer.filling)] +
         (buffer.filling > Filling::bits ? std::string(element_name(buffer.type)) : "");
}

// Steps whose lack leaves the rest legal: what makes a communicator that nobody uses, too.
bool may_go(const Program& program, const Step& step) {
  if (const auto* split = std::get_if<Split>(&step.act)) {
    const auto uses = [&](const Step& other) {
      const auto made = [&](int comm) {
        return comm >= 0 && std::ranges::find(split->children, comm) != split->children.end();
      };
      if (const auto* call = std::get_if<Call>(&other.act)) return made(call->comm);
      if (const auto* message = std::get_if<Message>(&other.act)) return made(message->comm);
      if (const auto* next = std::get_if<Split>(&other.act)) return made(next->comm);
      if (const auto* settle = std::get_if<Settle>(&other.act)) return made(settle->comm);
      if (const auto* refusal = std::get_if<Refusal>(&other.act)) return made(refusal->comm);
      if (const auto* fault = std::get_if<Break>(&other.act)) return made(fault->comm);
      return false;
    };
    return std::ranges::none_of(program.steps, uses);
  }
  return !std::holds_alternative<StreamWait>(step.act) &&
         !std::holds_alternative<Synchronize>(step.act) && !std::holds_alternative<Leave>(step.act);
}

}  // namespace

const char* fault_name(Fault fault) { return faults[static_cast<int>(fault)]; }

std::string shown(const Program& program, const Step& step) {
  return (step.group != 0 ? "group " + std::to_string(step.group) + ": " : "") +
         std::visit([&](const auto& act) { return text_of(act, program); }, step.act);
}

std::string shown(const Program& program) {
  std::string text = "program " + std::to_string(program.seed) + ": " +
                     std::to_string(program.ranks()) + " ranks, threads of ranks " +
                     list(program.thread_of_rank) +
                     (program.process_of_thread.empty()
                          ? ""
                          : ", processes of threads " + list(program.process_of_thread)) +
                     (program.by_init_all ? ", InitAll" : "") +
                     (program.comms[0].blocking ? "" : ", non-blocking") + "\n";
  for (const auto& [name, value] : program.settings) text += name + "=" + value + " ";
  for (std::size_t rank = 0; rank < program.by_caller.size(); ++rank)
    for (std::size_t queue = 0; queue < program.by_caller[rank].size(); ++queue)
      if (program.by_caller[rank][queue])
        text +=
            "s" + std::to_string(queue + 1) + " of rank " + std::to_string(rank) + " by caller; ";
  std::set<int> used;
  const auto use = [&](const Place& place) {
    if (place.buffer != nobody) used.insert(place.buffer);
  };
  std::string steps;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    steps += std::to_string(i) + " " + shown(program, step) + "\n";
    if (const auto* call = std::get_if<Call>(&step.act))
      for (const Part& part : call->parts) use(part.input), use(part.output);
    if (const auto* message = std::get_if<Message>(&step.act))
      use(message->input), use(message->output);
  }
  text += "\n";
  for (const int buffer : used)
    text += "b" + std::to_string(buffer) + ": " +
            text_of(program.buffers[static_cast<std::size_t>(buffer)]) + "\n";
  return text + steps;
}

Program shrunk(Program program, int max_runs, std::string (*run)(const Program&)) {
  for (std::size_t width = program.steps.size() / 2; width > 0; width /= 2)
    for (std::size_t begin = 0; begin < program.steps.size() && max_runs > 0;) {
      Program smaller = program;
      std::size_t dropped = 0;
      for (std::size_t i = begin; i < begin + width && i < program.steps.size(); ++i) {
        if (!may_go(program, program.steps[i])) continue;
        smaller.steps.erase(smaller.steps.begin() + static_cast<std::ptrdiff_t>(i - dropped));
        ++dropped;
      }
      if (dropped > 0 && (--max_runs, !run(smaller).empty()))
        program = std::move(smaller);
      else
        begin += width;
    }
  return program;
}

}  // namespace gyre::tests
