#include "lockstep/core/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

// One field of /proc/self/status, in bytes.
int64_t status_field(std::string_view name) {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(name, 0) == 0) return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

bool user_chose_allocator() {
  if (std::getenv("GLIBC_TUNABLES") != nullptr) return true;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).substr(0, 7) == "MALLOC_") return true;
  }
  const char* preload = std::getenv("LD_PRELOAD");
  if (preload != nullptr) {
    for (const char* name : {"malloc", "asan", "tsan"}) {
      if (std::strstr(preload, name) != nullptr) return true;
    }
  }
  return false;
}

}  // namespace

void apply_memory_policy(char** argv) {
  const char* choice = std::getenv("LOCKSTEP_MEMORY");
  if (choice != nullptr && std::string_view(choice) == "system") return;
  if (user_chose_allocator()) return;
  // Transparent huge pages for malloc can only be switched on before the process starts.
  ::setenv(
      "GLIBC_TUNABLES",
      "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592",
      1);
  ::execv("/proc/self/exe", argv);
  // Only reached when the exec failed: keep what can be set from inside.
  ::unsetenv("GLIBC_TUNABLES");
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2000000000);
}

int64_t resident_bytes() { return status_field("VmRSS:"); }
int64_t peak_resident_bytes() { return status_field("VmHWM:"); }

}  // namespace lockstep
