#pragma once

#include <c10/core/Device.h>
#include <torch/torch.h>

#include <string>

namespace lockstep {

/// `x` [n, C, H, W] with exactly the strides of channels-last, so that no later layer falls back to row-major
/// order. Tensor::contiguous(ChannelsLast) returns 1×1, depthwise and one-channel tensors as they are, since
/// their strides fit both formats, and a convolution then picks row-major. Where the bytes are already in
/// that order only the strides change (one-channel images cost nothing); else it copies. Other dimensions
/// than 4 come back unchanged.
at::Tensor to_channels_last(const at::Tensor& x);

/// Puts every 4-dimensional parameter (convolution weights) of `module` into channels-last, in place: the
/// parameters stay the same objects. Call before the strategy takes the model over. Any precision, any
/// device.
void to_channels_last(torch::nn::Module& module);

/// What `model.channels_last: auto` means: whether the model trains faster in channels-last on this kind of
/// device. Measured for the models of this library; others run row-major.
bool prefers_channels_last(const std::string& model_name, c10::Device device);

}  // namespace lockstep
