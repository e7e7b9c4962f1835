#include "tests/support/device/cuda_draw.h"

#include <fmt/core.h>

namespace gyre::tests {
namespace {

const char* const protocols[] = {"LL", "LL128", "Simple", "Direct"};

plan::Collective collective_of(Function function) {
  switch (function) {
    case Function::reduce_scatter:
    case Function::reduce_scatter_v:
      return plan::Collective::reduce_scatter;
    case Function::all_gather:
    case Function::all_gather_v:
      return plan::Collective::all_gather;
    case Function::broadcast:
      return plan::Collective::broadcast;
    case Function::reduce:
      return plan::Collective::reduce;
    case Function::all_to_all:
    case Function::all_to_all_v:
      return plan::Collective::all_to_all;
    case Function::gather:
      return plan::Collective::gather;
    case Function::scatter:
      return plan::Collective::scatter;
    case Function::all_reduce:
      break;
  }
  return plan::Collective::all_reduce;
}
constexpr int function_count = static_cast<int>(Function::all_reduce) + 1;

bool is_uneven(Function function) {
  return function == Function::all_to_all_v || function == Function::all_gather_v ||
         function == Function::reduce_scatter_v;
}

}  // namespace

std::string CudaWay::shown() const { return fmt::format("{} {}", algorithm->name, protocol); }

Variables CudaWay::variables() const {
  std::string text;
  for (const plan::Collective collective : algorithm->collectives)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", plan::collective_name(collective),
                        algorithm->name);
  return {{"GYRE_ALGO", text}, {"GYRE_PROTO", protocol}};
}

std::vector<Function> CudaWay::functions() const {
  std::vector<Function> all;
  for (int i = 0; i < function_count; ++i) {
    const auto function = static_cast<Function>(i);
    if (algorithm->does(collective_of(function)) &&
        !(is_uneven(function) && algorithm->equal_counts))
      all.push_back(function);
  }
  return all;
}

std::vector<CudaWay> every_way() {
  std::vector<CudaWay> ways;
  for (const plan::Algorithm& algorithm : plan::algorithms())
    for (const char* protocol : protocols) ways.push_back({&algorithm, protocol});
  return ways;
}

CollectiveCase drawn_case(Function function, int ranks, const std::vector<std::size_t>& counts,
                          std::mt19937_64& random) {
  constexpr std::size_t shifts[] = {0, 0, 1, 3};
  CollectiveCase one;
  do {
    one = {.function = function, .ranks = ranks};
    one.type = static_cast<ElementType>(random() % element_type_count);
    one.op = static_cast<ReduceOp>(random() % reduce_op_count);
    one.in_place = random() % 3 == 0;
    one.count = counts[random() % counts.size()];
    one.shift = shifts[random() % std::size(shifts)];
    one.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  } while (!one.is_legal());
  return one;
}

Function drawn_function(std::mt19937_64& random) {
  return static_cast<Function>(random() % function_count);
}

std::vector<Message> drawn_messages(int ranks, const std::vector<std::size_t>& counts,
                                    std::size_t most, std::mt19937_64& random) {
  std::vector<Message> messages(1 + random() % most);
  for (Message& one : messages) {
    one.from = static_cast<int>(random() % static_cast<unsigned>(ranks));
    one.to = static_cast<int>(random() % static_cast<unsigned>(ranks));
    one.count = counts[random() % counts.size()];
  }
  return messages;
}

}  // namespace gyre::tests
