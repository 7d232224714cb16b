#include "lockstep/data/sampler.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/data/mix.h"

namespace lockstep {
namespace {

constexpr int rounds = 8;
// A network over very few numbers reaches only some of their permutations; over 256 numbers, walked down to
// the few, all.
constexpr int least_half_bits = 4;

enum Stream : uint64_t { whole_order = 1, chunk_order = 2, window_order = 3 };

uint64_t epoch_key(const SamplerSpec& spec, int64_t epoch) {
  return mix64(spec.seed, static_cast<uint64_t>(epoch));
}

// The order of one epoch: position -> sample.
class EpochOrder {
 public:
  EpochOrder(const SamplerSpec& spec, int64_t epoch)
      : spec_(spec),
        key_(epoch_key(spec, epoch)),
        windowed_(spec.chunk_rows > 1 && spec.window_chunks > 0),
        chunks_((spec.samples + spec.chunk_rows - 1) / spec.chunk_rows),
        order_(windowed_ ? chunks_ : spec.samples, mix64(key_, windowed_ ? chunk_order : whole_order)) {
    if (windowed_) {
      missing_ = chunks_ * spec_.chunk_rows - spec_.samples;
      partial_slot_ = order_.inverse(chunks_ - 1);
    }
  }

  int64_t at(int64_t position) const {
    if (!spec_.shuffle) return position;
    return windowed_ ? windowed(position) : order_(position);
  }

 private:
  // All chunks hold chunk_rows samples but the file's last, which lacks `missing_` and stands at
  // `partial_slot_` of the shuffled chunks. Adding what it lacks to every position behind it makes all
  // arithmetic uniform.
  int64_t windowed(int64_t position) const {
    const int64_t rows = spec_.chunk_rows;
    const int64_t span = spec_.window_chunks * rows;
    const int64_t partial_window = partial_slot_ / spec_.window_chunks;
    int64_t window = position / span;
    if (window >= partial_window) window = (position + missing_) / span;
    const int64_t begin = window * span - (window > partial_window ? missing_ : 0);
    const int64_t slots = std::min(spec_.window_chunks, chunks_ - window * spec_.window_chunks);
    const int64_t size = slots * rows - (window == partial_window ? missing_ : 0);

    const Permutation mix(size, mix64(mix64(key_, window_order), static_cast<uint64_t>(window)));
    int64_t offset = mix(position - begin);
    const int64_t partial_end = (partial_slot_ - window * spec_.window_chunks + 1) * rows - missing_;
    if (window == partial_window && offset >= partial_end) offset += missing_;
    const int64_t chunk = order_(window * spec_.window_chunks + offset / rows);
    return chunk * rows + offset % rows;
  }

  const SamplerSpec& spec_;
  uint64_t key_;
  bool windowed_;
  int64_t chunks_;
  int64_t missing_ = 0;
  int64_t partial_slot_ = 0;
  Permutation order_;
};

}  // namespace

Permutation::Permutation(int64_t n, uint64_t key) : n_(n), key_(key), half_bits_(least_half_bits) {
  if (n < 0 || n > (int64_t{1} << 62)) fail("a permutation of {} things cannot be made", n);
  while ((int64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
}

int64_t Permutation::operator()(int64_t i) const {
  if (n_ <= 1) return i;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  const auto round_function = [this](uint64_t round, uint64_t half) {
    return mix64((key_ + round * 0xa0761d6478bd642fULL) ^ (half << 3));
  };
  auto x = static_cast<uint64_t>(i);
  do {
    uint64_t left = x >> half_bits_;
    uint64_t right = x & mask;
    for (uint64_t round = 0; round < rounds; ++round) {
      const uint64_t next = left ^ (round_function(round, right) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

int64_t Permutation::inverse(int64_t image) const {
  if (n_ <= 1) return image;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  const auto round_function = [this](uint64_t round, uint64_t half) {
    return mix64((key_ + round * 0xa0761d6478bd642fULL) ^ (half << 3));
  };
  auto x = static_cast<uint64_t>(image);
  do {
    uint64_t left = x >> half_bits_;
    uint64_t right = x & mask;
    for (uint64_t round = rounds; round-- > 0;) {
      const uint64_t before = right ^ (round_function(round, left) & mask);
      right = left;
      left = before;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

Share share_of(int64_t n, int rank, int size) {
  if (size < 1 || rank < 0 || rank >= size) fail("there is no part {} of {}", rank, size);
  const int64_t each = n / size;
  const int64_t larger = n % size;
  const int64_t begin = rank * each + std::min<int64_t>(rank, larger);
  return {begin, begin + each + (rank < larger ? 1 : 0)};
}

Sampler::Sampler(const SamplerSpec& spec) : spec_(spec) {
  if (spec.samples < 0) fail("a sampler cannot order {} samples", spec.samples);
  if (spec.global_batch < 1)
    fail("a global batch of {} samples cannot be; give at least 1", spec.global_batch);
  if (spec.chunk_rows < 1) fail("storage chunks of {} samples cannot be; give at least 1", spec.chunk_rows);
  if (spec.window_chunks < 0)
    fail("a shuffle window of {} chunks cannot be; give 0 (whole set) or more", spec.window_chunks);
}

int64_t Sampler::steps_per_epoch() const {
  const int64_t whole = spec_.samples / spec_.global_batch;
  const bool rest = spec_.samples % spec_.global_batch != 0;
  return whole + (rest && spec_.tail == Tail::pad ? 1 : 0);
}

int64_t Sampler::dropped_per_epoch() const {
  return spec_.tail == Tail::drop ? spec_.samples % spec_.global_batch : 0;
}

int64_t Sampler::padded_per_epoch() const {
  return spec_.tail == Tail::pad ? steps_per_epoch() * spec_.global_batch - spec_.samples : 0;
}

int64_t Sampler::sample_at(int64_t epoch, int64_t position) const {
  if (spec_.samples == 0 || position < 0)
    fail("there is no position {} in an order of {} samples", position, spec_.samples);
  return EpochOrder(spec_, epoch).at(position % spec_.samples);
}

std::vector<int64_t> Sampler::micro_batch(int64_t epoch, int64_t step, int rank, int size, int64_t micro,
                                          int64_t accumulate) const {
  if (step < 0 || step >= steps_per_epoch())
    fail("step {} is outside an epoch of {} steps", step, steps_per_epoch());
  const Share mine = share_of(spec_.global_batch, rank, size);
  const Share part = share_of(mine.size(), static_cast<int>(micro), static_cast<int>(accumulate));
  const EpochOrder order(spec_, epoch);
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(part.size()));
  const int64_t first = step * spec_.global_batch + mine.begin;
  for (int64_t i = part.begin; i < part.end; ++i) samples.push_back(order.at((first + i) % spec_.samples));
  return samples;
}

}  // namespace lockstep
