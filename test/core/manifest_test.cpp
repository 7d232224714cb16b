#include "lockstep/core/manifest.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

using namespace lockstep;

TEST_CASE("time is ISO 8601 in UTC whatever the time zone") {
  CHECK(utc_time(0) == "1970-01-01T00:00:00Z");
  CHECK(utc_time(1740830400) == "2025-03-01T12:00:00Z");
  ::setenv("TZ", "Asia/Tokyo", 1);
  ::tzset();
  CHECK(utc_time(1740830400) == "2025-03-01T12:00:00Z");
  ::unsetenv("TZ");
  ::tzset();
}

TEST_CASE("a command line is quoted so that a shell splits it into the same words") {
  CHECK(shell_line({"lockstep", "train", "a.yaml", "optim.lr=0.1"}) == "lockstep train a.yaml optim.lr=0.1");
  const std::vector<std::string> hard = {"a b", "",   "it's", "$HOME",     "x;y",
                                         "*",   "\\", "\"",   "new\nline", "~"};
  const std::string command = "printf '%s|' " + shell_line(hard);
  std::string seen;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) seen += static_cast<char>(c);
  ::pclose(pipe);
  std::string expected;
  for (const std::string& word : hard) expected += word + "|";
  CHECK(seen == expected);
}

TEST_CASE("a manifest holds versions, command, time, user, host and the environment that matters") {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("LOCKSTEP_TEST", "caf\xe9", 1);
  ::setenv("SECRET_TOKEN", "do not show", 1);
  ::setenv("OMPI_MCA_orte_hnp_uri", "1.0;tcp://192.0.2.1:1", 1);
  nlohmann::json versions = build_versions();
  versions["mpi"] = "some MPI";
  const nlohmann::json manifest = run_manifest({"lockstep", "train", "\xff.yaml"}, versions);
  CHECK(manifest["versions"]["mpi"] == "some MPI");
  CHECK(!manifest["versions"]["lockstep"].get<std::string>().empty());
  CHECK(manifest["versions"]["compiler"].get<std::string>().size() > 4);
  const std::string git = manifest["versions"]["git"];
  CHECK((git.empty() || git.find_first_not_of("0123456789abcdef") == std::string::npos ||
         git.ends_with("-dirty")));
  CHECK(manifest["command"].size() == 3);
  CHECK(manifest["start_time"].get<std::string>().size() == 20);
  CHECK(!manifest["user"].get<std::string>().empty());
  CHECK(!manifest["host"].get<std::string>().empty());
  CHECK(manifest["environment"]["OMP_NUM_THREADS"] == "3");
  CHECK(!manifest["environment"].contains("SECRET_TOKEN"));
  CHECK(!manifest["environment"].contains("OMPI_MCA_orte_hnp_uri"));
  // Bytes that are no UTF-8 must not keep a run from starting.
  CHECK_NOTHROW(manifest.dump());
  ::unsetenv("OMP_NUM_THREADS");
  ::unsetenv("LOCKSTEP_TEST");
  ::unsetenv("SECRET_TOKEN");
  ::unsetenv("OMPI_MCA_orte_hnp_uri");
}
