#pragma once

#include <torch/torch.h>

#include <deque>
#include <memory>
#include <optional>

namespace lockstep {

/// A step's loss on its way to the host. On a CPU it is there at once; on a GPU it is copied to page-locked memory behind the
/// step's work and read one step later, so that logging never makes the host wait for the device.
class DeferredLoss {
 public:
  explicit DeferredLoss(c10::Device device);
  ~DeferredLoss();

  struct Ready {
    int64_t step;
    double value;
  };

  /// Hands over the loss (a scalar) of a step.
  void push(int64_t step, const at::Tensor& loss);
  /// The oldest loss that is due: on a CPU the one just pushed, on a GPU the one before it.
  std::optional<Ready> pop();
  /// The oldest loss still held, waiting for it where needed; for the end of a run.
  std::optional<Ready> flush();

 private:
  struct Entry;
  Ready take();
  c10::Device device_;
  std::deque<std::unique_ptr<Entry>> entries_;
};

}  // namespace lockstep
