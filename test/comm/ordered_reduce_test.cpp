#include "lockstep/comm/ordered_reduce.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "lockstep/core/error.h"

using namespace lockstep;

namespace {

at::Tensor reduce_of(const std::vector<at::Tensor>& tensors, Reduction reduction) {
  at::Tensor out = at::empty_like(tensors[0]);
  std::vector<const void*> sources;
  for (const auto& tensor : tensors) sources.push_back(tensor.const_data_ptr());
  ordered_reduce(out.mutable_data_ptr(), sources, out.numel(), out.scalar_type(), reduction);
  return out;
}

bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::vector<at::Tensor> random_tensors(int ranks, int64_t n, at::ScalarType type) {
  torch::manual_seed(ranks * 1000 + n);
  std::vector<at::Tensor> all;
  for (int r = 0; r < ranks; ++r) all.push_back((torch::randn({n}) * std::pow(10.0, r - 1)).to(type));
  return all;
}

}  // namespace

TEST_CASE("a sum is taken in the order of the sources, narrow types in float32 with one rounding") {
  for (auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (int ranks : {1, 2, 3, 5}) {
      for (int64_t n : {0, 1, 7, 8, 9, 2047, 2048, 2049, 5000}) {
        CAPTURE(c10::toString(type));
        CAPTURE(ranks);
        CAPTURE(n);
        auto tensors = random_tensors(ranks, n, type);
        bool narrow = type == at::kBFloat16 || type == at::kHalf;
        at::Tensor sum = narrow ? tensors[0].to(at::kFloat) : tensors[0].clone();
        for (int r = 1; r < ranks; ++r) sum = sum + tensors[static_cast<size_t>(r)].to(sum.scalar_type());
        CHECK(bit_equal(reduce_of(tensors, Reduction::sum), sum.to(type)));
        CHECK(bit_equal(reduce_of(tensors, Reduction::average), (sum / ranks).to(type)));
        at::Tensor most = tensors[0];
        at::Tensor least = tensors[0];
        for (const auto& tensor : tensors) {
          most = at::maximum(most, tensor);
          least = at::minimum(least, tensor);
        }
        CHECK(at::equal(reduce_of(tensors, Reduction::maximum), most));
        CHECK(at::equal(reduce_of(tensors, Reduction::minimum), least));
      }
    }
  }
}

TEST_CASE("integers wrap, bools are logic, an average of integers is refused") {
  for (auto type : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong}) {
    CAPTURE(c10::toString(type));
    auto a = at::tensor({100, 3, 127, 0}, at::kLong).to(type);
    auto b = at::tensor({100, 5, 127, 9}, at::kLong).to(type);
    CHECK(at::equal(reduce_of({a, b}, Reduction::sum), a + b));
    CHECK(at::equal(reduce_of({a, b, b}, Reduction::sum), a + b + b));
    CHECK(at::equal(reduce_of({a, b}, Reduction::product), a * b));
    CHECK(at::equal(reduce_of({a, b}, Reduction::maximum), at::maximum(a, b)));
    CHECK(at::equal(reduce_of({a, b, a}, Reduction::minimum), at::minimum(a, b)));
    CHECK_THROWS_AS(reduce_of({a, b}, Reduction::average), Error);
  }
  auto t = at::tensor({1, 1, 0, 0}).to(at::kBool);
  auto f = at::tensor({1, 0, 1, 0}).to(at::kBool);
  CHECK(at::equal(reduce_of({t, f}, Reduction::sum), at::logical_or(t, f)));
  CHECK(at::equal(reduce_of({t, f, f}, Reduction::maximum), at::logical_or(t, f)));
  CHECK(at::equal(reduce_of({t, f}, Reduction::product), at::logical_and(t, f)));
  CHECK(at::equal(reduce_of({t, f}, Reduction::minimum), at::logical_and(t, f)));
  CHECK_THROWS_AS(reduce_of({at::zeros({2}, at::kComplexFloat)}, Reduction::sum), Error);
  CHECK_FALSE(can_reduce(at::kComplexFloat));
}

TEST_CASE("NaN and infinity survive every reduction, wherever they are") {
  double nan = std::numeric_limits<double>::quiet_NaN();
  double inf = std::numeric_limits<double>::infinity();
  for (auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    CAPTURE(c10::toString(type));
    auto good = at::ones({20}, type);
    auto bad = at::full({20}, nan, at::dtype(type));
    for (auto reduction :
         {Reduction::sum, Reduction::average, Reduction::product, Reduction::minimum, Reduction::maximum}) {
      CHECK(reduce_of({good, bad, good}, reduction).isnan().all().item<bool>());
      CHECK(reduce_of({bad, good}, reduction).isnan().all().item<bool>());
      CHECK(reduce_of({good, bad}, reduction).isnan().all().item<bool>());
    }
    CHECK(reduce_of({good, at::full({20}, inf, at::dtype(type))}, Reduction::sum).isinf().all().item<bool>());
  }
  // float16 and bfloat16 overflow to infinity, in rounding
  auto big = at::full({20}, 65504.0, at::dtype(at::kHalf));
  CHECK(reduce_of({big, big}, Reduction::sum).isinf().all().item<bool>());
  CHECK(at::equal(reduce_of({big, big}, Reduction::average), big));  // the sum itself does not round
}

TEST_CASE("the destination may be any of the sources") {
  for (size_t own = 0; own < 3; ++own) {
    auto tensors = random_tensors(3, 5000, at::kFloat);
    auto expected = reduce_of(tensors, Reduction::sum);
    std::vector<const void*> sources;
    for (const auto& tensor : tensors) sources.push_back(tensor.const_data_ptr());
    ordered_reduce(tensors[own].mutable_data_ptr(), sources, 5000, at::kFloat, Reduction::sum);
    CHECK(bit_equal(tensors[own], expected));
  }
}
