#include "lib/gradsync/tensors.h"

#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::gradsync {
namespace {

// What ranks compare of a tensor. Of a long name only the beginning.
struct TensorEntry {
  std::uint64_t count = 0;
  std::int32_t type = -1;  // -1: the list has ended
  std::int32_t has_parameter = 0;
  std::uint64_t unit = 0;
  char name[104] = {};

  friend bool operator==(const TensorEntry& a, const TensorEntry& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};
static_assert(sizeof(TensorEntry) == 128);

// Where a rank's list differs from rank 0's, and with what.
struct Difference {
  std::int64_t index = -1;
  TensorEntry entry;
};

TensorEntry entry_of(std::span<const Tensor> tensors, std::size_t index) {
  TensorEntry entry;
  if (index >= tensors.size()) return entry;
  const Tensor& tensor = tensors[index];
  entry.count = tensor.count;
  entry.type = static_cast<std::int32_t>(tensor.type);
  entry.has_parameter = tensor.parameter != nullptr;
  entry.unit = tensor.unit;
  tensor.name.copy(entry.name, sizeof entry.name - 1);
  return entry;
}

// With what tells it from `other`.
std::string show(const TensorEntry& entry, const TensorEntry& other) {
  if (entry.type < 0) return "none";
  const bool known = entry.type < element_type_count;
  const fmt::string_view name(entry.name, strnlen(entry.name, sizeof entry.name));
  return fmt::format("'{}' of {} {}{}{}", name, entry.count,
                     known ? element_name(static_cast<ElementType>(entry.type)) : "elements",
                     entry.has_parameter < other.has_parameter ? " without a parameter" : "",
                     entry.unit == other.unit ? "" : fmt::format(" in unit {}", entry.unit));
}

// Rank 0's entry for each of this rank's tensors and one more, which is the end of its list.
Result<std::vector<TensorEntry>> first_entries(gyreComm_t comm, std::span<const Tensor> tensors) {
  std::uint64_t count = tensors.size();
  GYRE_TRY(checked(gyreBcast(&count, 1, gyreUint64, 0, comm, nullptr), comm));
  if (count > std::uint64_t{1} << 32)
    return internal_error("rank 0's list has more than 2^32 tensors");
  std::vector<TensorEntry> entries(count + 1);
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = entry_of(tensors, i);
  GYRE_TRY(checked(
      gyreBcast(entries.data(), entries.size() * sizeof(TensorEntry), gyreChar, 0, comm, nullptr),
      comm));
  return entries;
}

Status agree_on_tensors(gyreComm_t comm, std::span<const Tensor> tensors) {
  GYRE_ASSIGN(const auto first, first_entries(comm, tensors));
  Difference mine;
  for (std::size_t i = 0; i < first.size() && mine.index < 0; ++i)
    if (const TensorEntry entry = entry_of(tensors, i); !(entry == first[i]))
      mine = {static_cast<std::int64_t>(i), entry};
  std::vector<Difference> all;
  GYRE_TRY(all_gather<Difference>(comm, {&mine, 1}, all));
  const auto differs = [](const Difference& one) { return one.index >= 0; };
  const auto found = std::find_if(all.begin(), all.end(), differs);
  if (found == all.end()) return {};
  if (static_cast<std::uint64_t>(found->index) >= first.size())
    return internal_error("a peer's list differs where rank 0's has ended");
  const int rank = static_cast<int>(found - all.begin());
  const TensorEntry& expected = first[static_cast<std::size_t>(found->index)];
  return Status(Code::Mismatch,
                fmt::format("tensor {} is {} on rank 0 and {} on rank {}", found->index,
                            show(expected, found->entry), show(found->entry, expected), rank))
      .blame({rank});
}

// To tell arrays apart that are not meant to differ: each 8 bytes are mixed in by a multiplication
// (constants: the golden ratio, as in Knuth, TAOCP 3, 6.4), four chains at a time.
std::uint64_t hash_of(const void* bytes, std::uint64_t size) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
  std::uint64_t chains[4] = {size, golden, ~size, ~golden};
  const auto* place = static_cast<const std::byte*>(bytes);
  const auto mix = [](std::uint64_t chain, std::uint64_t word) {
    chain = (chain ^ word) * golden;
    return chain ^ chain >> 32;
  };
  for (; size >= sizeof chains; size -= sizeof chains, place += sizeof chains) {
    std::uint64_t words[4];
    std::memcpy(words, place, sizeof words);
    for (int i = 0; i < 4; ++i) chains[i] = mix(chains[i], words[i]);
  }
  std::uint64_t rest[4] = {};
  std::memcpy(rest, place, size);
  for (int i = 0; i < 4; ++i) chains[i] = mix(chains[i], rest[i]);
  return mix(mix(mix(chains[0], chains[1]), chains[2]), chains[3]);
}

Result<Tensor> read_tensor(std::size_t index, const char* name, std::size_t count,
                           const gyreDataType_t& datatype) {
  int type = 0;
  std::memcpy(&type, &datatype, sizeof type);  // a caller's word may be no value of the enumeration
  const auto refuse = [&](std::string_view what) {
    return invalid_argument(
        fmt::format("tensors[{}] '{}': {}", index, name == nullptr ? "" : name, what));
  };
  if (type < 0 || type >= element_type_count)
    return refuse(fmt::format("datatype {} is none of gyreDataType_t", type));
  Tensor tensor;
  tensor.name = name == nullptr ? "" : name;
  tensor.count = count;
  tensor.type = static_cast<ElementType>(type);
  if (count == 0) return refuse("count is 0");
  if (!checked_multiply(count, 2 * element_bytes(tensor.type)))
    return refuse(fmt::format("the bytes of {} elements do not fit in 64 bits", count));
  return tensor;
}

// call(tensor) for each that has a parameter, in groups.
template <typename Call>
Status on_parameters(gyreComm_t comm, std::span<const Tensor> tensors, const Call& call) {
  constexpr std::size_t max_group = 64;
  for (std::size_t first = 0; first < tensors.size(); first += max_group) {
    GYRE_TRY(checked(gyreGroupStart()));
    for (const Tensor& tensor : tensors.subspan(first, std::min(max_group, tensors.size() - first)))
      if (tensor.parameter != nullptr) (void)call(tensor);
    GYRE_TRY(checked(gyreGroupEnd(), comm));  // which has the error of a call that was refused
  }
  return {};
}

// read(place in the array, tensor) fills in what the kinds of lists do not share.
template <typename Given, typename Read>
Result<std::vector<Tensor>> read_list(const Given* tensors, std::size_t count, const Read& read) {
  if (tensors == nullptr || count == 0)
    return invalid_argument("tensors: at least one is needed, and the array may not be NULL");
  std::vector<Tensor> list;
  for (std::size_t i = 0; i < count; ++i) {
    GYRE_ASSIGN(Tensor tensor,
                read_tensor(i, tensors[i].name, tensors[i].count, tensors[i].datatype));
    read(tensors[i], tensor);
    list.push_back(std::move(tensor));
  }
  return list;
}

}  // namespace

Result<std::vector<Tensor>> read_tensors(const gyreGradTensor_t tensors[], std::size_t count) {
  return read_list(tensors, count, [](const gyreGradTensor_t& given, Tensor& tensor) {
    tensor.parameter = given.parameter;
    tensor.gradient = given.gradient;
  });
}

Result<std::vector<Tensor>> read_tensors(const gyreGradShardTensor_t tensors[], std::size_t count) {
  return read_list(tensors, count, [](const gyreGradShardTensor_t& given, Tensor& tensor) {
    tensor.unit = given.unit;
  });
}

Status check_index(std::span<const Tensor> tensors, std::size_t index) {
  if (index < tensors.size()) return {};
  return invalid_argument(fmt::format("tensor {} is not from 0 to {}", index, tensors.size() - 1));
}

std::string call_by_name(std::span<const Tensor> tensors, std::size_t index) {
  if (index >= tensors.size()) return fmt::format("tensor {}", index);
  return fmt::format("tensor {}{}{}{}", index, tensors[index].name.empty() ? "" : " '",
                     tensors[index].name, tensors[index].name.empty() ? "" : "'");
}

Status agree(gyreComm_t comm, std::span<const ComparedNumber> settings) {
  std::vector<std::int64_t> mine, all;
  for (const ComparedNumber& setting : settings) mine.push_back(setting.value);
  GYRE_TRY(all_gather<std::int64_t>(comm, mine, all));
  for (std::size_t i = 0; i < settings.size(); ++i)
    for (int rank = 1; rank < size_of(comm); ++rank) {
      const std::int64_t other = all[static_cast<std::size_t>(rank) * settings.size() + i];
      if (other == all[i]) continue;
      return Status(Code::Mismatch, fmt::format("{} is {} on rank 0 and {} on rank {}",
                                                settings[i].name, all[i], other, rank))
          .blame({rank});
    }
  return {};
}

Status agree(gyreComm_t comm, std::span<const ComparedNumber> settings,
             std::span<const Tensor> tensors) {
  GYRE_TRY(agree(comm, settings));
  return agree_on_tensors(comm, tensors);
}

Status broadcast(gyreComm_t comm, std::span<const Tensor> tensors, int root) {
  return on_parameters(comm, tensors, [&](const Tensor& tensor) {
    return gyreBcast(tensor.parameter, tensor.bytes(), gyreChar, root, comm, nullptr);
  });
}

Status average(gyreComm_t comm, std::span<const Tensor> tensors) {
  return on_parameters(comm, tensors, [&](const Tensor& tensor) {
    if (!is_float(tensor.type)) return gyreSuccess;
    return gyreAllReduce(tensor.parameter, tensor.parameter, tensor.count,
                         static_cast<gyreDataType_t>(tensor.type), gyreAvg, comm, nullptr);
  });
}

Status compare(gyreComm_t comm, std::span<const Tensor> tensors) {
  std::vector<std::uint64_t> mine, all;
  for (const Tensor& tensor : tensors)
    mine.push_back(tensor.parameter == nullptr ? 0 : hash_of(tensor.parameter, tensor.bytes()));
  GYRE_TRY(all_gather<std::uint64_t>(comm, mine, all));
  for (std::size_t i = 0; i < mine.size(); ++i)
    for (int rank = 1; rank < size_of(comm); ++rank)
      if (all[static_cast<std::size_t>(rank) * mine.size() + i] != all[i])
        return Status(Code::Mismatch,
                      fmt::format("the parameter of {} on rank {} differs from that on rank 0",
                                  call_by_name(tensors, i), rank))
            .blame({rank});
  return {};
}

}  // namespace gyre::gradsync
