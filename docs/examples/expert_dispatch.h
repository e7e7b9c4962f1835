// Sends rows to the experts' ranks and back. Experts are spread along a communicator: rank r has
// those from r * experts / ranks. Only the sender knows how much it sends, so counts go first. Then
// each direction is one gyreAlltoAllv, with send and receive tables swapped.
#pragma once

#include "job.h"
#include "linear.h"

#include <cstddef>
#include <vector>

namespace example {

class ExpertDispatch {
 public:
  // Rows of one sender for one expert of this rank, one after the other.
  struct Block {
    int expert = 0;  // among this rank's
    int first = 0, rows = 0;
  };

  ExpertDispatch(gyreComm_t comm, int experts, int width)
      : comm_(comm), width_(static_cast<std::size_t>(width)) {
    check(gyreCommCount(comm, &ranks_));
    own_ = experts / ranks_;
  }

  int own() const { return own_; }
  int ranks() const { return ranks_; }
  const std::vector<Block>& blocks() const { return blocks_; }

  // Of this rank's rows, rows_of_expert[e] go to expert e. Collective, as all that follows.
  void meet(const std::vector<int>& rows_of_expert) {
    std::vector<int> coming(rows_of_expert.size());
    check(gyreAlltoAll(rows_of_expert.data(), coming.data(), static_cast<std::size_t>(own_),
                       gyreInt, comm_, nullptr));
    here_ = table_of(rows_of_expert);
    there_ = table_of(coming);
    blocks_.clear();
    int first = 0;
    for (std::size_t i = 0; i < coming.size(); first += coming[i++])
      blocks_.push_back({static_cast<int>(i) % own_, first, coming[i]});
  }

  // Rows sorted by expert, to the experts; what comes lies there as blocks() says. A rank whose
  // experts get nothing takes part as well.
  Matrix to_experts(const Matrix& rows) { return exchange(rows, here_, there_); }
  // And the answers, in the order in which the rows were sent.
  Matrix to_senders(const Matrix& rows) { return exchange(rows, there_, here_); }

 private:
  // What goes to each rank, or comes from it, in elements.
  struct Table {
    std::vector<std::size_t> counts, displacements;
    std::size_t elements = 0;
  };

  Table table_of(const std::vector<int>& rows) const {
    Table table;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i % static_cast<std::size_t>(own_) == 0) {
        table.displacements.push_back(table.elements);
        table.counts.push_back(0);
      }
      table.counts.back() += static_cast<std::size_t>(rows[i]) * width_;
      table.elements += static_cast<std::size_t>(rows[i]) * width_;
    }
    return table;
  }

  Matrix exchange(const Matrix& rows, const Table& from, const Table& to) {
    Matrix received(to.elements);
    check(gyreAlltoAllv(rows.data(), from.counts.data(), from.displacements.data(), received.data(),
                        to.counts.data(), to.displacements.data(), gyreFloat, comm_, nullptr));
    return received;
  }

  gyreComm_t comm_;
  const std::size_t width_;
  int ranks_ = 1, own_ = 1;
  Table here_, there_;
  std::vector<Block> blocks_;
};

}  // namespace example
