#include "lockstep/data/labels.h"

#include <cmath>
#include <limits>

#include "data/hdf5_writer.h"
#include "lockstep/core/error.h"
#include "lockstep/data/image_layout.h"
#include "lockstep/data/image_split.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

template <class T>
std::vector<int64_t> written_and_read(const std::vector<T>& values, const std::vector<hsize_t>& shape,
                                      int64_t images) {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<T>("/labels", shape, values);
  }
  const h5::File file = h5::File::open(folder.file("a.h5"));
  return read_labels(file.dataset("/labels"), {images, 20, 30});
}

}  // namespace

// BR-037
TEST_CASE("labels of every integer type and of whole floats are the same classes") {
  const std::vector<int64_t> expected = {0, 3, 9, 1};
  CHECK(written_and_read<uint8_t>({0, 3, 9, 1}, {4}, 4) == expected);
  CHECK(written_and_read<int32_t>({0, 3, 9, 1}, {4}, 4) == expected);
  CHECK(written_and_read<int64_t>({0, 3, 9, 1}, {4}, 4) == expected);
  CHECK(written_and_read<uint64_t>({0, 3, 9, 1}, {4}, 4) == expected);
  CHECK(written_and_read<float>({0, 3, 9, 1}, {4}, 4) == expected);
  CHECK(written_and_read<double>({0, 3, 9, 1}, {4, 1}, 4) == expected);
}

TEST_CASE("labels that are no class numbers are refused with the sample's number") {
  check_holds(thrown([] { written_and_read<float>({0, 1, 3.5f}, {3}, 3); }), {"/labels", "sample 2", "3.5"});
  check_holds(thrown([] { written_and_read<float>({0, std::nanf("")}, {2}, 2); }), {"sample 1", "nan"});
  check_holds(thrown([] { written_and_read<double>({1e300, 0}, {2}, 2); }), {"sample 0", "1e+300"});
  check_holds(thrown([] { written_and_read<int32_t>({0, 1, -1, 2}, {4}, 4); }), {"sample 2", "-1"});
  check_holds(thrown([] { require_below({0, 1, 2, 10}, 10, "a.h5: /labels"); }), {"a.h5", "sample 3", "10"});
  // Past int64: not wrapped to something negative or small.
  const auto large = written_and_read<uint64_t>({std::numeric_limits<uint64_t>::max(), 0}, {2}, 2);
  CHECK_THROWS_AS(require_below(large, 1000, "x"), UsageError);
  CHECK_THROWS_AS(written_and_read<int32_t>({0, -1}, {2}, 2), UsageError);
}

// BR-038
TEST_CASE("a count that does not match, or a stray axis, is refused with both shapes") {
  check_holds(thrown([] { written_and_read<int32_t>(std::vector<int32_t>(99, 0), {99}, 100); }),
              {"99 labels", "100 images", "[99]", "[100, 20, 30]"});
  check_holds(thrown([] {
                written_and_read<int32_t>(std::vector<int32_t>(8, 0), {4, 2, 1}, 4);
              }),
              {"[4, 2, 1]", "[4, 20, 30]"});
  check_holds(thrown([] { written_and_read<int32_t>({0}, {}, 4); }), {"[]", "[4, 20, 30]"});
}

TEST_CASE("one-hot rows are read as classes, other rows refused") {
  CHECK(written_and_read<uint8_t>({0, 1, 0, 1, 0, 0, 0, 0, 1}, {3, 3}, 3) == std::vector<int64_t>{1, 0, 2});
  CHECK(written_and_read<float>({0, 1, 1, 0}, {2, 2}, 2) == std::vector<int64_t>{1, 0});
  check_holds(thrown([] {
                written_and_read<float>({0, 1, 0.5f, 0.5f}, {2, 2}, 2);
              }),
              {"[2, 2]", "[2, 20, 30]", "row 1"});
  check_holds(thrown([] { written_and_read<uint8_t>({1, 1, 0, 1}, {2, 2}, 2); }), {"row 0"});
  check_holds(thrown([] { written_and_read<uint8_t>({1, 0, 0, 0}, {2, 2}, 2); }), {"row 1"});
}

TEST_CASE("text in the place of labels is refused by its type") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 3);
    writer.dataset("/labels", {2}, type, type, "catdog");
    H5Tclose(type);
  }
  const h5::File file = h5::File::open(folder.file("a.h5"));
  check_holds(thrown([&] {
                read_labels(file.dataset("/labels"), {2, 4, 4});
              }),
              {"/labels", "string of 3 bytes"});
}

TEST_CASE("layouts follow the configuration, the file's attribute, or the shape") {
  const auto layout = [](std::vector<int64_t> shape, const std::string& configured = "auto",
                         const std::string& attribute = "") {
    return image_layout(shape, configured, attribute, "a.h5: /images");
  };
  CHECK(layout({100, 20, 30}) == ImageLayout{"NHW", 100, 1, 20, 30});
  CHECK(layout({100, 20, 30, 3}) == ImageLayout{"NHWC", 100, 3, 20, 30});
  CHECK(layout({100, 3, 20, 30}) == ImageLayout{"NCHW", 100, 3, 20, 30});
  CHECK(layout({100, 1, 20, 30}) == ImageLayout{"NCHW", 100, 1, 20, 30});
  CHECK(layout({100, 20, 30, 1}) == ImageLayout{"NHWC", 100, 1, 20, 30});
  // Ambiguous without a declaration, and each declaration is honoured.
  CHECK(layout({100, 3, 32, 3}, "NCHW") == ImageLayout{"NCHW", 100, 3, 32, 3});
  CHECK(layout({100, 3, 32, 3}, "auto", "NHWC") == ImageLayout{"NHWC", 100, 3, 3, 32});
  CHECK(layout({100, 20, 30, 3}, "NCHW", "NHWC") == ImageLayout{"NCHW", 100, 20, 30, 3});
  CHECK(layout({100, 12, 30, 7}, "auto", "NCHW") == ImageLayout{"NCHW", 100, 12, 30, 7});
}

TEST_CASE("ambiguous and impossible layouts are refused, with the shape and the readings") {
  const auto refused = [](std::vector<int64_t> shape, const std::string& configured = "auto",
                          const std::string& attribute = "") {
    return thrown([&] { image_layout(shape, configured, attribute, "a.h5: /images"); });
  };
  check_holds(refused({100, 3, 32, 3}),
              {"[100, 3, 32, 3]", "NCHW: 100 images of 32 rows × 3 columns", "NHWC", "data.layout"});
  check_holds(refused({100, 20, 30, 12}), {"[100, 20, 30, 12]", "NCHW", "NHWC"});
  check_holds(refused({100, 20}), {"[100, 20]", "[N, H, W]"});
  check_holds(refused({100, 20, 30}, "NHWC"), {"NHWC", "[100, 20, 30]"});
  check_holds(refused({100, 20, 30, 3}, "auto", "NHW"), {"attribute", "[100, 20, 30, 3]"});
  check_holds(refused({100, 20, 30}, "auto", "HWN"), {"HWN", "NHW"});
  check_holds(refused({100, 0, 30}), {"empty"});
}

TEST_CASE("splits are found, and the root may be one") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    writer.bytes<uint8_t>("/train/images", {2, 2, 2}, std::vector<uint8_t>(8, 0));
    writer.labels("/train/labels", {0, 1});
    writer.bytes<uint8_t>("/test/images", {2, 2, 2}, std::vector<uint8_t>(8, 0));
    writer.labels("/test/labels", {0, 4});
    writer.bytes<uint8_t>("/images", {1, 2, 2}, std::vector<uint8_t>(4, 0));
    writer.labels("/labels", {2});
  }
  const h5::File file = h5::File::open(folder.file("a.h5"));
  CHECK(split_names(file) == std::vector<std::string>{"/", "test", "train"});
  CHECK(open_split(file, "train", "auto").labels == std::vector<int64_t>{0, 1});
  CHECK(open_split(file, "/", "auto").labels == std::vector<int64_t>{2});
  // A class that only the test split has counts for all.
  CHECK(count_classes(file, {}) == 5);
  CHECK(count_classes(file, {.class_names = {"a", "b", "c"}}) == 3);
}
