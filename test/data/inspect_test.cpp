#include "lockstep/data/inspect.h"

#include "data/hdf5_writer.h"
#include "lockstep/core/error.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("inspecting tells shape, type, layout, storage, classes and shares of every split") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<uint8_t>("/train/images", {10, 8, 6}, std::vector<uint8_t>(480, 1));
    writer.labels("/train/labels", {0, 1, 1, 0, 2, 2, 2, 0, 1, 2});
    writer.bytes<uint8_t>("/test/images", {5, 8, 6}, std::vector<uint8_t>(240, 1),
                          {.chunk = {2, 8, 6}, .gzip = 3});
    writer.labels("/test/labels", {0, 0, 0, 0, 1});
    writer.bytes<uint8_t>("/broken/images", {4, 8, 6}, std::vector<uint8_t>(192, 1));
    writer.labels("/broken/labels", {0, 0, 7, 0});
    writer.text("/", "class_names", {"cat", "dog", "cow"});
    writer.text("/", "source", {"made up"});
    writer.numbers("/", "mean", {0.4});
  }
  const FileReport report = inspect_file(folder.file("a.h5"), {}, 4);
  CHECK(report.source == "made up");
  CHECK(report.class_names.size() == 3);
  CHECK(report.mean == std::vector<double>{0.4});
  CHECK(report.datasets.size() == 6);
  CHECK(report.bytes == static_cast<int64_t>(std::filesystem::file_size(folder.file("a.h5"))));
  REQUIRE(report.splits.size() == 3);

  const SplitReport& train = report.splits[2];
  CHECK(train.name == "train");
  CHECK(train.problem.empty());
  CHECK(train.shape == std::vector<int64_t>{10, 8, 6});
  CHECK(train.type == "uint8");
  CHECK(train.label_type == "int64");
  CHECK(train.layout == "NHW");
  CHECK(train.height == 8);
  CHECK(train.width == 6);
  CHECK(train.storage == "contiguous");
  CHECK(train.mapped);
  CHECK(train.decoded_bytes == 480);
  CHECK(train.class_counts == std::vector<int64_t>{3, 3, 4});
  REQUIRE(train.shares.size() == 4);
  CHECK(train.shares[0].size() == 3);
  CHECK(train.shares[3].begin == 8);

  const SplitReport& test = report.splits[1];
  CHECK(test.name == "test");
  CHECK_FALSE(test.mapped);
  CHECK(test.chunk_rows == 2);
  CHECK(test.storage == "chunks of 2×8×6, gzip 3");
  CHECK(test.read_amplification == 1);
  CHECK(test.class_counts == std::vector<int64_t>{4, 1, 0});

  const SplitReport& broken = report.splits[0];
  check_holds(broken.problem, {"/broken/labels", "sample 2", "7"});
  CHECK(broken.samples == 4);
  CHECK_THROWS_AS(inspect_file(folder.file("absent.h5"), {}, 1), Error);
}

TEST_CASE("a split without labels is reported, not thrown") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<uint8_t>("/train/images", {2, 8, 6}, std::vector<uint8_t>(96, 1));
  }
  const FileReport report = inspect_file(folder.file("a.h5"), {}, 1);
  REQUIRE(report.splits.size() == 1);
  CHECK(report.splits[0].shape == std::vector<int64_t>{2, 8, 6});
  check_holds(report.splits[0].problem, {"/train/labels", "/train/images"});
}
