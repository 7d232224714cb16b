#include "lockstep/models/memory_format.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "lockstep/models/model.h"
#include "models/support.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

bool is_channels_last(const at::Tensor& x) {
  return x.strides() == at::IntArrayRef(c10::get_channels_last_strides_2d(x.sizes()));
}

/// Counts blocks whose input or output does not have the strides of channels-last.
class FormatRunner : public BlockRunner {
 public:
  at::Tensor run(int64_t, torch::nn::Module&, const at::Tensor& x,
                 const std::function<at::Tensor(const at::Tensor&)>& forward) override {
    auto y = forward(x);
    if (!is_channels_last(x) || !is_channels_last(y)) ++row_major;
    return y;
  }
  int row_major = 0;
};

}  // namespace

TEST_CASE("strides are those of channels-last also where they are ambiguous") {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{2, 3, 5, 4},
                                                                             {2, 1, 5, 4},
                                                                             {8, 4, 1, 1},
                                                                             {8, 1, 3, 3},
                                                                             {1, 1, 1, 1},
                                                                             {1, 4, 1, 1},
                                                                             {1, 3, 1, 7}}) {
    CAPTURE(fmt::format("{}", fmt::join(sizes, "x")));
    auto x = torch::randn(sizes);
    auto y = to_channels_last(x);
    CHECK(is_channels_last(y));
    CHECK(at::equal(x, y));
    CHECK(to_channels_last(y).data_ptr() == y.data_ptr());
  }
  auto grey = torch::randn({2, 1, 5, 4});
  REQUIRE_FALSE(is_channels_last(grey.contiguous(at::MemoryFormat::ChannelsLast)));  // the trap this is for
  CHECK(to_channels_last(grey).data_ptr() == grey.data_ptr());                       // and it costs nothing
  auto cut = torch::randn({2, 1, 6, 6}).slice(3, 0, 4);  // not contiguous: has to be copied
  CHECK(is_channels_last(to_channels_last(cut)));
  CHECK(at::equal(to_channels_last(cut), cut));
  auto half = torch::randn({2, 3, 4, 4}, torch::kBFloat16);
  CHECK((to_channels_last(half).scalar_type() == torch::kBFloat16));
  auto matrix = torch::randn({3, 4});
  CHECK(to_channels_last(matrix).is_same(matrix));
}

TEST_CASE("a model stays channels-last from the first block to the last, and computes the same") {
  for (const std::string name : {"small_cnn", "mobilenet_v2", "resnet18"}) {
    CAPTURE(name);
    auto model = build(name, {1, 64, 64, 10});
    model->eval();
    auto x = torch::randn({2, 1, 64, 64});
    auto expected = model->forward(x);
    auto handles = model->parameters();  // as an optimizer would hold them
    to_channels_last(*model);
    auto parameters = model->parameters();
    for (size_t i = 0; i < handles.size(); ++i) {
      CHECK(parameters[i].is_same(handles[i]));
      CHECK(parameters[i].requires_grad());
      if (handles[i].dim() == 4) CHECK(is_channels_last(handles[i]));
    }
    FormatRunner runner;
    model->set_block_runner(&runner);
    auto y = model->forward(to_channels_last(x));
    CHECK(runner.row_major == 0);
    CHECK(at::allclose(y, expected, 1e-4, 1e-4));
    y.sum().backward();
    for (const auto& item : model->named_parameters()) {
      if (item.value().dim() == 4) CHECK(item.value().grad().strides() == item.value().strides());
    }
  }
}

TEST_CASE("auto is decided for the models that were measured") {
  c10::Device cpu(c10::kCPU), gpu(c10::kCUDA, 0);
  CHECK(prefers_channels_last("mobilenet_v2", cpu));
  CHECK(prefers_channels_last("small_cnn", cpu));
  CHECK(prefers_channels_last("resnet18", cpu));
  CHECK_FALSE(prefers_channels_last("resnet50", cpu));
  CHECK_FALSE(prefers_channels_last("vit_tiny", cpu));
  CHECK_FALSE(prefers_channels_last("vit_tiny", gpu));
  CHECK(prefers_channels_last("resnet50", gpu));
  CHECK_FALSE(prefers_channels_last("somebody's own", cpu));
}
