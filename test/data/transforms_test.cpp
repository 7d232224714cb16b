#include "lockstep/data/transforms.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "lockstep/core/error.h"

using namespace lockstep;

namespace {

const std::vector<double> means = {0.2, 0.5, 0.7}, stds = {0.25, 0.5, 0.3};

// A random image [C, H, W] as its values are stored.
at::Tensor random_image(int64_t channels, int64_t height, int64_t width, at::ScalarType type = at::kByte) {
  return at::randint(0, 256, {channels, height, width}, at::kFloat).to(type);
}

TransformSpec spec_of(const at::Tensor& image, const std::string& layout, PixelType pixel = PixelType::u8) {
  TransformSpec spec;
  spec.pixel = pixel;
  spec.layout = {layout, 1, image.size(0), image.size(1), image.size(2)};
  spec.mean.assign(means.begin(), means.begin() + image.size(0));
  spec.std.assign(stds.begin(), stds.begin() + image.size(0));
  return spec;
}

// The library's result as [C, H, W]; `image` is [C, H, W] and is stored in the spec's layout, one byte off
// alignment.
at::Tensor transformed(const ImageTransform& transform, const at::Tensor& image,
                       const Augmentation& augmentation, bool* finite = nullptr) {
  const TransformSpec& spec = transform.spec();
  const at::Tensor stored = (spec.layout.interleaved() ? image.permute({1, 2, 0}) : image).contiguous();
  std::vector<std::byte> bytes(stored.nbytes() + 1);
  std::memcpy(bytes.data() + 1, stored.const_data_ptr(), stored.nbytes());
  at::Tensor out = at::empty(
      {1, transform.channels(), transform.height(), transform.width()}, at::TensorOptions(spec.dtype),
      spec.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  REQUIRE(static_cast<int64_t>(out.nbytes()) == transform.output_bytes());
  const auto scratch = transform.make_scratch();
  const bool ok = transform.apply(bytes.data() + 1, out.mutable_data_ptr(), augmentation, *scratch);
  if (finite != nullptr) *finite = ok;
  return out[0];
}

Augmentation whole(const at::Tensor& image) {
  return {.top = 0, .left = 0, .height = image.size(1), .width = image.size(2)};
}

// The same by ATen, in float64 or in the compute type: part, resize, shift with black, flip, scale and
// normalise.
at::Tensor expected(const TransformSpec& spec, const at::Tensor& image, const Augmentation& a, int64_t height,
                    int64_t width, at::ScalarType compute) {
  at::Tensor x = image.to(compute).unsqueeze(0);
  x = x.slice(2, a.top, a.top + a.height).slice(3, a.left, a.left + a.width);
  if (x.size(2) != height || x.size(3) != width) x = at::upsample_bilinear2d(x, {height, width}, false);
  const int64_t pad = std::max(std::abs(a.shift_y), std::abs(a.shift_x));
  if (pad > 0) {
    x = at::constant_pad_nd(x, {pad, pad, pad, pad});
    x = x.slice(2, pad + a.shift_y, pad + a.shift_y + height)
            .slice(3, pad + a.shift_x, pad + a.shift_x + width);
  }
  if (a.flip) x = x.flip({3});
  const at::Tensor mean = at::tensor(spec.mean, at::kDouble).view({1, -1, 1, 1}).to(compute);
  const at::Tensor deviation = at::tensor(spec.std, at::kDouble).view({1, -1, 1, 1}).to(compute);
  return ((x / spec.divisor - mean) / deviation)[0];
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace

TEST_CASE("scaling and normalising agree with ATen for every layout, order and element type") {
  const std::map<at::ScalarType, double> tolerance = {
      {at::kFloat, 1e-6}, {at::kDouble, 1e-14}, {at::kHalf, 2e-3}, {at::kBFloat16, 2e-2}};
  for (const int64_t channels : {1, 3}) {
    const at::Tensor image = random_image(channels, 20, 30);
    for (const std::string layout : {"NHWC", "NCHW"}) {
      for (const bool channels_last : {false, true}) {
        for (const auto& [dtype, limit] : tolerance) {
          TransformSpec spec = spec_of(image, layout);
          spec.dtype = dtype;
          spec.channels_last = channels_last;
          const ImageTransform transform(spec);
          const at::Tensor result = transformed(transform, image, whole(image));
          CAPTURE(layout);
          CHECK((result.scalar_type() == dtype));
          CHECK(difference(result, expected(spec, image, whole(image), 20, 30, at::kDouble)) < limit);
        }
      }
    }
  }
}

TEST_CASE("every stored type gives the same values") {
  const std::vector<std::pair<PixelType, at::ScalarType>> types = {
      {PixelType::u8, at::kByte},  {PixelType::i16, at::kShort}, {PixelType::u16, at::kUInt16},
      {PixelType::f16, at::kHalf}, {PixelType::f32, at::kFloat}, {PixelType::f64, at::kDouble}};
  const at::Tensor image = random_image(3, 7, 5);
  for (const auto& [pixel, stored] : types) {
    for (const std::string layout : {"NHWC", "NCHW"}) {
      TransformSpec spec = spec_of(image, layout, pixel);
      const ImageTransform transform(spec);
      INFO(pixel_name(pixel), " ", layout);
      CHECK(difference(transformed(transform, image.to(stored), whole(image)),
                       expected(spec, image, whole(image), 7, 5, at::kDouble)) < 1e-6);
    }
  }
  TransformSpec spec = spec_of(image, "NCHW", PixelType::i16);
  const at::Tensor negative = image.to(at::kShort) - 200;
  CHECK(difference(transformed(ImageTransform(spec), negative, whole(image)),
                   expected(spec, negative, whole(image), 7, 5, at::kDouble)) < 1e-6);
}

TEST_CASE("resizing is torch's bilinear interpolation") {
  for (const auto& [height, width, side] : std::vector<std::array<int64_t, 3>>{{28, 28, 64},
                                                                               {64, 64, 28},
                                                                               {20, 30, 48},
                                                                               {48, 20, 20},
                                                                               {33, 57, 32},
                                                                               {1, 1, 4},
                                                                               {5, 3, 1},
                                                                               {224, 180, 96}}) {
    for (const std::string layout : {"NHWC", "NCHW"}) {
      const at::Tensor image = random_image(3, height, width);
      TransformSpec spec = spec_of(image, layout);
      spec.resize = side;
      CAPTURE(height);
      CAPTURE(side);
      CHECK(difference(transformed(ImageTransform(spec), image, whole(image)),
                       expected(spec, image, whole(image), side, side, at::kFloat)) < 1e-5);
      spec.dtype = at::kDouble;
      CHECK(difference(transformed(ImageTransform(spec), image, whole(image)),
                       expected(spec, image, whole(image), side, side, at::kDouble)) < 1e-12);
    }
  }
}

TEST_CASE("shifting, mirroring, and parts agree with ATen, alone and together") {
  const at::Tensor image = random_image(3, 9, 12);
  for (const std::string layout : {"NHWC", "NCHW"}) {
    for (const bool channels_last : {false, true}) {
      TransformSpec spec = spec_of(image, layout);
      spec.channels_last = channels_last;
      const ImageTransform keep(spec);
      spec.resize = 10;
      const ImageTransform resized(spec);
      for (const bool flip : {false, true}) {
        for (const int64_t shift_y : {-11, -9, -2, 0, 1, 9}) {
          for (const int64_t shift_x : {-13, -12, -3, 0, 2, 12, 14}) {
            Augmentation a = whole(image);
            a.shift_y = shift_y;
            a.shift_x = shift_x;
            a.flip = flip;
            CHECK(difference(transformed(keep, image, a), expected(spec, image, a, 9, 12, at::kDouble)) <
                  1e-6);
            CHECK(difference(transformed(resized, image, a), expected(spec, image, a, 10, 10, at::kFloat)) <
                  1e-5);
            a.top = 2;
            a.left = 5;
            a.height = 6;
            a.width = 7;
            CHECK(difference(transformed(keep, image, a), expected(spec, image, a, 9, 12, at::kFloat)) <
                  1e-5);
            CHECK(difference(transformed(resized, image, a), expected(spec, image, a, 10, 10, at::kFloat)) <
                  1e-5);
          }
        }
      }
    }
  }
}

TEST_CASE("a part as large as the output is cut out, not resampled") {
  const at::Tensor image = random_image(1, 16, 16);
  TransformSpec spec = spec_of(image, "NHW");
  spec.resize = 8;
  const Augmentation a{.top = 3, .left = 5, .height = 8, .width = 8};
  CHECK(difference(transformed(ImageTransform(spec), image, a), expected(spec, image, a, 8, 8, at::kDouble)) <
        1e-6);
}

TEST_CASE("what is drawn depends on seed, epoch and sample alone, and only when training") {
  const at::Tensor image = random_image(3, 32, 48);
  TransformSpec spec = spec_of(image, "NCHW");
  spec.crop_padding = 4;
  spec.flip = true;
  const ImageTransform transform(spec);
  const Augmentation still = transform.draw({.seed = 1, .epoch = 2, .training = false}, 7);
  CHECK(still.shift_x == 0);
  CHECK_FALSE(still.flip);
  CHECK(still.height == 32);

  const auto number = [](const Augmentation& a) { return (a.shift_y * 100 + a.shift_x) * 2 + a.flip; };
  std::vector<int64_t> shifts_y(9, 0), shifts_x(9, 0);
  int64_t flips = 0, same_epoch = 0, same_seed = 0, repeated = 0;
  constexpr int64_t samples = 20000;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const Augmentation a = transform.draw({.seed = 1, .epoch = 2, .training = true}, sample);
    REQUIRE(std::abs(a.shift_y) <= 4);
    REQUIRE(std::abs(a.shift_x) <= 4);
    ++shifts_y[static_cast<size_t>(a.shift_y + 4)];
    ++shifts_x[static_cast<size_t>(a.shift_x + 4)];
    flips += a.flip;
    repeated += number(a) == number(transform.draw({.seed = 1, .epoch = 2, .training = true}, sample));
    same_epoch += number(a) == number(transform.draw({.seed = 1, .epoch = 3, .training = true}, sample));
    same_seed += number(a) == number(transform.draw({.seed = 2, .epoch = 2, .training = true}, sample));
  }
  CHECK(repeated == samples);
  CHECK(std::abs(flips - samples / 2) < 300);  // 4 standard deviations are 283
  for (const auto& shifts : {shifts_y, shifts_x}) {
    for (const int64_t count : shifts) CHECK(std::abs(count - samples / 9) < 200);  // 4.5 deviations
  }
  // Other epochs and seeds are as good as independent: 1 of 162 agrees by chance.
  for (const int64_t same : {same_epoch, same_seed}) CHECK(std::abs(same - samples / 162) < 60);
}

TEST_CASE("random parts keep to their area and ratio and lie inside the image") {
  const at::Tensor image = random_image(3, 40, 60);
  TransformSpec spec = spec_of(image, "NCHW");
  spec.resized_crop = 0.25;
  const ImageTransform transform(spec);
  double area_sum = 0;
  std::set<std::pair<int64_t, int64_t>> places;
  for (int64_t sample = 0; sample < 5000; ++sample) {
    const Augmentation a = transform.draw({.seed = 3, .epoch = 0, .training = true}, sample);
    REQUIRE(a.top >= 0);
    REQUIRE(a.left >= 0);
    REQUIRE(a.top + a.height <= 40);
    REQUIRE(a.left + a.width <= 60);
    const double area = static_cast<double>(a.height * a.width) / (40 * 60);
    const double ratio = static_cast<double>(a.width) / static_cast<double>(a.height);
    REQUIRE(area > 0.22);
    REQUIRE(ratio > 0.70);
    REQUIRE(ratio < 1.43);
    area_sum += area;
    places.insert({a.top, a.left});
  }
  CHECK(area_sum / 5000 > 0.4);
  CHECK(area_sum / 5000 < 0.7);
  CHECK(places.size() > 300);
  // An image that no allowed ratio fits: the centred largest part.
  TransformSpec narrow = spec_of(random_image(1, 100, 4), "NHW");
  narrow.resized_crop = 1;
  const Augmentation a = ImageTransform(narrow).draw({.seed = 1, .epoch = 0, .training = true}, 0);
  CHECK(a.width == 4);
  CHECK(a.height == 5);
  CHECK(a.top == 47);
}

TEST_CASE("values that are not finite are noticed wherever they are") {
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const int64_t place : {0, 17, 59}) {
      for (const bool flip : {false, true}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
          at::Tensor image = at::rand({1, 6, 10});
          TransformSpec spec = spec_of(image, "NHW", PixelType::f32);
          spec.dtype = dtype;
          Augmentation a = whole(image);
          a.flip = flip;
          bool finite = false;
          transformed(ImageTransform(spec), image, a, &finite);
          CHECK(finite);
          image.view({-1})[place] = bad;
          transformed(ImageTransform(spec), image, a, &finite);
          CHECK_FALSE(finite);
          spec.resize = 16;
          a = whole(image);
          transformed(ImageTransform(spec), image, a, &finite);
          CHECK_FALSE(finite);
        }
      }
    }
  }
}

TEST_CASE("one mean stands for all channels, a wrong number of them is refused") {
  const at::Tensor image = random_image(3, 4, 4);
  TransformSpec spec = spec_of(image, "NCHW");
  spec.mean = {0.5};
  spec.std = {0.25};
  CHECK(ImageTransform(spec).spec().mean == std::vector<double>{0.5, 0.5, 0.5});
  spec.mean = {0.5, 0.5};
  CHECK_THROWS_AS(ImageTransform{spec}, UsageError);
  spec.mean = {0.5};
  spec.dtype = at::kInt;
  CHECK_THROWS_AS(ImageTransform{spec}, Error);
}
