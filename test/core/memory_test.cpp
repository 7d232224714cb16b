#include "lockstep/core/memory.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "child.h"

using namespace lockstep;

TEST_CASE("resident memory follows what is touched, and the peak remembers it") {
  constexpr int64_t size = 64 << 20;
  const int64_t before = resident_bytes();
  CHECK(before > 1 << 20);
  CHECK(before < int64_t{64} << 30);
  CHECK(peak_resident_bytes() >= before);
  {
    std::vector<char> touched(size, 1);
    const int64_t grown = resident_bytes() - before;
    CHECK(grown >= size * 9 / 10);
    CHECK(grown < size + (32 << 20));
  }
  CHECK(peak_resident_bytes() >= before + size * 9 / 10);
}

// Run only as a child of the cases below.
TEST_CASE("memory policy child" * doctest::skip()) {
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  const std::string text =
      std::string("executed again with ") + (tunables == nullptr ? "nothing" : tunables) + "\n";
  CHECK(::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

namespace {

// What the program prints when it applies the policy with NAME=VALUE set.
std::string policy_with(const char* name = nullptr, const char* value = "") {
  return output_of_child(STDOUT_FILENO, [&] {
    ::unsetenv("GLIBC_TUNABLES");
    if (name != nullptr) ::setenv(name, value, 1);
    char program[] = "test_core", no_skip[] = "--no-skip", which[] = "--test-case=memory policy child";
    char* argv[] = {program, no_skip, which, nullptr};
    apply_memory_policy(argv);
    CHECK(::write(STDOUT_FILENO, "as it was", 9) == 9);
  });
}

}  // namespace

TEST_CASE("the program is executed once more with its arguments, and memory is kept in huge pages") {
  const std::string output = policy_with();
  CHECK(output.find("executed again with ") != std::string::npos);
  for (const char* part :
       {"glibc.malloc.hugetlb=1", "glibc.malloc.mmap_threshold=", "glibc.malloc.trim_threshold="}) {
    CHECK(output.find(part) != std::string::npos);
  }
}

TEST_CASE("a user's own choice of allocator stands") {
  CHECK(policy_with("LOCKSTEP_MEMORY", "system") == "as it was");
  CHECK(policy_with("GLIBC_TUNABLES", "glibc.malloc.arena_max=2") == "as it was");
  for (const char* name : {"MALLOC_ARENA_MAX", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"}) {
    CHECK(policy_with(name, "2") == "as it was");
  }
  CHECK(policy_with("LD_PRELOAD", "/usr/lib/libjemalloc.so.2") == "as it was");
  CHECK(policy_with("LOCKSTEP_MEMORY", "") != "as it was");
}
