#include "lockstep/data/image_dataset.h"

#include <torch/torch.h>

#include <fstream>

#include "data/hdf5_writer.h"
#include "lockstep/core/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Values 0..99 that differ by sample and place, as every storage type can hold them.
std::vector<double> pattern(int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((i * 37 + i / 11) % 100);
  return values;
}

void write_images(Writer& writer, const std::string& split, const std::vector<hsize_t>& shape, hid_t type,
                  const std::vector<double>& values, const std::string& layout = "",
                  const Storage& storage = {}) {
  writer.dataset("/" + split + "/images", shape, type, H5T_NATIVE_DOUBLE, values.data(), storage);
  if (!layout.empty()) writer.text("/" + split + "/images", "layout", {layout});
}

std::vector<int64_t> cycle(int64_t count, int64_t classes) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(i % classes);
  return labels;
}

ImageDataset open(const std::vector<std::string>& files, const DataConfig& config = {},
                  bool channels_last = false) {
  return ImageDataset(config, files, "train", true, at::kFloat, channels_last);
}

Batch read_all(const ImageDataset& dataset) {
  std::vector<int64_t> all(static_cast<size_t>(dataset.info().size));
  std::iota(all.begin(), all.end(), 0);
  return dataset.read(all, {});
}

std::string refusal(const std::vector<std::string>& files, const DataConfig& config = {}) {
  return thrown([&] { open(files, config); });
}

DataConfig scaled(const std::string& scale) {
  DataConfig config;
  config.scale = scale;
  return config;
}

// n images of 4x4 whose every pixel is the sample's number + base.
void write_numbered(const std::string& path, int64_t n, int64_t base, const Storage& storage = {}) {
  std::vector<double> values(static_cast<size_t>(n * 16));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(static_cast<int64_t>(i / 16) + base);
  Writer writer(path);
  write_images(writer, "train", {static_cast<hsize_t>(n), 4, 4}, H5T_NATIVE_UINT16, values, "", storage);
  writer.labels("/train/labels", cycle(n, 5));
  writer.text("/", "class_names", {"a", "b", "c", "d", "e"});
}

}  // namespace

// BR-037
TEST_CASE("every type of image, label and storage gives the same tensors") {
  const TemporaryFolder folder;
  const std::vector<double> values = pattern(9 * 20);
  const at::Tensor expected =
      ((at::tensor(values, at::kDouble).view({9, 1, 4, 5}) / 255 - 0.5) / 0.5).to(at::kFloat);
  const h5::Handle half = h5::half_float_type();
  const std::vector<hid_t> pixels = {H5T_STD_U8LE, H5T_STD_I16LE,  H5T_STD_I16BE,  H5T_STD_U16LE,
                                     half.get(),   H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE};
  const std::vector<hid_t> label_types = {H5T_STD_U8LE, H5T_STD_I32LE, H5T_STD_I64BE, H5T_STD_U64LE,
                                          H5T_IEEE_F32LE};
  const std::vector<int64_t> labels = cycle(9, 4);
  const std::vector<Storage> storages = {
      {}, {.chunk = {4, 4, 5}, .gzip = 2, .shuffle = true}, {.chunk = {1, 2, 5}}};
  for (const hid_t pixel : pixels) {
    for (const hid_t label : label_types) {
      for (const Storage& storage : storages) {
        {
          Writer writer(folder.file("a.h5"));
          write_images(writer, "train", {9, 4, 5}, pixel, values, "", storage);
          writer.dataset("/train/labels", {9}, label, H5T_NATIVE_INT64, labels.data());
        }
        const ImageDataset dataset = open({folder.file("a.h5")}, scaled("255"));
        const Batch batch = read_all(dataset);
        REQUIRE(at::allclose(batch.input, expected, 1e-6, 1e-6));
        REQUIRE(at::equal(batch.target, at::tensor(at::IntArrayRef(labels), at::kLong)));
        REQUIRE(dataset.info().classes == 4);
      }
    }
  }
}

TEST_CASE("scale: by the integer type, or as told, never by the values") {
  const TemporaryFolder folder;
  const std::vector<double> ones(16, 1);
  const auto first = [&](hid_t type, const std::string& scale) {
    {
      Writer writer(folder.file("a.h5"));
      write_images(writer, "train", {1, 4, 4}, type, ones);
      writer.labels("/train/labels", {0});
    }
    DataConfig config = scaled(scale);
    config.mean = {0};
    config.std = {1};
    return read_all(open({folder.file("a.h5")}, config)).input.flatten()[0].item<float>();
  };
  CHECK(first(H5T_STD_U8LE, "auto") == doctest::Approx(1.0 / 255));
  CHECK(first(H5T_STD_U16LE, "auto") == doctest::Approx(1.0 / 65535));
  CHECK(first(H5T_STD_I16LE, "auto") == doctest::Approx(1.0 / 32767));
  CHECK(first(H5T_IEEE_F32LE, "auto") == 1);
  CHECK(first(H5T_STD_U8LE, "1") == 1);
  CHECK(first(H5T_IEEE_F64LE, "255") == doctest::Approx(1.0 / 255));
}

// BR-038: the images are not square, so that swapped sides cannot hide.
TEST_CASE("each layout gives the same tensor, in either memory format") {
  const TemporaryFolder folder;
  const at::Tensor images = at::tensor(pattern(5 * 3 * 20 * 30), at::kDouble).view({5, 3, 20, 30});
  const auto values = [](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.contiguous();
    return std::vector<double>(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
  };
  const at::Tensor one = images.slice(1, 0, 1);
  struct Case {
    std::vector<hsize_t> shape;
    at::Tensor stored, wanted;
  };
  const std::vector<Case> cases = {{{5, 20, 30}, one, one},
                                   {{5, 20, 30, 1}, one, one},
                                   {{5, 1, 20, 30}, one, one},
                                   {{5, 3, 20, 30}, images, images},
                                   {{5, 20, 30, 3}, images.permute({0, 2, 3, 1}), images}};
  for (const Case& each : cases) {
    for (const bool channels_last : {false, true}) {
      {
        Writer writer(folder.file("a.h5"));
        write_images(writer, "train", each.shape, H5T_NATIVE_UINT8, values(each.stored));
        writer.labels("/train/labels", cycle(5, 2));
      }
      const ImageDataset dataset = open({folder.file("a.h5")}, {}, channels_last);
      const int64_t channels = each.wanted.size(1);
      CHECK(dataset.info().sample_shape == std::vector<int64_t>{channels, 20, 30});
      const at::Tensor input = read_all(dataset).input;
      CHECK(at::allclose(input, ((each.wanted / 255 - 0.5) / 0.5).to(at::kFloat), 1e-6, 1e-6));
      // Strides exactly those of the memory format, also for one channel, where is_contiguous() says yes to
      // both.
      const std::vector<int64_t> strides =
          channels_last ? std::vector<int64_t>{channels * 600, 1, 30 * channels, channels}
                        : std::vector<int64_t>{channels * 600, 600, 30, 1};
      CHECK(input.strides().vec() == strides);
    }
  }
}

TEST_CASE("normalisation: the configuration's, else the file's, else one half") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.h5");
  const auto write = [&](bool with) {
    Writer writer(path);
    write_images(writer, "train", {2, 4, 4}, H5T_NATIVE_UINT8, pattern(32));
    writer.labels("/train/labels", {0, 1});
    if (with) {
      writer.numbers("/", "mean", {0.25});
      writer.numbers("/", "std", {0.125});
    }
  };
  write(false);
  CHECK(open({path}).info().mean == std::vector<double>{0.5});
  write(true);
  CHECK(open({path}).info().mean == std::vector<double>{0.25});
  CHECK(open({path}).info().std == std::vector<double>{0.125});
  DataConfig config;
  config.mean = {0.1};
  config.std = {0.2};
  CHECK(open({path}, config).info().std == std::vector<double>{0.2});
  config.mean = {0.1, 0.2, 0.3};
  config.std = {1, 1, 1};
  check_holds(refusal({path}, config), {"1 channels", "3 means"});
}

TEST_CASE("several files are one dataset, whatever the storage of each") {
  const TemporaryFolder folder;
  write_numbered(folder.file("a.h5"), 7, 0);
  write_numbered(folder.file("b.h5"), 2, 7, {.chunk = {2, 4, 4}, .gzip = 1});
  write_numbered(folder.file("c.h5"), 30, 9, {.chunk = {8, 4, 4}});
  const ImageDataset dataset =
      open({folder.file("a.h5"), folder.file("b.h5"), folder.file("c.h5")}, scaled("1"));
  CHECK(dataset.info().size == 39);
  CHECK(dataset.info().chunk_rows == 8);
  CHECK_FALSE(dataset.mapped());
  const Batch batch = dataset.read(std::vector<int64_t>{38, 0, 8, 6, 7, 9, 20, 38}, {});
  const std::vector<int64_t> wanted = {38, 0, 8, 6, 7, 9, 20, 38};
  for (size_t i = 0; i < wanted.size(); ++i) {
    CHECK((batch.input[static_cast<int64_t>(i)] * 0.5 + 0.5 == static_cast<double>(wanted[i]))
              .all()
              .item<bool>());
  }
  // Labels restart in each file.
  CHECK(batch.target[2].item<int64_t>() == 1);
  CHECK(batch.target[0].item<int64_t>() == 29 % 5);
  check_holds(thrown([&] { dataset.read(std::vector<int64_t>{39}, {}); }), {"39"});
  check_holds(thrown([&] { dataset.read(std::vector<int64_t>{-1}, {}); }), {"-1"});
}

// BR-032: found at the start, whichever file it is.
TEST_CASE("one damaged file of several is named at once") {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const std::string name : {"a.h5", "b.h5", "c.h5", "d.h5"}) {
    files.push_back(folder.file(name));
    write_numbered(files.back(), 200, 0);
  }
  const auto bytes = std::filesystem::file_size(files[2]);
  std::filesystem::resize_file(files[2], bytes / 2);
  check_holds(refusal(files), {"c.h5", "truncated", std::to_string(bytes), std::to_string(bytes / 2)});
  std::filesystem::remove(files[2]);
  check_holds(refusal(files), {"c.h5", "no such file"});
}

TEST_CASE("files that do not agree are refused with both sides") {
  const TemporaryFolder folder;
  write_numbered(folder.file("a.h5"), 7, 0);
  const auto other = [&](std::vector<hsize_t> shape, hid_t type, std::vector<std::string> names) {
    Writer writer(folder.file("b.h5"));
    write_images(writer, "train", shape, type, pattern(4 * 100));
    writer.labels("/train/labels", cycle(static_cast<int64_t>(shape[0]), 2));
    if (!names.empty()) writer.text("/", "class_names", names);
  };
  const std::vector<std::string> files = {folder.file("a.h5"), folder.file("b.h5")};
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  other({4, 5, 4}, H5T_NATIVE_UINT16, names);
  check_holds(refusal(files), {"b.h5", "5×4", "a.h5", "4×4"});
  other({4, 4, 4}, H5T_NATIVE_UINT8, names);
  check_holds(refusal(files), {"uint8", "uint16"});
  other({4, 4, 4}, H5T_NATIVE_UINT16, {"a", "b", "c", "d", "x"});
  check_holds(refusal(files), {"b.h5", "a, b, c, d, x", "a, b, c, d, e"});
  other({4, 4, 4}, H5T_NATIVE_UINT16, names);
  CHECK(refusal(files).empty());
}

TEST_CASE("what cannot be trained on is refused at the start, by name") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.h5");
  const auto write = [&](std::vector<hsize_t> shape, hid_t type, const std::vector<int64_t>& labels,
                         const std::vector<std::string>& names) {
    Writer writer(path);
    write_images(writer, "train", shape, type, pattern(4000));
    writer.labels("/train/labels", labels);
    if (!names.empty()) writer.text("/", "class_names", names);
  };
  write({0, 4, 4}, H5T_NATIVE_UINT8, {}, {});
  check_holds(refusal({path}), {"a.h5", "no samples", "[0, 4, 4]"});
  write({3, 4, 4}, H5T_NATIVE_UINT8, {0, 1, 2}, {"a", "b"});
  check_holds(refusal({path}), {"/train/labels", "sample 2", "2 classes"});
  write({3, 4, 4}, H5T_NATIVE_UINT8, {0, 1, 1'000'000'000'000}, {});
  check_holds(refusal({path}), {"sample 2", "1000000000000"});
  write({3, 4, 4}, H5T_NATIVE_INT64, {0, 1, 1}, {});
  check_holds(refusal({path}), {"/train/images", "int64", "uint8"});
  write({3, 4, 4}, H5T_NATIVE_UINT8, {0, 1}, {});
  check_holds(refusal({path}), {"2 labels", "3 images"});
  write({3, 4, 4}, H5T_NATIVE_UINT8, {0, 1, 1}, {});
  check_holds(thrown([&] { ImageDataset({}, {path}, "trian", false, at::kFloat, false); }),
              {"/trian/images", "did you mean '/train/images'"});
  CHECK_THROWS_AS(ImageDataset({}, {}, "train", false, at::kFloat, false), UsageError);
}

TEST_CASE("a pixel that is not a number is an error with the sample's number") {
  const TemporaryFolder folder;
  for (const Storage& storage : {Storage{}, Storage{.chunk = {64, 4, 4}, .gzip = 1}}) {
    for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F64LE}) {
      std::vector<double> values = pattern(100 * 16);
      values[77 * 16 + 5] = std::nan("");
      {
        Writer writer(folder.file("a.h5"));
        write_images(writer, "train", {100, 4, 4}, type, values, "", storage);
        writer.labels("/train/labels", cycle(100, 3));
      }
      const ImageDataset dataset = open({folder.file("a.h5")}, scaled("255"));
      CHECK(dataset.read(std::vector<int64_t>{76, 78}, {}).size() == 2);
      check_holds(thrown([&] {
                    dataset.read(std::vector<int64_t>{3, 77, 5}, {});
                  }),
                  {"a.h5", "sample 77", "not a finite number"});
    }
  }
}

TEST_CASE("augmentation depends on the sample, not on the batch, and evaluation has none") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    write_images(writer, "train", {40, 12, 12}, H5T_NATIVE_UINT8, pattern(40 * 144));
    writer.labels("/train/labels", cycle(40, 3));
  }
  DataConfig config;
  config.flip = true;
  config.crop_padding = 2;
  config.resized_crop = 0.5;
  config.resize = 16;
  const ImageDataset dataset = open({folder.file("a.h5")}, config);
  CHECK(dataset.info().sample_shape == std::vector<int64_t>{1, 16, 16});
  const ReadContext context{.seed = 4, .epoch = 1, .training = true};
  const at::Tensor together = dataset.read(std::vector<int64_t>{0, 1, 2, 3, 4, 5}, context).input;
  for (int64_t i = 0; i < 6; ++i) {
    CHECK(at::equal(dataset.read(std::vector<int64_t>{9, i}, context).input[1], together[i]));
  }
  const auto other = [&](const ReadContext& with) {
    return dataset.read(std::vector<int64_t>{0, 1, 2, 3, 4, 5}, with).input;
  };
  CHECK_FALSE(at::equal(other({.seed = 4, .epoch = 2, .training = true}), together));
  CHECK_FALSE(at::equal(other({.seed = 5, .epoch = 1, .training = true}), together));
  CHECK(at::equal(other({.seed = 4, .epoch = 1, .training = false}),
                  other({.seed = 9, .epoch = 7, .training = false})));
  // Opened for evaluation, it never augments.
  const ImageDataset evaluation(config, {folder.file("a.h5")}, "train", false, at::kFloat, false);
  CHECK(at::equal(evaluation.read(std::vector<int64_t>{0, 1}, context).input, other({}).slice(0, 0, 2)));
}

// BR-035: each sample's pixels are its number; any mix-up between threads shows.
TEST_CASE("any number of workers reads the right samples from every storage") {
  const TemporaryFolder folder;
  const std::vector<Storage> storages = {{}, {.chunk = {16, 4, 4}, .gzip = 1}, {.chunk = {1, 4, 4}}};
  for (const Storage& storage : storages) {
    write_numbered(folder.file("a.h5"), 300, 0, storage);
    const auto dataset = std::make_shared<ImageDataset>(
        scaled("1"), std::vector<std::string>{folder.file("a.h5")}, "train", true, at::kFloat, true);
    const Sampler sampler({.samples = 300,
                           .global_batch = 20,
                           .seed = 2,
                           .chunk_rows = dataset->info().chunk_rows,
                           .window_chunks = 4});
    std::vector<int64_t> sequence;
    for (const int64_t workers : {0, 1, 4}) {
      Loader loader(
          dataset,
          [&](int64_t k) {
            const int64_t steps = sampler.steps_per_epoch();
            if (k >= 3 * steps) return LoadRequest{};
            return LoadRequest{sampler.micro_batch(k / steps, k % steps, 0, 1, 0, 1), {2, k / steps, true}};
          },
          {.workers = workers, .prefetch = 4});
      std::vector<int64_t> seen;
      int64_t wrong = 0;
      for (Batch batch = loader.next(); batch.size() > 0; batch = loader.next()) {
        const at::Tensor pixels = batch.input * 0.5 + 0.5;
        for (int64_t i = 0; i < batch.size(); ++i) {
          const int64_t index = batch.indices[static_cast<size_t>(i)];
          wrong += !(pixels[i] == static_cast<double>(index)).all().item<bool>();
          wrong += batch.target[i].item<int64_t>() != index % 5;
          seen.push_back(index);
        }
      }
      CHECK(wrong == 0);
      CHECK(seen.size() == 900);
      if (sequence.empty()) sequence = seen;
      CHECK(seen == sequence);
    }
  }
}

// BR-036, the numbers: 4000 images of 32x32x3, gzip, chunks of 500.
TEST_CASE("a shuffled epoch of a compressed file decodes no chunk twice with the default window") {
  const TemporaryFolder folder;
  {
    Writer writer(folder.file("a.h5"));
    const std::vector<uint8_t> values(4000 * 3072, 5);
    writer.bytes<uint8_t>("/train/images", {4000, 32, 32, 3}, values, {.chunk = {500, 32, 32, 3}, .gzip = 1});
    writer.labels("/train/labels", cycle(4000, 10));
  }
  const DataConfig config;
  const ImageDataset dataset = open({folder.file("a.h5")}, config);
  CHECK(dataset.info().chunk_rows == 500);
  for (int rank = 0; rank < 2; ++rank) {
    const ImageDataset mine = open({folder.file("a.h5")}, config);
    const Sampler sampler({.samples = 4000,
                           .global_batch = 128,
                           .seed = 1,
                           .chunk_rows = mine.info().chunk_rows,
                           .window_chunks = config.shuffle_window});
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      mine.read(sampler.micro_batch(0, step, rank, 2, 0, 1), {1, 0, true});
    }
    CHECK(mine.decoded_chunks() == 8);
  }
}

TEST_CASE("the registry opens hdf5_images by name") {
  const TemporaryFolder folder;
  write_numbered(folder.file("a.h5"), 7, 0);
  DatasetRegistry registry("dataset");
  register_datasets(registry);
  const auto dataset =
      registry.get("hdf5_images")({}, {folder.file("a.h5")}, "train", false, at::kDouble, false);
  CHECK(dataset->info().size == 7);
  CHECK(dataset->info().classes == 5);
  CHECK(dataset->info().class_names.at(4) == "e");
  CHECK((dataset->read(std::vector<int64_t>{3}, {}).input.scalar_type() == at::kDouble));
  CHECK_THROWS_AS(registry.get("hdf5_image"), UsageError);
}
