// Samples a second through the whole input path, nothing trained: bench_data_input [FILE [workers [resize]]].
// Without FILE it writes 60,000 images of 28x28. Not a test: ctest does not run it.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "lockstep/data/image_dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"

using namespace lockstep;

namespace {

void write_example(const std::string& path) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t links = H5Pcreate(H5P_LINK_CREATE);
  H5Pset_create_intermediate_group(links, 1);
  const auto write = [&](const char* name, std::vector<hsize_t> shape, const std::vector<uint8_t>& values) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t id = H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, links, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(id, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(id);
    H5Sclose(space);
  };
  std::vector<uint8_t> images(60000 * 784), labels(60000);
  for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<uint8_t>(i * 2654435761u >> 20);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 10);
  write("/train/images", {60000, 28, 28}, images);
  write("/train/labels", {60000}, labels);
  H5Pclose(links);
  H5Fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  std::string path = argc > 1 ? argv[1] : "";
  const bool own = path.empty();
  if (own) {
    path = (std::filesystem::temp_directory_path() / "lockstep-bench-input.h5").string();
    write_example(path);
  }
  DataConfig config;
  config.resize = argc > 3 ? std::atoi(argv[3]) : 0;
  const LoaderOptions options{.workers = argc > 2 ? std::atoi(argv[2]) : 1, .prefetch = 4};
  const auto dataset = open_image_dataset(config, {path}, "train", true, at::kFloat, true);
  SamplerSpec spec{.samples = dataset->info().size, .global_batch = 64, .seed = 1};
  spec.chunk_rows = dataset->info().chunk_rows;
  spec.window_chunks = config.shuffle_window;
  const Sampler sampler(spec);
  std::vector<double> rates;
  for (int64_t epoch = 0; epoch < 7; ++epoch) {
    Loader loader(
        dataset,
        [&](int64_t k) {
          if (k >= sampler.steps_per_epoch()) return LoadRequest{};
          return LoadRequest{sampler.micro_batch(epoch, k, 0, 1, 0, 1), {1, epoch, true}};
        },
        options);
    const auto start = std::chrono::steady_clock::now();
    int64_t samples = 0;
    for (Batch batch = loader.next(); batch.size() > 0; batch = loader.next()) samples += batch.size();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(samples) / taken.count());
  }
  std::sort(rates.begin(), rates.end());
  std::printf("{\"bench\":\"input\",\"workers\":%ld,\"resize\":%ld,\"samples_per_s\":%.0f,\"best\":%.0f}\n",
              options.workers, config.resize, rates[rates.size() / 2], rates.back());
  if (own) std::filesystem::remove(path);
  return 0;
}
