#include "lockstep/data/image_storage.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "data/hdf5_writer.h"
#include "lockstep/core/error.h"
#include "lockstep/data/sampler.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<uint8_t> numbered(int64_t rows, int64_t row_bytes) {
  std::vector<uint8_t> values(static_cast<size_t>(rows * row_bytes));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  return values;
}

std::unique_ptr<ImageStorage> open_images(const std::string& path, const std::string& name, PixelType type,
                                          std::shared_ptr<ChunkCache> cache) {
  h5::File file = h5::File::open(path);
  h5::Dataset images = file.dataset(name);
  return open_image_storage(std::move(file), std::move(images), type, std::move(cache));
}

// The rows read back equal those of `values`.
void check_rows(const ImageStorage& storage, const std::vector<uint8_t>& values, size_t row_bytes,
                const std::vector<int64_t>& rows) {
  std::vector<int> visits(rows.size(), 0);
  bool equal = true;
  storage.read(rows, [&](size_t position, const std::byte* row) {
    ++visits[position];
    equal = equal &&
            std::memcmp(row, values.data() + static_cast<size_t>(rows[position]) * row_bytes, row_bytes) == 0;
  });
  CHECK(equal);
  CHECK(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
}

}  // namespace

TEST_CASE("every storage gives the same rows, and plain ones are mapped") {
  const TemporaryFolder folder;
  const std::vector<uint8_t> values = numbered(23, 12);
  struct Case {
    const char* name;
    Storage storage;
    bool mapped;
    int64_t chunk_rows;
  };
  const std::vector<Case> cases = {{"/plain", {}, true, 1},
                                   {"/chunks", {.chunk = {5, 3, 4}}, false, 5},
                                   {"/parts", {.chunk = {5, 2, 3}, .gzip = 1}, false, 5},
                                   {"/packed", {.chunk = {7, 3, 4}, .gzip = 6, .shuffle = true}, false, 7},
                                   {"/single", {.chunk = {1, 3, 4}, .gzip = 1}, false, 1},
                                   {"/whole", {.chunk = {23, 3, 4}, .gzip = 1}, false, 23}};
  for (const hsize_t userblock : {0, 512}) {
    const std::string path = folder.file("a.h5");
    {
      Writer writer(path, userblock);
      for (const Case& each : cases) writer.bytes<uint8_t>(each.name, {23, 3, 4}, values, each.storage);
    }
    for (const Case& each : cases) {
      INFO(each.name, " userblock ", userblock);
      const auto storage = open_images(path, each.name, PixelType::u8, std::make_shared<ChunkCache>(1 << 20));
      CHECK(storage->mapped() == each.mapped);
      CHECK(storage->chunk_rows() == each.chunk_rows);
      std::vector<int64_t> all(23);
      std::iota(all.begin(), all.end(), 0);
      check_rows(*storage, values, 12, all);
      check_rows(*storage, values, 12, {22, 0, 7, 7, 6, 21, 5, 22, 13, 14, 15});
      check_rows(*storage, values, 12, {});
    }
  }
}

TEST_CASE("types in a foreign byte order and never written datasets are read, not mapped") {
  const TemporaryFolder folder;
  const std::vector<int16_t> values = {1, -2, 300, -400, 500, 32767};
  {
    Writer writer(folder.file("a.h5"));
    writer.dataset("/foreign", {3, 2}, H5T_STD_I16BE, H5T_NATIVE_INT16, values.data());
    writer.dataset("/unwritten", {3, 2}, H5T_STD_I16LE, H5T_NATIVE_INT16, nullptr);
  }
  const auto read_all = [&](const std::string& name) {
    const auto storage = open_images(folder.file("a.h5"), name, PixelType::i16, nullptr);
    CHECK_FALSE(storage->mapped());
    std::vector<int16_t> out(6);
    storage->read(std::vector<int64_t>{2, 0, 1}, [&](size_t position, const std::byte* row) {
      const size_t place = position == 0 ? 4 : (position - 1) * 2;
      std::memcpy(out.data() + place, row, 4);
    });
    return out;
  };
  CHECK(read_all("/foreign") == values);
  CHECK(read_all("/unwritten") == std::vector<int16_t>(6, 0));
}

TEST_CASE("threads that share a storage each get their own rows") {
  const TemporaryFolder folder;
  const std::vector<uint8_t> values = numbered(200, 64);
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<uint8_t>("/images", {200, 8, 8}, values, {.chunk = {16, 8, 8}, .gzip = 1});
  }
  // A cache of two chunks: they are thrown out while others read them.
  const auto storage =
      open_images(folder.file("a.h5"), "/images", PixelType::u8, std::make_shared<ChunkCache>(2 * 16 * 64));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 30; ++round) {
        std::vector<int64_t> rows;
        const Permutation order(200, static_cast<uint64_t>(round) * 4 + t);
        for (int64_t i = 0; i < 20; ++i) rows.push_back(order(i));
        storage->read(rows, [&](size_t position, const std::byte* row) {
          wrong[t] += std::memcmp(row, values.data() + static_cast<size_t>(rows[position]) * 64, 64) != 0;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

// BR-036: what is decoded, counted.
TEST_CASE("a window-shuffled epoch decodes every chunk once, a fully shuffled one does not") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<uint8_t>("/images", {4000, 32}, numbered(4000, 32), {.chunk = {100, 32}, .gzip = 1});
  }
  const auto decoded = [&](int64_t window, int64_t cached_chunks) {
    const auto cache = std::make_shared<ChunkCache>(cached_chunks * 100 * 32);
    const auto storage = open_images(folder.file("a.h5"), "/images", PixelType::u8, cache);
    const Sampler sampler(
        {.samples = 4000, .global_batch = 50, .seed = 1, .chunk_rows = 100, .window_chunks = window});
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      storage->read(sampler.micro_batch(0, step, 0, 1, 0, 1), [](size_t, const std::byte*) {});
    }
    return cache->decoded();
  };
  CHECK(decoded(8, 10) == 40);
  CHECK(decoded(0, 10) > 40 * 20);
  // The estimate that users are shown agrees with what happens.
  const double estimated = read_amplification(100, 40, 0, 10, 50);
  const double counted = static_cast<double>(decoded(0, 10)) / 40;
  CHECK(counted == doctest::Approx(estimated).epsilon(0.15));
  CHECK(read_amplification(100, 40, 8, 10, 50) == 1);
  CHECK(read_amplification(1, 40, 0, 1, 50) == 1);
}

TEST_CASE("a failed decode is tried again, not kept") {
  ChunkCache cache(1000);
  int calls = 0;
  const auto decode = [&](ChunkCache::Block& out) {
    if (++calls == 1) fail("disk error");
    out[0] = std::byte{9};
  };
  CHECK_THROWS_AS(cache.get(&cache, 0, 10, decode), Error);
  CHECK(cache.get(&cache, 0, 10, decode)->at(0) == std::byte{9});
  CHECK(cache.get(&cache, 0, 10, decode)->at(0) == std::byte{9});
  CHECK(calls == 2);
  CHECK(cache.decoded() == 1);
}

TEST_CASE("a cache holds no more than it may, and drops what was used longest ago") {
  ChunkCache cache(10 * 100);
  std::vector<std::weak_ptr<const ChunkCache::Block>> blocks;
  const auto get = [&](int64_t number) { return cache.get(&cache, number, 100, [](ChunkCache::Block&) {}); };
  for (int64_t i = 0; i < 50; ++i) {
    blocks.push_back(get(i));
    get(0);  // always the most recent but one
    const auto alive =
        std::count_if(blocks.begin(), blocks.end(), [](const auto& block) { return !block.expired(); });
    REQUIRE(alive <= 10);
  }
  CHECK_FALSE(blocks[0].expired());
  CHECK(blocks[40].expired());
  CHECK_FALSE(blocks[41].expired());
  CHECK(cache.decoded() == 50);
  // A block larger than all room is given all the same.
  CHECK(cache.get(&cache, 99, 5000, [](ChunkCache::Block&) {})->size() == 5000);
}

// A sparse 4 GB file, mapped, with at most 1 GB of memory for data.
TEST_CASE("a mapped file's size does not count as the process's memory") {
  const TemporaryFolder folder;
  const std::string path = folder.file("large.h5");
  constexpr int64_t rows = (int64_t{4} << 30) / 4096;
  {
    Writer writer(path);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    const hsize_t shape[] = {rows, 64, 64};
    const hid_t space = H5Screate_simple(3, shape, nullptr);
    const hid_t id =
        H5Dcreate2(writer.id(), "/images", H5T_NATIVE_UINT8, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    REQUIRE(id >= 0);
    const std::vector<uint8_t> last(4096, 77);
    const hsize_t start[] = {rows - 1, 0, 0}, count[] = {1, 64, 64};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr);
    const hid_t memory = H5Screate_simple(3, count, nullptr);
    REQUIRE(H5Dwrite(id, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, last.data()) >= 0);
    H5Sclose(memory);
    H5Dclose(id);
    H5Sclose(space);
    H5Pclose(creation);
  }
  rlimit before{};
  getrlimit(RLIMIT_DATA, &before);
  rlimit limited = before;
  limited.rlim_cur = rlim_t{1} << 30;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory alone is larger
  REQUIRE(setrlimit(RLIMIT_DATA, &limited) == 0);
#endif
  {
    const auto storage = open_images(path, "/images", PixelType::u8, nullptr);
    CHECK(storage->mapped());
    int seen = 0;
    storage->read(std::vector<int64_t>{rows - 1, 0}, [&](size_t position, const std::byte* row) {
      CHECK(static_cast<int>(row[4095]) == (position == 0 ? 77 : 0));
      ++seen;
    });
    CHECK(seen == 2);
  }
  setrlimit(RLIMIT_DATA, &before);
}
