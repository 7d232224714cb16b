#include "lockstep/core/error.h"

#include <doctest/doctest.h>

using namespace lockstep;

TEST_CASE("fail and refuse format their text and differ in kind") {
  CHECK_THROWS_WITH_AS(fail("{}: {} samples", "a.h5", 3), "a.h5: 3 samples", Error);
  CHECK_THROWS_WITH_AS(refuse("no {}", "way"), "no way", UsageError);
  bool is_usage = true;
  try {
    fail("x");
  } catch (const UsageError&) {
  } catch (const std::runtime_error&) {
    is_usage = false;
  }
  CHECK_FALSE(is_usage);
}

TEST_CASE("a usage error is an error, so that one handler catches both") {
  CHECK_THROWS_AS(refuse("x"), Error);
}

TEST_CASE("the exit codes that scripts rely on") {
  CHECK(static_cast<int>(ExitCode::done) == 0);
  CHECK(static_cast<int>(ExitCode::failed) == 1);
  CHECK(static_cast<int>(ExitCode::usage) == 2);
  CHECK(static_cast<int>(ExitCode::requeue) == 75);
}
