#include "lockstep/data/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/core/error.h"

using namespace lockstep;

namespace {

std::vector<int64_t> permutation(int64_t n, uint64_t key) {
  const Permutation p(n, key);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(p(i));
  return all;
}

std::vector<int64_t> counting(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> epoch_order(const SamplerSpec& spec, int64_t epoch) {
  const Sampler sampler(spec);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < spec.samples; ++i) order.push_back(sampler.sample_at(epoch, i));
  return order;
}

// All samples of one step in the order of ranks and micro-batches.
std::vector<int64_t> whole_step(const Sampler& sampler, int64_t epoch, int64_t step, int ranks,
                                int64_t accumulate) {
  std::vector<int64_t> all;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int64_t micro = 0; micro < accumulate; ++micro) {
      const auto part = sampler.micro_batch(epoch, step, rank, ranks, micro, accumulate);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

// Chi-squared of counts against equal expectation.
double chi_squared(const std::vector<int64_t>& counts) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int64_t count : counts) sum += std::pow(static_cast<double>(count) - expected, 2) / expected;
  return sum;
}

}  // namespace

TEST_CASE("a permutation holds every number once, for any size, and its inverse undoes it") {
  for (int64_t n = 0; n <= 300; ++n) {
    const Permutation p(n, 42);
    const std::vector<int64_t> all = permutation(n, 42);
    CHECK(sorted(all) == counting(n));
    for (int64_t i = 0; i < n; ++i) REQUIRE(p.inverse(p(i)) == i);
  }
  for (const int64_t n : {1023, 1024, 1025, 60000, 65537}) CHECK(sorted(permutation(n, 7)) == counting(n));
  const int64_t huge = (int64_t{1} << 40) + 12345;
  const Permutation p(huge, 3);
  for (int64_t i = huge - 1000; i < huge; ++i) {
    REQUIRE(p(i) >= 0);
    REQUIRE(p(i) < huge);
    REQUIRE(p.inverse(p(i)) == i);
  }
}

TEST_CASE("a permutation is the same on every machine") {
  // Golden values: a change here changes the sample order of every existing run and breaks their resumption.
  CHECK(permutation(10, 1) == std::vector<int64_t>{7, 0, 4, 8, 1, 9, 5, 6, 2, 3});
  const Permutation p(1'000'000, 2);
  CHECK(std::vector<int64_t>{p(0), p(1), p(2), p(999'999)} ==
        std::vector<int64_t>{359422, 283170, 765517, 399732});
}

TEST_CASE("all orders of few things are equally likely") {
  // 99.99 % quantiles of chi-squared with n!-1 degrees of freedom.
  const std::map<int64_t, double> limits = {{2, 15.14}, {3, 25.75}, {4, 57.1}, {5, 185.0}};
  for (const auto& [n, limit] : limits) {
    std::map<std::vector<int64_t>, int64_t> seen;
    std::vector<int64_t> order = counting(n);
    do seen[order] = 0;
    while (std::next_permutation(order.begin(), order.end()));
    for (uint64_t key = 0; key < 24000; ++key) ++seen[permutation(n, key)];
    std::vector<int64_t> counts;
    for (const auto& [which, count] : seen) counts.push_back(count);
    INFO("n = ", n);
    CHECK(chi_squared(counts) < limit);
  }
}

TEST_CASE("a permutation is well mixed: places, neighbours and keys are unrelated") {
  for (const int64_t n : {17, 100, 1000, 60000}) {
    INFO("n = ", n);
    // Where thing 0 and thing n-1 land over many keys: uniform over 10 tenths (chi-squared 9 df, 99.99
    // %: 33.7).
    for (const int64_t thing : {int64_t{0}, n - 1}) {
      std::vector<int64_t> tenths(10, 0);
      const int64_t range = n / 10 * 10;
      for (uint64_t key = 0; key < 20000; ++key) {
        const int64_t place = Permutation(n, key)(thing);
        if (place < range) ++tenths[static_cast<size_t>(place * 10 / range)];
      }
      CHECK(chi_squared(tenths) < 33.7);
    }
    // Correlation of neighbours, of place with value, and of two keys: each about normal with deviation
    // 1/sqrt(n).
    const std::vector<int64_t> a = permutation(n, 11);
    const std::vector<int64_t> b = permutation(n, 12);
    const auto correlation = [n](auto&& x, auto&& y) {
      const double mean = static_cast<double>(n - 1) / 2;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        sum += (static_cast<double>(x(i)) - mean) * (static_cast<double>(y(i)) - mean);
      return sum / (static_cast<double>(n) * (static_cast<double>(n) * static_cast<double>(n) - 1) / 12);
    };
    const auto at = [](const std::vector<int64_t>& v) {
      return [&v](int64_t i) { return v[static_cast<size_t>(i)]; };
    };
    const double limit = 4.5 / std::sqrt(static_cast<double>(n));
    CHECK(std::abs(correlation(at(a), [&](int64_t i) { return a[static_cast<size_t>((i + 1) % n)]; })) <
          limit);
    CHECK(std::abs(correlation(at(a), [](int64_t i) { return i; })) < limit);
    CHECK(std::abs(correlation(at(a), at(b))) < limit);
    // Things that stay where they were: about one, whatever n.
    int64_t fixed = 0;
    for (uint64_t key = 0; key < 20; ++key) {
      const std::vector<int64_t> each = permutation(std::min<int64_t>(n, 1000), key);
      for (size_t i = 0; i < each.size(); ++i) fixed += each[i] == static_cast<int64_t>(i);
    }
    CHECK(fixed > 3);
    CHECK(fixed < 45);
  }
}

TEST_CASE("shares are contiguous, equal to one, larger first") {
  for (int64_t n = 0; n <= 30; ++n) {
    for (int size = 1; size <= 8; ++size) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Share share = share_of(n, rank, size);
        CHECK(share.begin == next);
        CHECK(share.size() == n / size + (rank < n % size ? 1 : 0));
        next = share.end;
      }
      CHECK(next == n);
    }
  }
  CHECK_THROWS_AS(share_of(10, 2, 2), Error);
}

// BR-050 and BR-055: N samples, ranks, batch, accumulation, both tails, all of them.
TEST_CASE("every epoch covers its samples as its tail says, with the same steps on every rank") {
  for (const bool windowed : {false, true}) {
    for (int64_t n = 1; n <= 20; ++n) {
      for (int ranks = 1; ranks <= 4; ++ranks) {
        for (int64_t batch = 1; batch <= 5; ++batch) {
          for (const int64_t accumulate : {1, 2}) {
            for (const Tail tail : {Tail::drop, Tail::pad}) {
              SamplerSpec spec{
                  .samples = n, .global_batch = batch * ranks * accumulate, .seed = 5, .tail = tail};
              if (windowed) {
                spec.chunk_rows = 3;
                spec.window_chunks = 2;
              }
              const Sampler sampler(spec);
              CAPTURE(n);
              CAPTURE(ranks);
              CAPTURE(batch);
              const int64_t total = sampler.steps_per_epoch() * spec.global_batch;
              REQUIRE(total == (tail == Tail::drop ? n / spec.global_batch
                                                   : (n + spec.global_batch - 1) / spec.global_batch) *
                                   spec.global_batch);
              REQUIRE(sampler.dropped_per_epoch() == (tail == Tail::drop ? n - total : 0));
              REQUIRE(sampler.padded_per_epoch() == (tail == Tail::pad ? total - n : 0));
              std::map<int64_t, int64_t> seen;
              for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
                for (int rank = 0; rank < ranks; ++rank) {
                  for (int64_t micro = 0; micro < accumulate; ++micro) {
                    const auto part = sampler.micro_batch(1, step, rank, ranks, micro, accumulate);
                    REQUIRE(static_cast<int64_t>(part.size()) == batch);
                    for (const int64_t sample : part) {
                      REQUIRE(sample >= 0);
                      REQUIRE(sample < n);
                      ++seen[sample];
                    }
                  }
                }
              }
              if (tail == Tail::drop) {
                REQUIRE(static_cast<int64_t>(seen.size()) == total);  // no sample twice
              } else {
                REQUIRE(static_cast<int64_t>(seen.size()) ==
                        n);  // every sample, the extra ones spread evenly
                for (const auto& [sample, count] : seen) {
                  REQUIRE(count >= total / n);
                  REQUIRE(count <= (total + n - 1) / n);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("padding repeats the epoch's first samples") {
  const SamplerSpec spec{.samples = 10, .global_batch = 4, .seed = 3, .tail = Tail::pad};
  const Sampler sampler(spec);
  REQUIRE(sampler.steps_per_epoch() == 3);
  const auto last = sampler.micro_batch(0, 2, 0, 1, 0, 1);
  CHECK(last == std::vector<int64_t>{sampler.sample_at(0, 8), sampler.sample_at(0, 9),
                                     sampler.sample_at(0, 0), sampler.sample_at(0, 1)});
  CHECK_THROWS_AS(sampler.micro_batch(0, 3, 0, 1, 0, 1), Error);
  CHECK_THROWS_AS(sampler.micro_batch(0, -1, 0, 1, 0, 1), Error);
}

TEST_CASE("a step takes the same samples in the same order on any number of ranks and micro-batches") {
  for (const int64_t window : {0, 2}) {
    const Sampler sampler(
        {.samples = 103, .global_batch = 12, .seed = 9, .chunk_rows = 7, .window_chunks = window});
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
        const auto one = whole_step(sampler, epoch, step, 1, 1);
        for (const int ranks : {1, 2, 3, 4, 5, 8}) {
          for (const int64_t accumulate : {1, 2, 3})
            REQUIRE(whole_step(sampler, epoch, step, ranks, accumulate) == one);
        }
      }
    }
  }
}

// BR-003, BR-053, BR-054.
TEST_CASE("epochs and seeds change the order, repeating them repeats it") {
  for (const int64_t window : {0, 3}) {
    SamplerSpec spec{.samples = 200, .global_batch = 10, .seed = 1, .chunk_rows = 8, .window_chunks = window};
    std::set<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      const auto order = epoch_order(spec, epoch);
      CHECK(sorted(order) == counting(200));
      CHECK(order == epoch_order(spec, epoch));
      orders.insert(order);
    }
    spec.seed = 2;
    for (int64_t epoch = 0; epoch < 4; ++epoch) orders.insert(epoch_order(spec, epoch));
    CHECK(orders.size() == 8);
    // A sample moves between ranks from one epoch to the next.
    const Sampler sampler(spec);
    std::set<int64_t> first, second;
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      for (const int64_t s : sampler.micro_batch(0, step, 0, 2, 0, 1)) first.insert(s);
      for (const int64_t s : sampler.micro_batch(1, step, 0, 2, 0, 1)) second.insert(s);
    }
    CHECK(first != second);
  }
}

TEST_CASE("without shuffling the order is the file's") {
  const SamplerSpec spec{
      .samples = 20, .global_batch = 4, .shuffle = false, .chunk_rows = 3, .window_chunks = 2};
  CHECK(epoch_order(spec, 5) == counting(20));
}

TEST_CASE("chunk-aware order covers everything and keeps each window to its chunks") {
  for (const int64_t n : {1, 2, 7, 8, 9, 63, 64, 65, 100, 1000}) {
    for (const int64_t rows : {2, 3, 8, 50, 2000}) {
      for (const int64_t window : {1, 2, 4, 100}) {
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          const SamplerSpec spec{.samples = n, .seed = 4, .chunk_rows = rows, .window_chunks = window};
          const auto order = epoch_order(spec, epoch);
          CAPTURE(n);
          CAPTURE(rows);
          CAPTURE(window);
          REQUIRE(sorted(order) == counting(n));
          // Chunks come in groups of `window`: a chunk's samples end before the next group's begin.
          std::vector<int64_t> first_seen;
          for (const int64_t sample : order) {
            if (std::find(first_seen.begin(), first_seen.end(), sample / rows) == first_seen.end()) {
              first_seen.push_back(sample / rows);
            }
          }
          std::map<int64_t, int64_t> size_of;
          for (int64_t sample = 0; sample < n; ++sample) ++size_of[sample / rows];
          // Walk the order window by window: the set of chunks inside a window holds exactly the window's
          // samples.
          size_t position = 0;
          const auto chunks = static_cast<int64_t>(size_of.size());
          for (int64_t begin = 0; begin < chunks; begin += window) {
            std::set<int64_t> open;
            int64_t samples = 0;
            for (int64_t c = begin; c < std::min(chunks, begin + window); ++c) {
              // The next distinct chunk not yet used belongs to this window.
              while (static_cast<int64_t>(open.size()) <= c - begin && position < order.size()) {
                open.insert(order[position++] / rows);
              }
            }
            for (const int64_t c : open) samples += size_of[c];
            int64_t seen = 0;
            for (size_t i = 0; i < order.size(); ++i) seen += open.contains(order[i] / rows);
            REQUIRE(seen == samples);
            // All of these chunks' samples lie in one contiguous stretch of the order.
            const auto inside = [&](int64_t sample) { return open.contains(sample / rows); };
            const auto from = std::find_if(order.begin(), order.end(), inside);
            REQUIRE(std::count_if(from, from + samples, inside) == samples);
            position = static_cast<size_t>(from - order.begin()) + static_cast<size_t>(samples);
          }
        }
      }
    }
  }
}

TEST_CASE("a window really is shuffled across its chunks") {
  const auto order = epoch_order({.samples = 4000, .seed = 8, .chunk_rows = 100, .window_chunks = 16}, 0);
  // The first 64 samples come from many of the window's 16 chunks, not from one.
  std::set<int64_t> chunks;
  for (size_t i = 0; i < 64; ++i) chunks.insert(order[i] / 100);
  CHECK(chunks.size() >= 12);
  CHECK(chunks.size() <= 16);
}

TEST_CASE("impossible sizes are refused") {
  CHECK_THROWS_AS(Sampler({.samples = -1}), Error);
  CHECK_THROWS_AS(Sampler({.samples = 5, .global_batch = 0}), Error);
  CHECK_THROWS_AS(Sampler({.samples = 5, .chunk_rows = 0}), Error);
  CHECK_THROWS_AS(Sampler({.samples = 5, .window_chunks = -1}), Error);
  CHECK(Sampler({.samples = 0, .global_batch = 4}).steps_per_epoch() == 0);
  CHECK_THROWS_AS(Sampler({.samples = 0}).sample_at(0, 0), Error);
}
