#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/data_config.h"
#include "lockstep/data/sampler.h"

namespace lockstep {

/// What there is to say of one split of a file.
struct SplitReport {
  std::string name;
  std::string
      problem;  ///< why it cannot be used; empty where it can. What was found before that is filled in
  std::vector<int64_t> shape;  ///< of the images, as stored
  std::string type;            ///< "uint8" …
  std::string layout;          ///< "NHW", "NHWC", "NCHW"
  int64_t samples = 0, channels = 0, height = 0, width = 0;
  std::string label_type;
  std::string storage;        ///< "contiguous" or "chunks of 500×32×32×3, gzip 4"
  int64_t stored_bytes = 0;   ///< of the images in the file
  int64_t decoded_bytes = 0;  ///< of the images once decoded
  bool mapped = false;        ///< read by mapping the file, at no memory of the process
  int64_t chunk_rows = 1;     ///< samples decoded together
  double read_amplification =
      1;  ///< samples decoded for each one used in a shuffled epoch, with the configuration's window
  std::vector<int64_t> class_counts;  ///< samples of each class
  std::vector<Share> shares;          ///< what each rank reads when evaluating
};

struct FileReport {
  std::string path;
  int64_t bytes = 0;
  std::string source;
  std::vector<std::string> class_names;
  std::vector<double> mean, std;  ///< stored in the file; empty where they are not
  std::vector<SplitReport> splits;
  std::vector<std::string> datasets;  ///< names of all datasets, also those that are no images
};

/// Looks at every split of a file. Throws Error only where the file itself cannot be opened. Not collective.
FileReport inspect_file(const std::string& path, const DataConfig& config, int world_size);

}  // namespace lockstep
