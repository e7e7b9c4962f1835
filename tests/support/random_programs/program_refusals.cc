#include "tests/support/random_programs/program_refusals.h"

#include <array>
#include <cstdint>

namespace gyre::tests {
namespace {

using Scene = RefusalScene;
constexpr std::size_t room = 64;

gyreResult_t sum(const Scene& scene, const void* send, void* receive, std::size_t count,
                 int type = gyreFloat, int op = gyreSum, gyreStream_t stream = nullptr) {
  return gyreAllReduce(send, receive, count, static_cast<gyreDataType_t>(type),
                       static_cast<gyreRedOp_t>(op), scene.comm, stream);
}

gyreResult_t spoiled_group(const Scene& scene) {
  (void)gyreGroupStart();
  if (sum(scene, scene.in, scene.out, 8) != gyreSuccess) return gyreInternalError;
  (void)sum(scene, scene.in, nullptr, 8);
  return gyreGroupEnd();
}

// The group itself is none the worse for it.
gyreResult_t destroyed_in_group(const Scene& scene) {
  (void)gyreGroupStart();
  const gyreResult_t result = gyreCommDestroy(scene.comm);
  return gyreGroupEnd() == gyreSuccess ? result : gyreInternalError;
}

gyreResult_t op_of_another_type(const Scene& scene) {
  std::int32_t two = 2;
  gyreRedOp_t op = gyreSum;
  if (gyreRedOpCreatePreMulSum(&op, &two, gyreInt32, gyreScalarHostImmediate, scene.comm) !=
      gyreSuccess)
    return gyreInternalError;
  const gyreResult_t result = sum(scene, scene.in, scene.out, 8, gyreFloat, op);
  return gyreRedOpDestroy(op, scene.comm) == gyreSuccess ? result : gyreInternalError;
}

gyreResult_t destroyed_op(const Scene& scene) {
  float two = 2;
  gyreRedOp_t op = gyreSum;
  if (gyreRedOpCreatePreMulSum(&op, &two, gyreFloat, gyreScalarHostImmediate, scene.comm) !=
          gyreSuccess ||
      gyreRedOpDestroy(op, scene.comm) != gyreSuccess)
    return gyreInternalError;
  return sum(scene, scene.in, scene.out, 8, gyreFloat, op);
}

gyreResult_t destroyed_stream(const Scene& scene) {
  gyreStream_t stream = nullptr;
  if (gyreStreamCreate(&stream) != gyreSuccess || gyreStreamDestroy(stream) != gyreSuccess)
    return gyreInternalError;
  return sum(scene, scene.in, scene.out, 8, gyreFloat, gyreSum, stream);
}

gyreResult_t gathered_v(const Scene& scene, std::size_t own) {
  std::array<std::size_t, 16> counts{}, places{};
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = 2, places[i] = 2 * i;
  return gyreAllGatherv(scene.in, own, scene.out, counts.data(), places.data(), gyreFloat,
                        scene.comm, nullptr);
}

gyreResult_t sent(const Scene& scene, const void* data, int peer, int tag) {
  return gyreSendTagged(data, 8, gyreFloat, peer, tag, scene.comm, nullptr);
}

gyreResult_t received(const Scene& scene, void* data, int peer, int tag) {
  return gyreRecvTagged(data, 8, gyreFloat, peer, tag, nullptr, nullptr, scene.comm, nullptr);
}

gyreResult_t split(const Scene& scene, int color, bool has_place) {
  gyreComm_t child = nullptr;
  const gyreResult_t result =
      gyreCommSplit(scene.comm, color, 0, has_place ? &child : nullptr, nullptr);
  return child == nullptr ? result : gyreInternalError;
}

gyreResult_t split_with_bad_config(const Scene& scene) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = 7;
  gyreComm_t child = nullptr;
  return gyreCommSplit(scene.comm, 0, 0, &child, &config);
}

constexpr gyreResult_t argument = gyreInvalidArgument, usage = gyreInvalidUsage;
const std::vector<RefusalKind> kinds = {
    {"no sendbuff", argument, [](const Scene& s) { return sum(s, nullptr, s.out, 8); }},
    {"no recvbuff", argument, [](const Scene& s) { return sum(s, s.in, nullptr, 8); }},
    {"half overlapping buffers", argument,
     [](const Scene& s) { return sum(s, s.in, s.in + 1, 8); }},
    {"an unknown type", argument, [](const Scene& s) { return sum(s, s.in, s.out, 8, 12); }},
    {"an unknown op", argument,
     [](const Scene& s) { return sum(s, s.in, s.out, 8, gyreFloat, 1 << 20); }},
    {"a negative op", argument,
     [](const Scene& s) { return sum(s, s.in, s.out, 8, gyreFloat, -1); }},
    {"bitwise and of floats", argument,
     [](const Scene& s) { return sum(s, s.in, s.out, 8, gyreFloat, gyreBand); }},
    {"more than any memory", argument,
     [](const Scene& s) { return sum(s, s.in, s.out, SIZE_MAX / 2); }},
    {"a made-up stream", argument,
     [](const Scene& s) {
       return sum(s, s.in, s.out, 8, gyreFloat, gyreSum, reinterpret_cast<gyreStream_t>(0x77));
     }},
    {"a destroyed stream", argument, destroyed_stream},
    {"no communicator", argument,
     [](const Scene& s) {
       return sum({nullptr, 0, 0, s.in, s.out}, s.in, s.out, 8);
     }},
    {"a made-up communicator", argument,
     [](const Scene& s) {
       return sum({reinterpret_cast<gyreComm_t>(s.in), 0, 0, s.in, s.out}, s.in, s.out, 8);
     }},
    {"an op of another type", argument, op_of_another_type},
    {"a destroyed op", argument, destroyed_op},
    {"a root beyond the ranks", argument,
     [](const Scene& s) {
       return gyreBroadcast(s.in, s.out, 8, gyreFloat, s.size, s.comm, nullptr);
     }},
    {"a negative root", argument,
     [](const Scene& s) {
       return gyreReduce(s.in, s.out, 8, gyreFloat, gyreSum, -1, s.comm, nullptr);
     }},
    {"a sendcount unlike its recvcounts", argument,
     [](const Scene& s) { return gathered_v(s, 3); }},
    {"no recvcounts", argument,
     [](const Scene& s) {
       return gyreReduceScatterv(s.in, s.out, nullptr, gyreFloat, gyreSum, s.comm, nullptr);
     }},
    {"no sendcounts", argument,
     [](const Scene& s) {
       return gyreAlltoAllv(s.in, nullptr, nullptr, s.out, nullptr, nullptr, gyreFloat, s.comm,
                            nullptr);
     }},
    {"a peer beyond the ranks", argument, [](const Scene& s) { return sent(s, s.in, s.size, 0); }},
    {"a send to anyone", argument,
     [](const Scene& s) { return sent(s, s.in, GYRE_ANY_SOURCE, 0); }},
    {"a negative tag", argument, [](const Scene& s) { return sent(s, s.in, 0, -1); }},
    {"a receive to nowhere", argument, [](const Scene& s) { return received(s, nullptr, 0, 0); }},
    {"a receive with a negative tag", argument,
     [](const Scene& s) { return received(s, s.out, 0, -2); }},
    {"a negative color", argument, [](const Scene& s) { return split(s, -5, true); }},
    {"no place for a split's handle", argument, [](const Scene& s) { return split(s, 0, false); }},
    {"a split with a bad config", argument, split_with_bad_config},
    {"no place for a count", argument,
     [](const Scene& s) { return gyreCommCount(s.comm, nullptr); }},
    {"no bytes to register", argument,
     [](const Scene& s) {
       void* handle = nullptr;
       return gyreCommRegister(s.comm, s.in, 0, &handle);
     }},
    {"an unknown registration", argument,
     [](const Scene& s) { return gyreCommDeregister(s.comm, s.in); }},
    {"a group with one bad call", argument, spoiled_group},
    {"a destruction inside a group", usage, destroyed_in_group},
    {"the end of no group", usage, [](const Scene&) { return gyreGroupEnd(); }},
};

}  // namespace

const std::vector<RefusalKind>& refusals() { return kinds; }

std::string refused(const RefusalKind& kind, gyreComm_t comm, int size, int member) {
  std::array<float, room> in, out;
  in.fill(1.5F);
  out.fill(-7.25F);
  const auto in_before = in, out_before = out;
  const gyreResult_t result = kind.call({comm, size, member, in.data(), out.data()});
  if (result != kind.code)
    return std::string(kind.name) + " is answered with " + std::to_string(result) + " (" +
           gyreGetLastError(nullptr) + ")";
  if (in != in_before || out != out_before) return std::string(kind.name) + " changed a buffer";
  return {};
}

}  // namespace gyre::tests
