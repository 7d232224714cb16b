#pragma once

#include <cstdint>

namespace lockstep {

/// Scrambles 64 bits so that close inputs give unrelated outputs. Finaliser of SplitMix64 (Steele, Lea and
/// Flood 2014, "Fast splittable pseudorandom number generators"; constants of Stafford's variant 13). A
/// bijection; same on every machine.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// One key from two: order matters.
constexpr uint64_t mix64(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ (b * 0xd6e8feb86659fd93ULL)); }

/// A short stream of random numbers that depends on its key alone: (seed, epoch, sample), never on rank or
/// thread.
class KeyedRandom {
 public:
  explicit constexpr KeyedRandom(uint64_t key) : key_(key) {}
  constexpr uint64_t bits() { return mix64(key_, ++count_); }
  /// In [0, 1).
  constexpr double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }
  /// In [low, high].
  constexpr int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(uniform() * static_cast<double>(high - low + 1));
  }

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

}  // namespace lockstep
