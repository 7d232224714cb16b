#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Some samples on their way from a file to a model.
struct Batch {
  at::Tensor input;                         ///< images: [n, C, H, W]; as stored (uint8 …) until transformed
  at::Tensor target;                        ///< labels: [n] int64
  std::map<std::string, at::Tensor> extra;  ///< further fields of other tasks
  std::vector<int64_t> indices;             ///< the samples' numbers in the dataset, [n]
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

/// What a model and a task need to know of a dataset before any sample is read.
struct DatasetInfo {
  std::string source;                 ///< what the user named, for messages
  int64_t size = 0;                   ///< samples
  std::vector<int64_t> sample_shape;  ///< images: {C, H, W} after transforms
  int64_t classes = 0;
  std::vector<std::string> class_names;  ///< may be empty
  int64_t chunk_rows = 1;  ///< samples that are stored and decoded together; 1: random access costs nothing
  std::vector<double> mean,
      std;  ///< images: normalisation in use, a channel each; evaluate with the training set's
};

/// Where a batch stands in the run; randomness is keyed by this and the sample, never by rank or worker.
struct ReadContext {
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool training = false;  ///< augment or not
};

/// Samples by number: pure reading, no order and no ranks. Thread-safe: loader workers read at the same time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  /// The samples, in the order asked for, transformed and ready for the model (float, normalised, augmented
  /// when `context.training`). Throws Error naming file and sample.
  virtual Batch read(std::span<const int64_t> indices, const ReadContext& context) const = 0;
};

}  // namespace lockstep
