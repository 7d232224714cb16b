#include "lockstep/train/batch_plan.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

SamplerSpec make_spec(const Experiment& experiment, const DatasetInfo& info, int world_size) {
  const DataConfig& data = experiment.data;
  const int64_t accumulate = experiment.train.accumulate;
  if (info.size == 0) refuse("{}: there are no samples to train on", info.source);
  if (info.size < world_size) {
    refuse("{}: {} samples cannot be shared by {} ranks; use at most {} ranks", info.source, info.size, world_size,
           info.size);
  }
  const int64_t micro = data.batch > 0 ? data.batch : 64;
  const int64_t global = data.global_batch > 0 ? data.global_batch : micro * world_size * accumulate;
  if (global < world_size * accumulate) {
    refuse("data.global_batch: {} samples cannot be split into {} ranks × {} micro-batches (train.accumulate); "
           "give at least {}",
           global, world_size, accumulate, world_size * accumulate);
  }
  SamplerSpec spec;
  spec.samples = info.size;
  spec.global_batch = global;
  spec.seed = static_cast<uint64_t>(experiment.seed);
  spec.shuffle = data.shuffle;
  spec.tail = data.tail == "pad" ? Tail::pad : Tail::drop;
  spec.chunk_rows = info.chunk_rows;
  spec.window_chunks = info.chunk_rows > 1 ? data.shuffle_window : 0;
  if (spec.tail == Tail::drop && info.size < global) {
    refuse("{}: {} samples do not fill one global batch of {} ({} ranks × micro-batch × accumulation); use a smaller "
           "data.batch or data.tail=pad",
           info.source, info.size, global, world_size);
  }
  return spec;
}

}  // namespace

BatchPlan::BatchPlan(const Experiment& experiment, const DatasetInfo& info, int rank, int world_size)
    : sampler_(make_spec(experiment, info, world_size)),
      seed_(static_cast<uint64_t>(experiment.seed)),
      rank_(rank),
      world_size_(world_size),
      accumulate_(experiment.train.accumulate) {
  const TrainConfig& train = experiment.train;
  const int64_t epochs = train.epochs > 0 ? train.epochs : (train.steps > 0 ? 0 : 1);
  const int64_t by_epochs = epochs * sampler_.steps_per_epoch();
  total_steps_ = epochs == 0 ? train.steps : (train.steps == 0 ? by_epochs : std::min(by_epochs, train.steps));
}

int64_t BatchPlan::step_samples() const { return share_of(global_batch(), rank_, world_size_).size(); }

int64_t BatchPlan::micro_batch() const { return share_of(step_samples(), 0, static_cast<int>(accumulate_)).size(); }

RequestSource BatchPlan::requests() const {
  return [*this](int64_t k) {
    LoadRequest request;
    const int64_t step = k / accumulate_;
    if (step >= total_steps_) return request;
    const int64_t epoch = step / steps_per_epoch();
    request.context = ReadContext{seed_, epoch, true};
    request.indices =
        sampler_.micro_batch(epoch, step % steps_per_epoch(), rank_, world_size_, k % accumulate_, accumulate_);
    return request;
  };
}

std::string BatchPlan::describe() const {
  std::string tail;
  if (sampler_.dropped_per_epoch() > 0) {
    tail = fmt::format("; {} of {} samples left out of each epoch (data.tail)", sampler_.dropped_per_epoch(),
                       sampler_.spec().samples);
  } else if (sampler_.padded_per_epoch() > 0) {
    tail = fmt::format("; {} samples seen twice in each epoch (data.tail)", sampler_.padded_per_epoch());
  }
  return fmt::format("global batch {} = {} ranks × {} × {} micro-batches; {} steps an epoch, {} in all{}", global_batch(),
                     world_size_, micro_batch(), accumulate_, steps_per_epoch(), total_steps_, tail);
}

}  // namespace lockstep
