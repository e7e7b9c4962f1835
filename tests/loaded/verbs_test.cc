// libibverbs as a process shares it: the library that is missing, and devices that are opened once.
#include "lib/loaded/shared_verbs.h"
#include "lib/loaded/verbs_device.h"
#include "tests/support/catch.h"
#include "tests/support/fake_verbs/fake_verbs.h"

#include <cerrno>
#include <string>

namespace verbs_test {

using namespace gyre;
using namespace gyre::loaded;
using namespace gyre::tests;

namespace {

// The first device of the list.
ibv_device* first_device(const Verbs& verbs) {
  int count = 0;
  ibv_device** const list = verbs.device_list(&count);
  REQUIRE(count > 0);
  ibv_device* const first = list[0];
  verbs.free_device_list(list);
  return first;
}

struct Sharing {
  FakeVerbs fake;
  SharedVerbs shared{&fake.table()};
  ibv_device* device = first_device(fake.table());

  std::shared_ptr<VerbsDevice> open() {
    auto opened = shared.open(device);
    INFO(opened.status().message());
    REQUIRE(opened.ok());
    return *opened;
  }
};

bool mentions(const Status& status, std::string_view part) {
  INFO(status.message());
  return status.message().find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("a device is opened once for all that use it, and closed after the last", "[verbs]") {
  Sharing sharing;
  auto first = sharing.open();
  const auto second = sharing.open();
  CHECK(first == second);
  CHECK(first->name() == "fake0");
  CHECK(sharing.fake.calls("open_device") == 1);
  first.reset();
  CHECK(sharing.fake.live() == "1 contexts");
  CHECK(sharing.open() == second);
}

TEST_CASE("a device that nobody uses is closed, and opened anew for the next", "[verbs]") {
  Sharing sharing;
  sharing.open();
  CHECK(sharing.fake.live() == "");
  sharing.open();
  CHECK(sharing.fake.calls("open_device") == 2);
}

TEST_CASE("a device that has failed is shared with nobody new", "[verbs]") {
  Sharing sharing;
  const auto failed = sharing.open();
  sharing.fake.fail_device("fake0");
  const auto next = sharing.open();
  CHECK(next != failed);
  CHECK(failed->has_failed());
  CHECK_FALSE(next->has_failed());
  CHECK(sharing.open() == next);
  CHECK(sharing.fake.live() == "2 contexts");
}

TEST_CASE("a device that cannot be opened or has no events is an error each time", "[verbs]") {
  Sharing sharing;
  for (const auto& [call, text] : {std::pair("open_device", "it cannot be opened: EACCES"),
                                   std::pair("descriptor", "fcntl of the descriptor")}) {
    sharing.fake.fail_call(call, 1);
    CHECK(mentions(sharing.shared.open(sharing.device).status(), text));
    CHECK(sharing.fake.live() == "");
  }
  sharing.open();
}

TEST_CASE("without RDMA, libibverbs, or one of its functions, the error says what is missing",
          "[verbs]") {
  CHECK(
      mentions(load_verbs("libgyre-none.so", "/none").status(), "the kernel of this machine has"));
  CHECK(mentions(load_verbs("libgyre-none.so", "/").status(), "install libibverbs1"));
  CHECK(mentions(load_verbs("libc.so.6", "/").status(), "libc.so.6 has no ibv_get_device_list"));
}

TEST_CASE("the library of this machine is loaded once, or the error says why not", "[verbs]") {
  SharedVerbs machine;
  const auto table = machine.table();
  if (table.ok())
    CHECK(*machine.table() == *table);
  else
    CHECK(table.status().message() == load_verbs().status().message());
}

TEST_CASE("a device of an old provider has no state of its ports", "[verbs]") {
  const auto loaded = load_verbs("libibverbs.so.1", "/");
  if (!loaded.ok()) return;  // not installed here
  ibv_context old{};
  ibv_port_attr port{};
  CHECK((*loaded)->query_port(&old, 1, &port) == ENOSYS);
}

}  // namespace verbs_test
