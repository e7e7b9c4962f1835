// Which transports GYRE_TRANSPORT and similar variables leave, and in which order.
#include "lib/links/transport_registry.h"

#include "tests/support/catch.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

namespace transport_registry_test {

using namespace gyre;
using namespace gyre::comm;

namespace {

Settings settings_with(const std::string& transport, bool shm_disable = false) {
  Settings settings;
  settings.transport = transport;
  settings.shm_disable = shm_disable;
  return settings;
}

// All that have slots and need not be named, in the registry's order, but those.
std::string all_but(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const TransportRow& row : transport_registry()) {
    if (row.make == nullptr || row.needs_naming || std::ranges::count(names, row.name) > 0)
      continue;
    text += (text.empty() ? "" : ",") + std::string(row.name);
  }
  return text;
}

std::string made(const Settings& settings) {
  const trust::ProcessIdentity self;
  trust::TicketBook tickets;
  const auto list = make_transports(settings, {.self = self, .tickets = tickets});
  return list.ok() ? transport_names(*list) : std::string(list.status().message());
}

}  // namespace

TEST_CASE("transports are taken in the order in which they are named", "[transports]") {
  CHECK(made(settings_with("")) == all_but({}));
  CHECK(made(settings_with("tcp,shm")) == "self,tcp,shm");
  CHECK(made(settings_with("tcp")) == "self,tcp");
  CHECK(made(settings_with("shm,self")) == "shm,self");
  CHECK(made(settings_with("tcp,tcp")) == "self,tcp");
  CHECK(made(settings_with("^tcp")) == all_but({"tcp"}));
  CHECK(made(settings_with("^shm,self")) == all_but({"shm"}));
  CHECK(made(settings_with("", true)) == all_but({"shm"}));
  CHECK(made(settings_with("shm,tcp", true)) == "self,tcp");
}

TEST_CASE("ucx is taken where it is named, and nowhere else", "[transports]") {
  for (const char* text : {"", "tcp", "^tcp", "^ucx", "^shm,ucx"}) {
    CAPTURE(text);
    CHECK_FALSE(*is_transport_allowed("ucx", settings_with(text)));
    CHECK(made(settings_with(text)).find("ucx") == std::string::npos);
  }
  CHECK(made(settings_with("ucx")) == "self,ucx");
  CHECK(made(settings_with("shm,ucx,tcp")) == "self,shm,ucx,tcp");
  CHECK(made(settings_with("tcp,ucx")) == "self,tcp,ucx");
}

TEST_CASE("p2p is left out by its name alone", "[transports]") {
  for (const char* text : {"", "p2p", "shm,tcp", "^tcp"}) {
    CAPTURE(text);
    CHECK(*is_transport_allowed("p2p", settings_with(text)));
  }
  CHECK(made(settings_with("p2p,tcp")) == "self,tcp");
  CHECK_FALSE(*is_transport_allowed("p2p", settings_with("^p2p")));
  CHECK_FALSE(*is_transport_allowed("p2p", settings_with("^tcp,p2p")));
  Settings disabled;
  disabled.p2p_disable = true;
  CHECK_FALSE(*is_transport_allowed("p2p", disabled));
}

TEST_CASE("an error about a transport names those of the registry", "[transports]") {
  const std::string refused = made(settings_with("shm,ib"));
  CHECK(refused.find("\"ib\" is not a transport") != std::string::npos);
  for (const TransportRow& row : transport_registry()) {
    CAPTURE(row.name);
    CHECK(refused.find(row.name) != std::string::npos);
    CHECK(transport_choices().find(row.name) != std::string::npos);
    CHECK_FALSE(row.reaches.empty());
  }
  CHECK_FALSE(is_transport_allowed("shm", settings_with("ib")).ok());
}

}  // namespace transport_registry_test
