#include "lockstep/data/data_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// The number a text is, or NaN.
double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::nan("") : value;
}

void bind_files(config::Section& s, DataConfig& c) {
  s.field("dataset", &c.dataset, "Kind of dataset; the program lists the registered ones");
  s.field("train", &c.train, "HDF5 file to train on, or a list of files (shards) that are used as one");
  s.field("eval", &c.eval, "HDF5 file or files to evaluate on; none: eval_split of the training files");
  s.field("train_split", &c.train_split,
          "Group of the file that holds the training images and labels; / for the file's root");
  s.field("eval_split", &c.eval_split, "Group of the file to evaluate on");
  s.field("layout", &c.layout,
          "Order of the stored images' dimensions; auto: the file's attribute, else from the shape")
      .one_of({"auto", "NHW", "NHWC", "NCHW"});
  s.field("scale", &c.scale,
          "What stored values are divided by before anything else; auto: 255 for uint8, 65535 for uint16, "
          "32767 for int16, 1 for "
          "floats");
}

void bind_batches(config::Section& s, DataConfig& c) {
  s.field("batch", &c.batch, "Samples of one micro-batch on one rank; give this or global_batch").at_least(0);
  s.field("global_batch", &c.global_batch, "Samples of an optimizer step over all ranks and micro-batches")
      .at_least(0);
  s.field("eval_batch", &c.eval_batch, "Samples of one batch on one rank when evaluating; 0: as for training")
      .at_least(0);
  s.field("tail", &c.tail,
          "The last incomplete global batch of an epoch: drop leaves it out, pad fills it with samples from "
          "the epoch's start")
      .one_of({"drop", "pad"});
  s.field("shuffle", &c.shuffle, "A new order each epoch, from the seed; false: the order of the file");
  s.field("shuffle_window", &c.shuffle_window,
          "Chunks whose samples are mixed together when images are stored in chunks; 0: mix all, which "
          "decodes chunks again and "
          "again")
      .at_least(0);
}

void bind_transforms(config::Section& s, DataConfig& c) {
  s.field("resize", &c.resize,
          "Side in pixels that images are resized to (bilinear); 0 keeps the stored size")
      .at_least(0);
  s.field("crop_padding", &c.crop_padding,
          "Training: shift images at random by up to this many pixels; black comes in")
      .at_least(0);
  s.field("flip", &c.flip, "Training: mirror half of the images left to right");
  s.field("resized_crop", &c.resized_crop,
          "Training: use a random part of at least this share of an image's area, resized; 0: off")
      .at_least(0)
      .at_most(1);
  s.field("mean", &c.mean,
          "Subtracted from scaled values, one or one a channel; none: the file's attribute, else 0.5");
  s.field("std", &c.std, "Then divided by, one or one a channel; none: the file's attribute, else 0.5")
      .above(0);
}

void bind_loading(config::Section& s, DataConfig& c) {
  s.field("workers", &c.workers, "Threads of a rank that read ahead; 0: the training thread reads itself")
      .at_least(0)
      .at_most(256);
  s.field("prefetch", &c.prefetch, "Batches kept ready ahead of the one in use").at_least(1).at_most(1024);
  s.field("pin_memory", &c.pin_memory,
          "Page-locked batches, so that copies to a GPU overlap; no effect without a GPU");
}

}  // namespace

void bind(config::Section& section, DataConfig& config) {
  bind_files(section, config);
  bind_batches(section, config);
  bind_transforms(section, config);
  bind_loading(section, config);
  if (config.batch > 0 && config.global_batch > 0) {
    section.problem("global_batch",
                    "batch (samples of one rank's micro-batch) and global_batch (samples of a whole step) "
                    "cannot both be given; "
                    "remove one");
  }
  if (config.mean.empty() != config.std.empty()) {
    section.problem(config.mean.empty() ? "std" : "mean", "mean and std go together; give both or neither");
  } else if (config.mean.size() != config.std.size()) {
    section.problem("std", fmt::format("mean has {} values, std has {}; give as many of each",
                                       config.mean.size(), config.std.size()));
  }
  if (config.scale != "auto" && !(number(config.scale) > 0 && std::isfinite(number(config.scale)))) {
    section.problem("scale",
                    fmt::format("'{}' is neither auto nor a number above 0 (255, say)", config.scale));
  }
}

double scale_divisor(const DataConfig& config, double largest) {
  return config.scale == "auto" ? largest : number(config.scale);
}

}  // namespace lockstep
