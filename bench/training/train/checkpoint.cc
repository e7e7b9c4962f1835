#include "bench/training/train/checkpoint.h"

#include "bench/training/failure.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gyre::training {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(::open(path.c_str(), flags, 0666)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  bool write(const void* data, std::size_t bytes, std::uint64_t place) const {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(descriptor_, from, bytes, static_cast<off_t>(place));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      from += done;
      place += static_cast<std::uint64_t>(done);
      bytes -= static_cast<std::size_t>(done);
    }
    return true;
  }
  // How many bytes there are of what is asked for.
  std::size_t read(void* data, std::size_t bytes, std::uint64_t place) const {
    std::size_t sum = 0;
    while (sum < bytes) {
      const ssize_t done = ::pread(descriptor_, static_cast<char*>(data) + sum, bytes - sum,
                                   static_cast<off_t>(place + sum));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) break;
      sum += static_cast<std::size_t>(done);
    }
    return sum;
  }

 private:
  const int descriptor_;
};

// Where the three arrays of a piece lie in the file.
struct ArrayPlaces {
  std::uint64_t begin = 0, elements = 0;
  std::vector<std::uint64_t> first;  // of each tensor

  ArrayPlaces(const CheckpointHead& head, std::uint64_t where) : begin(where) {
    for (const auto& [name, count] : head.tensors) {
      first.push_back(elements);
      elements += count;
    }
  }
  std::uint64_t of(const gyreGradPiece_t& piece, std::uint64_t array) const {
    return begin + sizeof(float) * (array * elements + first[piece.tensor] + piece.first);
  }
  std::uint64_t end() const { return begin + 3 * sizeof(float) * elements; }
};

// Act on each array that a piece has.
template <typename Act>
bool for_each_array(const std::vector<gyreGradPiece_t>& pieces, const ArrayPlaces& places,
                    const Act& act) {
  for (const gyreGradPiece_t& piece : pieces) {
    float* const arrays[] = {piece.parameter, piece.state1, piece.state2};
    for (std::uint64_t array = 0; array < 3; ++array)
      if (arrays[array] != nullptr &&
          !act(arrays[array], piece.count * sizeof(float), places.of(piece, array)))
        return false;
  }
  return true;
}

void meet(gyreComm_t comm) { expect(gyreBarrier(comm, nullptr), comm); }

// What ranks write to until it is whole.
std::string draft_of(const std::string& path) { return path + ".new"; }
[[noreturn]] void fail_to_write(const std::string& path) {
  fail("cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace

void expect_writable(const std::string& path) {
  const std::string draft = draft_of(path);
  const File file(draft, O_WRONLY | O_CREAT | O_CLOEXEC);
  if (!file.is_open() || ::unlink(draft.c_str()) != 0) fail_to_write(draft);
}

void save_checkpoint(const std::string& path, gyreComm_t comm, const CheckpointHead& head,
                     Way& way) {
  int rank = 0;
  expect(gyreCommUserRank(comm, &rank), comm);
  const std::string draft = draft_of(path);
  const std::string text = encode_head(head);
  const ArrayPlaces places(head, text.size());
  if (rank == 0) {
    const File file(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (!file.is_open() || !file.write(text.data(), text.size(), 0) ||
        ::ftruncate(file.descriptor(), static_cast<off_t>(places.end())) != 0)
      fail_to_write(draft);
  }
  meet(comm);
  const std::vector<gyreGradPiece_t> pieces = way.pieces_to_save();
  if (!pieces.empty()) {
    const File file(draft, O_WRONLY | O_CLOEXEC);
    const auto write = [&](const float* values, std::size_t bytes, std::uint64_t place) {
      return file.write(values, bytes, place);
    };
    if (!file.is_open() || !for_each_array(pieces, places, write) ||
        ::fsync(file.descriptor()) != 0)
      fail_to_write(draft);
  }
  // A rank that failed has not come here, and then the others do not get further.
  meet(comm);
  if (rank == 0 && std::rename(draft.c_str(), path.c_str()) != 0) fail_to_write(path);
  meet(comm);
}

TrainingProgress load_checkpoint(const std::string& path, gyreComm_t comm,
                                 const CheckpointHead& expected, Way& way) {
  const auto give_up = [&](const std::string& why) { fail("cannot resume " + path + ": " + why); };
  const File file(path, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (!file.is_open() || ::fstat(file.descriptor(), &status) != 0) give_up(std::strerror(errno));
  std::string text(1 << 20, '\0');
  text.resize(file.read(text.data(), text.size(), 0));
  CheckpointHead head;
  std::uint64_t begin = 0;
  if (const std::string why = decode_head(text, &head, &begin); !why.empty()) give_up(why);
  if (head.tensors != expected.tensors)
    give_up("it is of a model of other tensors (" + std::to_string(head.elements()) +
            " parameters; this one has " + std::to_string(expected.elements()) + ")");
  if (head.optimizer != expected.optimizer)
    give_up("its optimizer is " + head.optimizer + ", not " + expected.optimizer);
  const ArrayPlaces places(head, begin);
  if (static_cast<std::uint64_t>(status.st_size) != places.end())
    give_up(std::to_string(status.st_size) + " bytes long, not " + std::to_string(places.end()));
  const auto read = [&](float* values, std::size_t bytes, std::uint64_t place) {
    return file.read(values, bytes, place) == bytes;
  };
  if (!for_each_array(way.pieces(), places, read)) give_up("it cannot be read whole");
  way.imported(head.progress.steps);
  meet(comm);
  return head.progress;
}

}  // namespace gyre::training
