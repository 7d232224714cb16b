#include <doctest/doctest.h>

#include <cstring>

#include "lockstep/comm/watchdog.h"

using namespace lockstep;

TEST_CASE("a call is named with number, size and type") {
  CHECK(call_text("all_reduce", 123, 4000000, "float32") == "all_reduce #123 (4.0 MB float32)");
  CHECK(call_text("all_reduce", 1, 12, "int8") == "all_reduce #1 (12 B int8)");
  CHECK(call_text("barrier", 7, 0, "") == "barrier #7");
  CHECK(call_text("broadcast", 2, 2500000000, "") == "broadcast #2 (2.5 GB)");
}

TEST_CASE("a rank is described by where it is and what it does") {
  using Channel = Watchdog::Channel;
  Watchdog::State state;
  CHECK(Watchdog::describe(Channel::collective, state) == "entered no collective yet");
  state.entered = {120, 3};
  std::strcpy(state.last[0].data(), "broadcast");
  std::strcpy(state.last[1].data(), "gather");
  CHECK(Watchdog::describe(Channel::collective, state) == "last entered broadcast #120");
  state.inside[0] = 1;
  CHECK(Watchdog::describe(Channel::collective, state) == "is in broadcast #120");
  CHECK(Watchdog::describe(Channel::control, state) == "last entered gather #3; is in broadcast #120");
  std::strcpy(state.activity.data(), "writing weights");
  state.activity_s = 12.3;
  CHECK(Watchdog::describe(Channel::collective, state) == "is in broadcast #120; writing weights since 12 s");
}
