#include "lockstep/core/log.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <vector>

#include "child.h"

namespace logger = lockstep::log;

namespace {
std::string logged(const std::function<void()>& work) { return output_of_child(STDERR_FILENO, work); }

void log_all_levels() {
  logger::debug("d{}", 1);
  logger::info("i{}", 2);
  logger::warn("w{}", 3);
  logger::error("e{}", 4);
}
}  // namespace

TEST_CASE("before a rank is known, everything but debug is printed, tagged by level") {
  CHECK(logged(log_all_levels) == "i2\nwarning: w3\nerror: e4\n");
}

TEST_CASE("one process alone needs no rank in its lines") {
  CHECK(logged([] {
          logger::set_rank(0, 1, "node");
          log_all_levels();
        }) == "i2\nwarning: w3\nerror: e4\n");
}

TEST_CASE("of several ranks, rank 0 speaks plainly and signs its warnings") {
  CHECK(logged([] {
          logger::set_rank(0, 4, "node7");
          log_all_levels();
        }) == "i2\nrank 0 on node7: warning: w3\nrank 0 on node7: error: e4\n");
}

TEST_CASE("other ranks only warn, and say who they are") {
  CHECK(logged([] {
          logger::set_rank(3, 4, "node7");
          log_all_levels();
        }) == "rank 3 on node7: warning: w3\nrank 3 on node7: error: e4\n");
}

TEST_CASE("a chosen level holds for every rank, whenever it is chosen") {
  const std::string all =
      "rank 3 on n: debug: d1\nrank 3 on n: i2\nrank 3 on n: warning: w3\nrank 3 on n: error: e4\n";
  CHECK(logged([] {
          logger::set_level(logger::Level::debug);
          logger::set_rank(3, 4, "n");
          log_all_levels();
        }) == all);
  CHECK(logged([] {
          logger::set_rank(3, 4, "n");
          logger::set_level(logger::Level::debug);
          log_all_levels();
        }) == all);
  CHECK(logged([] {
          logger::set_level(logger::Level::error);
          log_all_levels();
        }) == "error: e4\n");
}

TEST_CASE("off is silent") {
  CHECK(logged([] {
          logger::set_level(logger::Level::off);
          log_all_levels();
          logger::line(logger::Level::off, "x");
        }) == "");
}

TEST_CASE("text with braces is printed as it is") {
  CHECK(logged([] { logger::line(logger::Level::info, "{} {0}"); }) == "{} {0}\n");
}

TEST_CASE("lines of several threads and processes do not mix") {
  constexpr int processes = 3, threads = 4, lines = 200;
  const std::string output = logged([] {
    for (int p = 0; p < processes; ++p) {
      if (::fork() != 0) continue;
      std::vector<std::thread> all;
      for (int t = 0; t < threads; ++t) {
        all.emplace_back([t] {
          for (int i = 0; i < lines; ++i) logger::info("{}", std::string(100, static_cast<char>('a' + t)));
        });
      }
      for (auto& thread : all) thread.join();
      ::_exit(0);
    }
    while (::wait(nullptr) > 0) {
    }
  });
  std::istringstream in(output);
  int count = 0, mixed = 0;
  for (std::string line; std::getline(in, line); ++count) {
    mixed += line.size() != 100 || std::count(line.begin(), line.end(), line[0]) != 100;
  }
  CHECK(count == processes * threads * lines);
  CHECK(mixed == 0);
}

TEST_CASE("a line longer than a pipe holds is printed whole") {
  const std::string output = logged([] { logger::info("{}", std::string(1 << 20, 'x')); });
  CHECK(output == std::string(1 << 20, 'x') + "\n");
}

TEST_CASE("a closed stderr does not end the program") {
  CHECK(output_of_child(STDOUT_FILENO, [] {
          ::close(STDERR_FILENO);
          logger::error("nobody hears this");
          CHECK(::write(STDOUT_FILENO, "alive", 5) == 5);
        }) == "alive");
}
