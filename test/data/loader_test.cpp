#include "lockstep/data/loader.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/core/error.h"

using namespace lockstep;

namespace {

// Sample i is the number i. Reads take a while that differs, so that workers overtake each other.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t fails_at = -1) : fails_at_(fails_at) { info_.size = 1000; }
  const DatasetInfo& info() const override { return info_; }
  Batch read(std::span<const int64_t> indices, const ReadContext& context) const override {
    const int now = ++inside;
    for (int seen = most_inside; now > seen && !most_inside.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(indices[0] * 7919 % 500));
    --inside;
    ++reads;
    if (indices[0] == fails_at_) fail("sample {} is damaged", fails_at_);
    Batch batch;
    batch.indices.assign(indices.begin(), indices.end());
    batch.input = at::tensor(at::IntArrayRef(batch.indices.data(), batch.indices.size()), at::kLong);
    batch.target = at::full({batch.size()}, context.epoch, at::kLong);
    return batch;
  }
  mutable std::atomic<int> inside = 0, most_inside = 0, reads = 0;

 private:
  DatasetInfo info_;
  int64_t fails_at_;
};

// `count` requests of two samples each; request k is samples 2k and 2k + 1 of epoch k.
RequestSource requests(int64_t count) {
  return [count](int64_t k) {
    LoadRequest request;
    if (k < count) request.indices = {2 * k, 2 * k + 1};
    request.context.epoch = k;
    return request;
  };
}

}  // namespace

TEST_CASE("batches come in order, then empty ones, for any number of workers") {
  for (const int64_t workers : {0, 1, 4}) {
    for (const int64_t prefetch : {1, 2, 8}) {
      CAPTURE(workers);
      Loader loader(std::make_shared<Numbers>(), requests(50), {.workers = workers, .prefetch = prefetch});
      for (int64_t k = 0; k < 50; ++k) {
        const Batch batch = loader.next();
        REQUIRE(batch.indices == std::vector<int64_t>{2 * k, 2 * k + 1});
        REQUIRE(batch.input[1].item<int64_t>() == 2 * k + 1);
        REQUIRE(batch.target[0].item<int64_t>() == k);
      }
      for (int again = 0; again < 3; ++again) CHECK(loader.next().size() == 0);
    }
  }
}

TEST_CASE("a loader can start in the middle and may have nothing to read") {
  for (const int64_t workers : {0, 1, 4}) {
    Loader resumed(std::make_shared<Numbers>(), requests(12), {.workers = workers}, 10);
    CHECK(resumed.next().indices[0] == 20);
    CHECK(resumed.next().indices[0] == 22);
    CHECK(resumed.next().size() == 0);
    Loader nothing(std::make_shared<Numbers>(), requests(0), {.workers = workers});
    CHECK(nothing.next().size() == 0);
  }
}

TEST_CASE("a failure comes at its place in the order and again at every later call") {
  for (const int64_t workers : {0, 1, 4}) {
    CAPTURE(workers);
    Loader loader(std::make_shared<Numbers>(14), requests(50), {.workers = workers, .prefetch = 4});
    for (int64_t k = 0; k < 7; ++k) REQUIRE(loader.next().indices[0] == 2 * k);
    for (int again = 0; again < 2; ++again)
      CHECK_THROWS_WITH_AS(loader.next(), "sample 14 is damaged", Error);
  }
}

TEST_CASE("a failure of the request source reaches next() as well") {
  for (const int64_t workers : {0, 1, 4}) {
    const auto source = [good = requests(9)](int64_t k) {
      if (k == 3) fail("no order for {}", k);
      return good(k);
    };
    Loader loader(std::make_shared<Numbers>(), source, {.workers = workers});
    for (int64_t k = 0; k < 3; ++k) REQUIRE(loader.next().indices[0] == 2 * k);
    CHECK_THROWS_WITH_AS(loader.next(), "no order for 3", Error);
  }
}

TEST_CASE("a loader reads only so far ahead, and ends cleanly in the middle of a run") {
  for (const int64_t workers : {1, 4}) {
    CAPTURE(workers);
    const auto dataset = std::make_shared<Numbers>();
    {
      Loader loader(dataset, requests(400), {.workers = workers, .prefetch = 6});
      loader.next();
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      CHECK(dataset->reads <= 1 + 6);
      CHECK(dataset->reads >= 1 + 6 - workers);
    }
    CHECK(dataset->inside == 0);
    CHECK(dataset->reads < 20);
    CHECK(dataset->most_inside <= workers);
    CHECK(dataset.use_count() == 1);
  }
}

TEST_CASE("several workers really read at the same time") {
  const auto dataset = std::make_shared<Numbers>();
  Loader loader(dataset, requests(200), {.workers = 4, .prefetch = 8});
  while (loader.next().size() > 0) {
  }
  CHECK(dataset->most_inside >= 2);
}

TEST_CASE("impossible options are refused, and pinning without a GPU changes nothing") {
  CHECK_THROWS_AS(Loader(std::make_shared<Numbers>(), requests(1), {.workers = -1}), Error);
  CHECK_THROWS_AS(Loader(std::make_shared<Numbers>(), requests(1), {.workers = 1, .prefetch = -1}), Error);
  if (!at::globalContext().hasCUDA()) {
    Loader loader(std::make_shared<Numbers>(), requests(1), {.workers = 1, .pin_memory = true});
    CHECK_FALSE(loader.next().input.is_pinned());
  }
}
