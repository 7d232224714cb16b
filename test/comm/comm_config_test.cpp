#include "lockstep/comm/comm_config.h"

#include <doctest/doctest.h>

#include "lockstep/comm/device.h"
#include "lockstep/core/error.h"

using namespace lockstep;

TEST_CASE("comm: reads, and refuses what cannot be") {
  CommConfig comm;
  config::read(config::Document::parse("progress: thread\ntimeout_s: 5\nwarn_s: 0.5\n", "t.yaml"), comm);
  CHECK(comm.progress == "thread");
  CHECK(comm.timeout_s == 5);
  CHECK(comm.warn_s == 0.5);
  CHECK_THROWS_WITH_AS(config::read(config::Document::parse("progress: fast\n", "t.yaml"), comm),
                       doctest::Contains("inline"), UsageError);
  CHECK_THROWS_AS(config::read(config::Document::parse("timeout_s: 0\n", "t.yaml"), comm), UsageError);
  CHECK_THROWS_AS(config::read(config::Document::parse("warn_s: -1\n", "t.yaml"), comm), UsageError);
}

TEST_CASE("device: reads, and refuses what cannot be") {
  DeviceConfig device;
  config::read(config::Document::parse("type: cpu\nthreads: 3\noversubscribe: true\n", "t.yaml"), device);
  CHECK(device.type == "cpu");
  CHECK(device.threads == 3);
  CHECK(device.oversubscribe);
  CHECK_THROWS_AS(config::read(config::Document::parse("type: tpu\n", "t.yaml"), device), UsageError);
  CHECK_THROWS_AS(config::read(config::Document::parse("threads: -1\n", "t.yaml"), device), UsageError);
}
