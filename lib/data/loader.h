#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// One thing to read: sample numbers and where they stand in the run.
struct LoadRequest {
  std::vector<int64_t> indices;
  ReadContext context;
};

/// Gives the k-th request of a run, or an empty index list at the end. Called from loader threads, k rising,
/// each k once.
using RequestSource = std::function<LoadRequest(int64_t k)>;

struct LoaderOptions {
  int64_t workers = 1;      ///< reading threads; 0: the training thread reads itself
  int64_t prefetch = 2;     ///< decoded batches kept ready beyond the one in use; at least one a worker
  bool pin_memory = false;  ///< page-locked host memory (GPU only)
};

/// Reads batches ahead of training and gives them in order: the same sequence for any number of workers. A
/// failure in a worker or in the request source is rethrown by the next() whose batch it was, and by every
/// next() after that. Destroying it mid-run waits only for the batches being read. next() is for one thread.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, RequestSource source, LoaderOptions options,
         int64_t first = 0);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  /// The next batch; size() is 0 at the end.
  Batch next();

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace lockstep
