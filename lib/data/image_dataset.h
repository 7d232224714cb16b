#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/data_config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/dataset_registry.h"
#include "lockstep/data/image_split.h"
#include "lockstep/data/transforms.h"

namespace lockstep {

/// Images of one split of one or several HDF5 files (shards, one behind the other), transformed for training.
/// Thread-safe. Every file is opened and checked at construction: a damaged shard is found at once, not in
/// the third epoch. Labels are held in memory (8 bytes a sample); images stay in the files.
///
/// The input is [n, C, H, W]; with `channels_last` its strides are those of at::MemoryFormat::ChannelsLast
/// even where they are ambiguous (one channel). Throws UsageError for what does not fit together (names,
/// shapes, types, labels, classes), Error for what is wrong with a file.
class ImageDataset : public Dataset {
 public:
  ImageDataset(const DataConfig& config, const std::vector<std::string>& files, const std::string& split,
               bool training, at::ScalarType dtype, bool channels_last);
  ~ImageDataset() override;

  const DatasetInfo& info() const override { return info_; }
  Batch read(std::span<const int64_t> indices, const ReadContext& context) const override;

  const ImageTransform& transform() const { return *transform_; }
  bool mapped() const;             ///< every shard is
  int64_t decoded_chunks() const;  ///< chunks decoded so far
  /// Memory for decoded chunks, bytes.
  static constexpr int64_t cache_bytes = int64_t{256} << 20;

 private:
  struct Shard;
  void open_shard(const std::string& path, const std::string& split, const DataConfig& config);
  void set_normalisation(const DataConfig& config, const ImageFileFacts& facts);
  void advise(const DataConfig& config) const;
  const Shard& shard_of(int64_t index) const;

  DatasetInfo info_;
  std::shared_ptr<ChunkCache> cache_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<int64_t> labels_;
  std::unique_ptr<ImageTransform> transform_;
  PixelType pixel_ = PixelType::u8;
  ImageLayout layout_;
  bool augment_;
  at::ScalarType dtype_;
  bool channels_last_;
};

/// The factory of "hdf5_images".
std::shared_ptr<Dataset> open_image_dataset(const DataConfig& config, const std::vector<std::string>& files,
                                            const std::string& split, bool training, at::ScalarType dtype,
                                            bool channels_last);

}  // namespace lockstep
