#include "lockstep/data/image_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/nearest.h"
#include "lockstep/data/labels.h"

namespace lockstep {

struct ImageDataset::Shard {
  std::string path;
  int64_t first = 0;  // number of its first sample
  int64_t count = 0;
  std::unique_ptr<ImageStorage> storage;
};

namespace {

double largest_value(PixelType type) {
  if (type == PixelType::u8) return std::numeric_limits<uint8_t>::max();
  if (type == PixelType::u16) return std::numeric_limits<uint16_t>::max();
  if (type == PixelType::i16) return std::numeric_limits<int16_t>::max();
  return 1;
}

std::string image_text(PixelType pixel, const ImageLayout& layout) {
  return fmt::format("{} {} images of {}×{} with {} channels", pixel_name(pixel), layout.name, layout.height,
                     layout.width, layout.channels);
}

TransformSpec transform_spec(const DataConfig& config, PixelType pixel, const ImageLayout& layout,
                             bool training) {
  TransformSpec spec;
  spec.pixel = pixel;
  spec.layout = layout;
  spec.resize = config.resize;
  spec.divisor = scale_divisor(config, largest_value(pixel));
  if (training) {
    spec.crop_padding = config.crop_padding;
    spec.flip = config.flip;
    spec.resized_crop = config.resized_crop;
  }
  return spec;
}

}  // namespace

ImageDataset::ImageDataset(const DataConfig& config, const std::vector<std::string>& files,
                           const std::string& split, bool training, at::ScalarType dtype, bool channels_last)
    : cache_(std::make_shared<ChunkCache>(cache_bytes)),
      augment_(training),
      dtype_(dtype),
      channels_last_(channels_last) {
  if (files.empty()) refuse("no file is named to read images from; give data.train (or data.eval)");
  info_.source =
      files.size() == 1 ? files.front() : fmt::format("{} and {} more", files.front(), files.size() - 1);
  for (const std::string& path : files) open_shard(path, split, config);
  info_.size = static_cast<int64_t>(labels_.size());

  TransformSpec spec = transform_spec(config, pixel_, layout_, training);
  spec.mean = info_.mean;
  spec.std = info_.std;
  spec.dtype = dtype;
  spec.channels_last = channels_last;
  transform_ = std::make_unique<ImageTransform>(std::move(spec));
  info_.mean = transform_->spec().mean;
  info_.std = transform_->spec().std;
  info_.sample_shape = {transform_->channels(), transform_->height(), transform_->width()};
  if (training) advise(config);
}

ImageDataset::~ImageDataset() = default;

void ImageDataset::open_shard(const std::string& path, const std::string& split, const DataConfig& config) {
  h5::File file = h5::File::open(path);
  const ImageFileFacts facts = read_facts(file);
  ImageSplit opened = open_split(file, split, config.layout);
  const int64_t classes = count_classes(file, facts);
  require_below(opened.labels, classes, path + ": " + split_path(split, "labels"));

  if (shards_.empty()) {
    pixel_ = opened.pixel;
    layout_ = opened.layout;
    info_.classes = classes;
    info_.class_names = facts.class_names;
    set_normalisation(config, facts);
  } else {
    ImageLayout wanted = layout_;
    wanted.samples = opened.layout.samples;
    if (opened.pixel != pixel_ || opened.layout != wanted) {
      refuse("{} holds {}, but {} holds {}; all files of a dataset must agree", path,
             image_text(opened.pixel, opened.layout), shards_.front()->path, image_text(pixel_, layout_));
    }
    if (facts.class_names != info_.class_names) {
      refuse("{} has the classes [{}], but {} has [{}]; all files of a dataset must agree", path,
             join(facts.class_names), shards_.front()->path, join(info_.class_names));
    }
    info_.classes = std::max(info_.classes, classes);
  }
  auto shard = std::make_unique<Shard>();
  shard->path = path;
  shard->first = static_cast<int64_t>(labels_.size());
  shard->count = opened.layout.samples;
  shard->storage = open_image_storage(std::move(file), std::move(opened.images), opened.pixel, cache_);
  info_.chunk_rows = std::max(info_.chunk_rows, shard->storage->chunk_rows());
  labels_.insert(labels_.end(), opened.labels.begin(), opened.labels.end());
  shards_.push_back(std::move(shard));
}

void ImageDataset::set_normalisation(const DataConfig& config, const ImageFileFacts& facts) {
  const bool configured = !config.mean.empty();
  info_.mean = configured ? config.mean : facts.mean;
  info_.std = configured ? config.std : facts.std;
  if (info_.mean.empty()) info_.mean = {0.5};
  if (info_.std.empty()) info_.std = {0.5};
  for (const double value : info_.std) {
    if (!(value > 0))
      refuse("{}: a standard deviation of {} cannot normalise images; set data.mean and data.std",
             info_.source, value);
  }
}

void ImageDataset::advise(const DataConfig& config) const {
  int64_t chunk_bytes = 0;
  for (const auto& shard : shards_) chunk_bytes = std::max(chunk_bytes, shard->storage->chunk_bytes());
  const int64_t cached = std::max<int64_t>(1, cache_bytes / chunk_bytes);
  const int64_t batch = config.batch > 0 ? config.batch : 64;
  const int64_t chunks = (info_.size + info_.chunk_rows - 1) / info_.chunk_rows;
  const int64_t window = config.shuffle ? config.shuffle_window : 1;
  const double amplification = read_amplification(info_.chunk_rows, chunks, window, cached, batch);
  if (amplification > 3) {
    log::info(
        "{}: images are stored in chunks of {} samples ({} MB decoded); shuffling them decodes each about "
        "{:.0f} times. "
        "Set data.shuffle_window={} or store smaller chunks",
        info_.source, info_.chunk_rows, chunk_bytes >> 20, amplification, cached);
  }
  if (!is_float(pixel_) || config.scale != "auto") return;
  double largest = 0;
  const int64_t first = std::min<int64_t>(info_.size, 16);
  std::vector<int64_t> indices(static_cast<size_t>(first));
  for (int64_t i = 0; i < first; ++i) indices[static_cast<size_t>(i)] = i;
  const at::Tensor input = read(indices, {}).input.to(at::kDouble);
  for (size_t c = 0; c < info_.mean.size(); ++c) {
    const at::Tensor channel = input.select(1, static_cast<int64_t>(c));
    largest = std::max(largest, (channel * info_.std[c] + info_.mean[c]).abs().max().item<double>());
  }
  if (largest > 16) {
    log::info(
        "{}: float images hold values up to {:.3g} but are not scaled (data.scale=auto is 1 for floats); set "
        "data.scale=255 if they are 0 to 255",
        info_.source, largest);
  }
}

bool ImageDataset::mapped() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->storage->mapped(); });
}

int64_t ImageDataset::decoded_chunks() const { return cache_->decoded(); }

const ImageDataset::Shard& ImageDataset::shard_of(int64_t index) const {
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), index,
                                      [](int64_t i, const auto& shard) { return i < shard->first; });
  return **std::prev(after);
}

Batch ImageDataset::read(std::span<const int64_t> indices, const ReadContext& context) const {
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch;
  batch.indices.assign(indices.begin(), indices.end());
  batch.input = at::empty({count, info_.sample_shape[0], info_.sample_shape[1], info_.sample_shape[2]},
                          at::TensorOptions(dtype_),
                          channels_last_ ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  batch.target = at::empty({count}, at::TensorOptions(at::kLong));
  auto* target = batch.target.mutable_data_ptr<int64_t>();
  auto* out = static_cast<std::byte*>(batch.input.mutable_data_ptr());
  const int64_t sample_bytes = transform_->output_bytes();

  // Positions of the batch by shard; nearly always there is one shard.
  std::map<const Shard*, std::vector<size_t>> by_shard;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices[i];
    if (index < 0 || index >= info_.size)
      fail("{}: there is no sample {}, there are {}", info_.source, index, info_.size);
    target[i] = labels_[static_cast<size_t>(index)];
    by_shard[&shard_of(index)].push_back(i);
  }
  ReadContext drawing = context;
  drawing.training = context.training && augment_;
  const auto scratch = transform_->make_scratch();
  std::vector<int64_t> rows;
  for (const auto& [shard, positions] : by_shard) {
    rows.clear();
    for (const size_t i : positions) rows.push_back(indices[i] - shard->first);
    shard->storage->read(rows, [&, shard = shard, &places = positions](size_t position,
                                                                       const std::byte* stored) {
      const size_t i = places[position];
      std::byte* place = out + static_cast<int64_t>(i) * sample_bytes;
      if (!transform_->apply(stored, place, transform_->draw(drawing, indices[i]), *scratch)) {
        fail(
            "{}: sample {} holds a pixel that is not a finite number (NaN or infinite); correct or remove it",
            shard->path, indices[i] - shard->first);
      }
    });
  }
  return batch;
}

std::shared_ptr<Dataset> open_image_dataset(const DataConfig& config, const std::vector<std::string>& files,
                                            const std::string& split, bool training, at::ScalarType dtype,
                                            bool channels_last) {
  return std::make_shared<ImageDataset>(config, files, split, training, dtype, channels_last);
}

void register_datasets(DatasetRegistry& registry) {
  registry.add("hdf5_images", open_image_dataset, "images and class numbers in one or several HDF5 files");
}

}  // namespace lockstep
