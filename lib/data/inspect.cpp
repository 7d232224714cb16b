#include "lockstep/data/inspect.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/core/error.h"
#include "lockstep/data/image_dataset.h"
#include "lockstep/data/image_split.h"
#include "lockstep/data/labels.h"

namespace lockstep {
namespace {

void describe_storage(SplitReport& report, const h5::Dataset& images, const DataConfig& config) {
  report.shape = images.shape();
  report.type = images.type_name();
  report.storage = images.storage();
  report.stored_bytes = images.storage_bytes();
  const std::optional<PixelType> pixel = pixel_type_of(images);
  if (!pixel || images.shape().empty()) return;
  const int64_t row_bytes = images.row_elements() * pixel_bytes(*pixel);
  report.decoded_bytes = images.rows() * row_bytes;
  report.mapped = can_be_mapped(images, *pixel);
  report.chunk_rows = stored_chunk_rows(images);
  const int64_t chunks = (images.rows() + report.chunk_rows - 1) / report.chunk_rows;
  const int64_t cached =
      std::max<int64_t>(1, ImageDataset::cache_bytes / std::max<int64_t>(1, report.chunk_rows * row_bytes));
  report.read_amplification =
      read_amplification(report.chunk_rows, chunks, config.shuffle ? config.shuffle_window : 1, cached,
                         config.batch > 0 ? config.batch : 64);
}

SplitReport inspect_split(const h5::File& file, const std::string& name, const ImageFileFacts& facts,
                          const DataConfig& config, int world_size) {
  SplitReport report;
  report.name = name;
  try {
    describe_storage(report, file.dataset(split_path(name, "images")), config);
    const std::string labels = split_path(name, "labels");
    if (file.has_dataset(labels)) report.label_type = file.dataset(labels).type_name();
    const ImageSplit split = open_split(file, name, config.layout);
    report.layout = split.layout.name;
    report.samples = split.layout.samples;
    report.channels = split.layout.channels;
    report.height = split.layout.height;
    report.width = split.layout.width;
    for (int rank = 0; rank < world_size; ++rank)
      report.shares.push_back(share_of(report.samples, rank, world_size));
    const int64_t classes = count_classes(file, facts);
    require_below(split.labels, classes, file.path() + ": " + labels);
    report.class_counts.resize(static_cast<size_t>(classes));
    for (const int64_t label : split.labels) ++report.class_counts[static_cast<size_t>(label)];
  } catch (const Error& error) {
    report.problem = error.what();
  }
  return report;
}

}  // namespace

FileReport inspect_file(const std::string& path, const DataConfig& config, int world_size) {
  const h5::File file = h5::File::open(path);
  const ImageFileFacts facts = read_facts(file);
  FileReport report;
  report.path = path;
  report.bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  report.source = facts.source;
  report.class_names = facts.class_names;
  report.mean = facts.mean;
  report.std = facts.std;
  report.datasets = file.datasets();
  for (const std::string& name : split_names(file)) {
    report.splits.push_back(inspect_split(file, name, facts, config, world_size));
  }
  return report;
}

}  // namespace lockstep
