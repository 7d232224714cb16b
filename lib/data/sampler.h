#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// A keyed bijection of [0, n): sample order without memory. Same result on every machine. Feistel network
/// with cycle walking (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). Not a secret cipher,
/// only well mixed.
class Permutation {
 public:
  Permutation(int64_t n, uint64_t key);
  int64_t operator()(int64_t i) const;   ///< image of i in [0, n); i must lie in [0, n)
  int64_t inverse(int64_t image) const;  ///< the i whose image this is
 private:
  int64_t n_;
  uint64_t key_;
  int half_bits_;  // the network permutes [0, 2^(2 * half_bits_)), at least 256 numbers
};

enum class Tail { drop, pad };

/// Everything the order of samples depends on. Neither ranks nor workers are in it.
struct SamplerSpec {
  int64_t samples = 0;
  int64_t global_batch = 1;  ///< samples an optimizer step takes over all ranks and micro-batches
  uint64_t seed = 0;
  bool shuffle = true;
  Tail tail =
      Tail::drop;  ///< last incomplete global batch of an epoch: left out, or filled from the epoch's start
  int64_t chunk_rows = 1;     ///< storage chunk; with window_chunks > 0, order is shuffled chunk-wise
  int64_t window_chunks = 0;  ///< chunks mixed together; 0: shuffle over everything
  /// With chunk_rows > 1 and window_chunks > 0 the chunks are shuffled, grouped in windows of window_chunks,
  /// and the samples of a window are shuffled among themselves: a reader that keeps a window's chunks decodes
  /// each chunk once.
};

/// Half-open range of positions in an epoch's order.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// The part of n things that number `rank` of `size` takes: contiguous, sizes differ by at most one, larger
/// ones first.
Share share_of(int64_t n, int rank, int size);

/// Which samples make step g of epoch e, and which of them a rank takes. Pure arithmetic; its state is
/// (epoch, step). Not collective; needs no memory that grows with the samples. Step g of an epoch is
/// positions [gB, (g+1)B) of its order.
class Sampler {
 public:
  /// Throws Error for a negative or zero size.
  explicit Sampler(const SamplerSpec& spec);
  const SamplerSpec& spec() const { return spec_; }
  int64_t steps_per_epoch() const;
  int64_t dropped_per_epoch() const;  ///< samples an epoch leaves out (drop)
  int64_t padded_per_epoch() const;   ///< samples an epoch sees twice (pad)

  /// The sample at a position of an epoch's order; positions past the end wrap to the epoch's start (pad).
  int64_t sample_at(int64_t epoch, int64_t position) const;

  /// Sample numbers of `rank`'s part of global batch `step` of `epoch`, split into `accumulate`
  /// micro-batches. Rank r takes a contiguous part of the global batch, a micro-batch a contiguous part of
  /// that.
  std::vector<int64_t> micro_batch(int64_t epoch, int64_t step, int rank, int size, int64_t micro,
                                   int64_t accumulate) const;

 private:
  SamplerSpec spec_;
};

}  // namespace lockstep
