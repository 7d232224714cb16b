#include "lockstep/data/transforms.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lockstep/core/error.h"
#include "lockstep/data/mix.h"
#include "lockstep/data/resample.h"

// The loops below are the hot ones of this library: vectorised in full, which -O2 alone does not do.
#pragma GCC optimize("O3")

namespace lockstep {
namespace {

// Stored values are not aligned, so they are copied out; compilers make plain vector loads of this.
template <class Pixel>
Pixel load(const std::byte* from, int64_t index) {
  Pixel value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(Pixel)), sizeof(Pixel));
  return value;
}

// out = in * gain + offset, elementwise.
template <class Pixel, class Number>
void normalise(const std::byte* in, const Number* gain, const Number* offset, Number* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Number>(load<Pixel>(in, i)) * gain[i] + offset[i];
}

template <class Number>
bool all_finite(const Number* values, int64_t count) {
  int bad = 0;
  for (int64_t i = 0; i < count; ++i) bad |= !(std::abs(values[i]) <= std::numeric_limits<Number>::max());
  return bad == 0;
}

// Torchvision's RandomResizedCrop: ten tries, then the largest centred part of an allowed ratio.
void draw_part(Augmentation& drawn, int64_t height, int64_t width, double least_area, KeyedRandom& random) {
  const auto area = static_cast<double>(height * width);
  const double least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (least_area + (1 - least_area) * random.uniform());
    const double ratio =
        std::exp(std::log(least_ratio) + (std::log(most_ratio) - std::log(least_ratio)) * random.uniform());
    const auto w = static_cast<int64_t>(std::llround(std::sqrt(target * ratio)));
    const auto h = static_cast<int64_t>(std::llround(std::sqrt(target / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    drawn.height = h;
    drawn.width = w;
    drawn.top = random.between(0, height - h);
    drawn.left = random.between(0, width - w);
    return;
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < least_ratio)
    drawn.height =
        std::min(height, static_cast<int64_t>(std::llround(static_cast<double>(width) / least_ratio)));
  if (ratio > most_ratio)
    drawn.width =
        std::min(width, static_cast<int64_t>(std::llround(static_cast<double>(height) * most_ratio)));
  drawn.top = (height - drawn.height) / 2;
  drawn.left = (width - drawn.width) / 2;
}

template <class Number>
struct Rows {
  std::vector<Number> resized;       // one row after resizing
  std::vector<Number> stretched[2];  // stored rows, stretched horizontally
  int64_t stretched_row[2] = {-1, -1};
  std::vector<Number> finished;  // one row after normalising, before it is stored
  Taps<Number> taps_x, taps_y;
};

}  // namespace

struct ImageTransform::Scratch {
  Rows<float> single;
  Rows<double> twice;
  template <class Number>
  Rows<Number>& rows() {
    if constexpr (std::is_same_v<Number, double>) {
      return twice;
    } else {
      return single;
    }
  }
};

class ImageTransform::Kernel {
 public:
  virtual ~Kernel() = default;
  virtual bool run(const std::byte* stored, void* out, const Augmentation& drawn, Scratch& scratch) const = 0;
};

namespace {

// A stored image is a stack of planes of interleaved rows: NCHW has C planes of 1 value a pixel, NHWC one
// plane of C.
template <class Base, class Scratch, class Pixel, class Number, class Out>
class FusedKernel : public Base {
 public:
  FusedKernel(const TransformSpec& spec, int64_t height, int64_t width)
      : layout_(spec.layout), height_(height), width_(width) {
    const int64_t channels = layout_.channels;
    planes_ = layout_.interleaved() ? 1 : channels;
    group_ = layout_.interleaved() ? channels : 1;
    same_order_ = channels == 1 || layout_.interleaved() == spec.channels_last;
    channels_last_ = spec.channels_last;
    // Gain and offset as rows of pixels, so that one plain loop does any number of channels.
    for (int64_t plane = 0; plane < planes_; ++plane) {
      for (int64_t i = 0; i < width_ * group_; ++i) {
        const auto channel = static_cast<size_t>(layout_.interleaved() ? i % group_ : plane);
        gain_.push_back(static_cast<Number>(1 / (spec.divisor * spec.std[channel])));
        offset_.push_back(static_cast<Number>(-spec.mean[channel] / spec.std[channel]));
      }
    }
  }

  bool run(const std::byte* stored, void* out, const Augmentation& drawn, Scratch& scratch) const override {
    Rows<Number>& rows = scratch.template rows<Number>();
    const bool resample = drawn.height != height_ || drawn.width != width_;
    if (resample) {
      rows.taps_y.compute(drawn.height, height_);
      rows.taps_x.compute(drawn.width, width_);
    }
    rows.finished.resize(static_cast<size_t>(width_ * group_));
    const bool direct = same_order_ && !drawn.flip && std::is_same_v<Number, Out>;
    bool finite = true;
    for (int64_t plane = 0; plane < planes_; ++plane) {
      rows.stretched_row[0] = rows.stretched_row[1] = -1;
      for (int64_t y = 0; y < height_; ++y) {
        Number* target = rows.finished.data();
        if constexpr (std::is_same_v<Number, Out>) {
          if (direct) target = static_cast<Out*>(out) + (plane * height_ + y) * width_ * group_;
        }
        const int64_t row = y + drawn.shift_y;
        if (row < 0 || row >= height_) {
          std::copy_n(offset(plane), width_ * group_, target);
        } else if (resample) {
          finish<Number>(reinterpret_cast<const std::byte*>(resized_row(stored, plane, row, drawn, rows)),
                         plane, drawn, target);
        } else {
          finish<Pixel>(stored_at(stored, plane, drawn.top + row, drawn.left), plane, drawn, target);
        }
        if constexpr (!std::is_integral_v<Pixel>) finite = finite && all_finite(target, width_ * group_);
        if (!direct) store(target, static_cast<Out*>(out), plane, y, drawn.flip);
      }
    }
    return finite;
  }

 private:
  const Number* gain(int64_t plane) const { return gain_.data() + plane * width_ * group_; }
  const Number* offset(int64_t plane) const { return offset_.data() + plane * width_ * group_; }
  const std::byte* stored_at(const std::byte* stored, int64_t plane, int64_t y, int64_t x) const {
    return stored +
           ((plane * layout_.height + y) * layout_.width + x) * group_ * static_cast<int64_t>(sizeof(Pixel));
  }

  // Normalises a row into `target`, shifted sideways; black comes in (a stored 0, which the offset alone
  // stands for).
  template <class From>
  void finish(const std::byte* row, int64_t plane, const Augmentation& drawn, Number* target) const {
    const int64_t begin = std::clamp<int64_t>(-drawn.shift_x, 0, width_) * group_;
    const int64_t end = std::clamp<int64_t>(width_ - drawn.shift_x, 0, width_) * group_;
    const std::byte* from = row + (begin + drawn.shift_x * group_) * static_cast<int64_t>(sizeof(From));
    std::copy_n(offset(plane), begin, target);
    if (end > begin)
      normalise<From>(from, gain(plane) + begin, offset(plane) + begin, target + begin, end - begin);
    std::copy_n(offset(plane) + std::max(begin, end), width_ * group_ - std::max(begin, end),
                target + std::max(begin, end));
  }

  // A stored row of the drawn part, stretched to the output's width. The two last ones are kept: neighbours
  // share them.
  const Number* stretched_row(const std::byte* stored, int64_t plane, int64_t y, const Augmentation& drawn,
                              Rows<Number>& rows, int64_t keep) const {
    for (int i = 0; i < 2; ++i) {
      if (rows.stretched_row[i] == y) return rows.stretched[i].data();
    }
    const int slot = rows.stretched_row[0] == keep ? 1 : 0;
    rows.stretched_row[slot] = y;
    std::vector<Number>& result = rows.stretched[slot];
    result.resize(static_cast<size_t>(width_ * group_));
    const std::byte* row = stored_at(stored, plane, drawn.top + y, drawn.left);
    const Taps<Number>& taps = rows.taps_x;
    for (int64_t x = 0; x < width_; ++x) {
      const Number weight = taps.weight[static_cast<size_t>(x)];
      const int64_t low = taps.low[static_cast<size_t>(x)] * group_;
      const int64_t high = taps.high[static_cast<size_t>(x)] * group_;
      for (int64_t k = 0; k < group_; ++k) {
        const auto a = static_cast<Number>(load<Pixel>(row, low + k));
        const auto b = static_cast<Number>(load<Pixel>(row, high + k));
        result[static_cast<size_t>(x * group_ + k)] = a * (1 - weight) + b * weight;
      }
    }
    return result.data();
  }

  const Number* resized_row(const std::byte* stored, int64_t plane, int64_t y, const Augmentation& drawn,
                            Rows<Number>& rows) const {
    const int64_t low = rows.taps_y.low[static_cast<size_t>(y)];
    const int64_t high = rows.taps_y.high[static_cast<size_t>(y)];
    const Number weight = rows.taps_y.weight[static_cast<size_t>(y)];
    const Number* above = stretched_row(stored, plane, low, drawn, rows, high);
    const Number* below = stretched_row(stored, plane, high, drawn, rows, low);
    rows.resized.resize(static_cast<size_t>(width_ * group_));
    Number* result = rows.resized.data();
    for (int64_t i = 0; i < width_ * group_; ++i) result[i] = above[i] * (1 - weight) + below[i] * weight;
    return result;
  }

  void store(const Number* row, Out* out, int64_t plane, int64_t y, bool flip) const {
    const int64_t channels = layout_.channels;
    for (int64_t k = 0; k < group_; ++k) {
      const int64_t channel = layout_.interleaved() ? k : plane;
      Out* target =
          channels_last_ ? out + y * width_ * channels + channel : out + (channel * height_ + y) * width_;
      const int64_t stride = channels_last_ ? channels : 1;
      for (int64_t x = 0; x < width_; ++x) {
        target[x * stride] = static_cast<Out>(row[(flip ? width_ - 1 - x : x) * group_ + k]);
      }
    }
  }

  ImageLayout layout_;
  int64_t height_, width_;  // of the output
  int64_t planes_, group_;  // a pixel has `group_` neighbouring values in each of `planes_` planes
  bool same_order_;         // rows can be written as they are stored
  bool channels_last_;
  std::vector<Number> gain_, offset_;  // [planes][width * group]
};

}  // namespace

template <class Pixel>
void ImageTransform::choose_output() {
  const int64_t h = height(), w = width();
  switch (spec_.dtype) {
    case at::kFloat:
      kernel_ = std::make_unique<FusedKernel<Kernel, Scratch, Pixel, float, float>>(spec_, h, w);
      break;
    case at::kDouble:
      kernel_ = std::make_unique<FusedKernel<Kernel, Scratch, Pixel, double, double>>(spec_, h, w);
      break;
    case at::kHalf:
      kernel_ = std::make_unique<FusedKernel<Kernel, Scratch, Pixel, float, c10::Half>>(spec_, h, w);
      break;
    case at::kBFloat16:
      kernel_ = std::make_unique<FusedKernel<Kernel, Scratch, Pixel, float, c10::BFloat16>>(spec_, h, w);
      break;
    default:
      fail("images can be given as float32, float64, float16 or bfloat16, not as {}",
           c10::toString(spec_.dtype));
  }
}

ImageTransform::ImageTransform(TransformSpec spec) : spec_(std::move(spec)) {
  const auto count = static_cast<size_t>(channels());
  if (spec_.mean.size() == 1) spec_.mean.resize(count, spec_.mean.front());
  if (spec_.std.size() == 1) spec_.std.resize(count, spec_.std.front());
  if (spec_.mean.size() != count || spec_.std.size() != count) {
    refuse(
        "the images have {} channels, but {} means and {} standard deviations are given to normalise them "
        "(data.mean, "
        "data.std); give one for all or one a channel",
        count, spec_.mean.size(), spec_.std.size());
  }
  switch (spec_.pixel) {
    case PixelType::u8:
      choose_output<uint8_t>();
      break;
    case PixelType::i16:
      choose_output<int16_t>();
      break;
    case PixelType::u16:
      choose_output<uint16_t>();
      break;
    case PixelType::f16:
      choose_output<c10::Half>();
      break;
    case PixelType::f32:
      choose_output<float>();
      break;
    case PixelType::f64:
      choose_output<double>();
      break;
  }
}

ImageTransform::~ImageTransform() = default;
ImageTransform::ImageTransform(ImageTransform&&) noexcept = default;

int64_t ImageTransform::height() const { return spec_.resize > 0 ? spec_.resize : spec_.layout.height; }
int64_t ImageTransform::width() const { return spec_.resize > 0 ? spec_.resize : spec_.layout.width; }
int64_t ImageTransform::output_bytes() const {
  return channels() * height() * width() * static_cast<int64_t>(c10::elementSize(spec_.dtype));
}

std::unique_ptr<ImageTransform::Scratch, std::function<void(ImageTransform::Scratch*)>>
ImageTransform::make_scratch() const {
  return {new Scratch(), [](Scratch* scratch) { delete scratch; }};
}

Augmentation ImageTransform::draw(const ReadContext& context, int64_t sample) const {
  Augmentation drawn;
  drawn.height = spec_.layout.height;
  drawn.width = spec_.layout.width;
  if (!context.training) return drawn;
  constexpr uint64_t stream = 0x6175676d656e74;  // apart from the sampler's use of the same seed and epoch
  const uint64_t key = mix64(mix64(context.seed, static_cast<uint64_t>(context.epoch)), stream);
  KeyedRandom random(mix64(key, static_cast<uint64_t>(sample)));
  drawn.flip = random.uniform() < 0.5 && spec_.flip;
  if (spec_.crop_padding > 0) {
    drawn.shift_y = random.between(-spec_.crop_padding, spec_.crop_padding);
    drawn.shift_x = random.between(-spec_.crop_padding, spec_.crop_padding);
  }
  if (spec_.resized_crop > 0) draw_part(drawn, drawn.height, drawn.width, spec_.resized_crop, random);
  return drawn;
}

bool ImageTransform::apply(const std::byte* stored, void* out, const Augmentation& augmentation,
                           Scratch& scratch) const {
  return kernel_->run(stored, out, augmentation, scratch);
}

}  // namespace lockstep
