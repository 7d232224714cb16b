#pragma once

#include <cstdint>

namespace lockstep {

/// Makes this process keep freed memory instead of returning it to the kernel, and back it with huge pages.
/// Training frees and allocates the same large tensors every step; glibc's default unmaps them each time and faults them
/// in again, which costs 30-50 % of a step on a CPU. glibc reads part of this only at start-up, so the program may be
/// executed once more with GLIBC_TUNABLES set (argv must be main's). Call first in main, before MPI and any thread.
/// Does nothing when the user set GLIBC_TUNABLES or MALLOC_* or LD_PRELOADs an allocator, or LOCKSTEP_MEMORY=system.
void apply_memory_policy(char** argv);

/// Bytes of physical memory this process holds now (VmRSS).
int64_t resident_bytes();

/// Most bytes of physical memory this process ever held (VmHWM).
int64_t peak_resident_bytes();

}  // namespace lockstep
