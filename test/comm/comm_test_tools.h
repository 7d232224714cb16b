// Helpers of the tests that run under mpirun.
#pragma once

#include <doctest/doctest.h>
#include <mpi.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/mpi_backend.h"

namespace comm_test {

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int world_size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Backends of every kind that results must not depend on: both modes, and limits so small that every path is
/// taken.
inline std::vector<std::pair<std::string, lockstep::MpiBackendOptions>> variants() {
  std::vector<std::pair<std::string, lockstep::MpiBackendOptions>> all;
  auto add = [&](const char* name, bool threaded, lockstep::CollectiveLimits limits) {
    lockstep::MpiBackendOptions options;
    options.threaded = threaded;
    options.limits = limits;
    all.emplace_back(name, std::move(options));
  };
  add("inline", false, {});
  add("thread", true, {});
  add("inline, chunks of 1000 bytes", false, {.chunk_bytes = 1000});
  add("inline, never small, parts of 4000 bytes", false, {.small_bytes = 0, .part_bytes = 4000});
  add("thread, scratch of 100 bytes, chunks of 7", true,
      {.chunk_bytes = 7, .small_bytes = 0, .scratch_bytes = 100});
  return all;
}

inline void for_each_variant(const std::function<void(lockstep::MpiBackend&)>& test) {
  for (auto& [name, options] : variants()) {
    CAPTURE(name);
    auto backend = c10::make_intrusive<lockstep::MpiBackend>(MPI_COMM_WORLD, options);
    test(*backend);
  }
}

inline const std::vector<at::ScalarType>& all_types() {
  static const std::vector<at::ScalarType> types{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                                 at::kChar,   at::kByte,  at::kShort,    at::kInt,
                                                 at::kLong,   at::kBool};
  return types;
}

inline const std::vector<int64_t>& all_sizes() {
  static const std::vector<int64_t> sizes{0, 1, 7, 999, 1000, 1001, 2500};
  return sizes;
}

/// What rank r holds in closed form: small integers, exact in every type. Element i of rank r: (i + 3 r +
/// salt) mod 5.
inline at::Tensor ramp(int rank, int64_t n, at::ScalarType type, int salt = 0) {
  return at::remainder(at::arange(n, at::kLong) + (3 * rank + salt), 5).to(type);
}

inline bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor x = a.contiguous();
  at::Tensor y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

}  // namespace comm_test
