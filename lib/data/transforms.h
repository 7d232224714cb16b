#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/image_layout.h"
#include "lockstep/data/image_storage.h"

namespace lockstep {

/// From a stored image to what a model takes.
struct TransformSpec {
  PixelType pixel = PixelType::u8;
  ImageLayout layout;        ///< of the stored images
  int64_t resize = 0;        ///< side in pixels, bilinear; 0 keeps the stored size
  int64_t crop_padding = 0;  ///< training: shift by up to this many pixels, black pixels come in
  bool flip = false;         ///< training: mirror every second image
  double resized_crop = 0;   ///< training: a random part of at least this share of the area, resized; 0: off
  double divisor = 255;      ///< stored values are divided by this,
  std::vector<double> mean, std;      ///< then (value - mean) / std, a channel each
  at::ScalarType dtype = at::kFloat;  ///< float32, float64, float16 or bfloat16
  bool channels_last = false;         ///< order of the output's elements: H, W, C instead of C, H, W
};

/// What chance decides for one sample, drawn from (seed, epoch, sample) alone.
struct Augmentation {
  int64_t top = 0, left = 0, height = 0, width = 0;  ///< part of the stored image that is used
  int64_t shift_y = 0, shift_x = 0;  ///< output pixel (y, x) is resized pixel (y + shift_y, x + shift_x)
  bool flip = false;                 ///< mirrored left-right, last
};

/// One pass from stored bytes to normalised, augmented values. In this order: the part (whole image, or a
/// random resized crop with aspect ratio 3/4 to 4/3 as in Szegedy et al. 2015), bilinear resize (torch's
/// interpolate, align_corners=False, antialias off), shift with black borders, mirror, scale and normalise.
/// No ATen operator and no threads: safe and cheap in loader threads.
class ImageTransform {
 public:
  explicit ImageTransform(TransformSpec spec);
  ~ImageTransform();
  ImageTransform(ImageTransform&&) noexcept;

  const TransformSpec& spec() const { return spec_; }
  int64_t channels() const { return spec_.layout.channels; }
  int64_t height() const;  ///< of the output
  int64_t width() const;
  int64_t output_bytes() const;

  Augmentation draw(const ReadContext& context, int64_t sample) const;

  /// Working memory of one thread, reused from sample to sample.
  struct Scratch;
  std::unique_ptr<Scratch, std::function<void(Scratch*)>> make_scratch() const;

  /// Transforms one image. `stored` need not be aligned; `out` has room for output_bytes(). False: a stored
  /// value was not finite.
  bool apply(const std::byte* stored, void* out, const Augmentation& augmentation, Scratch& scratch) const;

 private:
  class Kernel;
  template <class Pixel>
  void choose_output();
  TransformSpec spec_;
  std::unique_ptr<const Kernel> kernel_;
};

}  // namespace lockstep
