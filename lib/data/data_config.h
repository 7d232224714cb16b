#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/section.h"

namespace lockstep {

/// `data:` in a configuration.
struct DataConfig {
  std::string dataset = "hdf5_images";  ///< registered dataset kind
  std::vector<std::string> train;       ///< HDF5 files (shards); one string or a list
  std::vector<std::string> eval;        ///< files to evaluate on; empty: the train files' eval split
  std::string train_split = "train";
  std::string eval_split = "test";
  int64_t batch = 0;         ///< micro-batch of one rank; this or global_batch
  int64_t global_batch = 0;  ///< samples a step over all ranks
  int64_t eval_batch = 0;    ///< 0: as for training
  int64_t resize = 0;        ///< side in pixels, bilinear; 0 keeps the stored size
  int64_t crop_padding = 0;  ///< random crop after padding by this many pixels (training)
  bool flip = false;         ///< random horizontal flip (training)
  double resized_crop = 0;   ///< random resized crop down to this area fraction (training); 0: off
  std::vector<double> mean,
      std;  ///< a channel each, of values scaled to 0..1; empty: stored in the file, else 0.5
  std::string layout = "auto";  ///< auto, NHW, NHWC or NCHW
  std::string scale =
      "auto";  ///< what stored values are divided by; auto: an integer type's largest value, 1 for floats
  std::string tail = "drop";
  bool shuffle = true;
  int64_t shuffle_window = 16;  ///< chunks mixed together when storage is chunked
  int64_t workers = 1;
  int64_t prefetch = 2;
  bool pin_memory = true;  ///< only acts with a GPU
};
/// Declares the keys. Refuses `batch` together with `global_batch`, unequal lengths of mean and std, and a
/// scale that is no number.
void bind(config::Section& section, DataConfig& config);

/// What `scale` asks stored values of this type to be divided by; `largest`: the largest value of an integer
/// type, 1 for floats.
double scale_divisor(const DataConfig& config, double largest);

}  // namespace lockstep
