#include "lockstep/comm/ordered_reduce.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "lockstep/core/error.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The loops below are the hot ones of this library: vectorised in full, which -O2 alone does not do.
#pragma GCC optimize("O3")

namespace lockstep {
namespace {

constexpr int64_t block = 2048;  // elements; two float blocks stay in the first-level cache

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {  // unsigned arithmetic: overflow wraps, as MPI_SUM does
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return (a < b || a != a) ? a : b;  // a != a: NaN wins, on either side
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return (a > b || a != a) ? a : b;
  }
};

// The destination may be a source at the same index, which no iteration but its own touches: hence ivdep.
template <class T, class Op>
void reduce_native(T* out, std::span<const void* const> sources, int64_t count, Op op, T divisor) {
  auto source = [&](size_t k) { return static_cast<const T*>(sources[k]); };
  if (sources.size() == 2 && divisor == T(1)) {
    const T* a = source(0);
    const T* b = source(1);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = op(a[i], b[i]);
    return;
  }
  alignas(64) std::array<T, block> sum;
  for (int64_t start = 0; start < count; start += block) {
    int64_t n = std::min(block, count - start);
    std::memcpy(sum.data(), source(0) + start, static_cast<size_t>(n) * sizeof(T));
    for (size_t k = 1; k < sources.size(); ++k) {
      const T* next = source(k) + start;
      for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = op(sum[static_cast<size_t>(i)], next[i]);
    }
    if constexpr (std::is_floating_point_v<T>) {
      if (divisor != T(1)) {
        for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] /= divisor;
      }
    }
    std::memcpy(out + start, sum.data(), static_cast<size_t>(n) * sizeof(T));
  }
}

void widen(const c10::BFloat16* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = static_cast<uint32_t>(in[i].x) << 16;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

void narrow(const float* in, c10::BFloat16* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, in + i, sizeof bits);
    uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    out[i].x = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded);
  }
}

void widen_scalar(const c10::Half* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
}

void narrow_scalar(const float* in, c10::Half* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = c10::Half(in[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void widen_f16c(const c10::Half* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  widen_scalar(in + i, out + i, n - i);
}

__attribute__((target("avx,f16c"))) void narrow_f16c(const float* in, c10::Half* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  narrow_scalar(in + i, out + i, n - i);
}

bool has_f16c() {
  static const bool yes = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return yes;
}
void widen(const c10::Half* in, float* out, int64_t n) {
  has_f16c() ? widen_f16c(in, out, n) : widen_scalar(in, out, n);
}
void narrow(const float* in, c10::Half* out, int64_t n) {
  has_f16c() ? narrow_f16c(in, out, n) : narrow_scalar(in, out, n);
}
#else
void widen(const c10::Half* in, float* out, int64_t n) { widen_scalar(in, out, n); }
void narrow(const float* in, c10::Half* out, int64_t n) { narrow_scalar(in, out, n); }
#endif

template <class T, class Op>
void reduce_widened(T* out, std::span<const void* const> sources, int64_t count, Op op, float divisor) {
  alignas(64) std::array<float, block> sum;
  alignas(64) std::array<float, block> next;
  for (int64_t start = 0; start < count; start += block) {
    int64_t n = std::min(block, count - start);
    widen(static_cast<const T*>(sources[0]) + start, sum.data(), n);
    for (size_t k = 1; k < sources.size(); ++k) {
      widen(static_cast<const T*>(sources[k]) + start, next.data(), n);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) sum[i] = op(sum[i], next[i]);
    }
    if (divisor != 1.0F) {
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) sum[i] /= divisor;
    }
    narrow(sum.data(), out + start, n);
  }
}

template <class T>
void reduce_typed(void* destination, std::span<const void* const> sources, int64_t count,
                  Reduction reduction) {
  auto* out = static_cast<T*>(destination);
  constexpr bool narrow_type = std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>;
  auto run = [&](auto op, int divisor) {
    if constexpr (narrow_type) {
      reduce_widened(out, sources, count, op, static_cast<float>(divisor));
    } else {
      reduce_native(out, sources, count, op, static_cast<T>(divisor));
    }
  };
  switch (reduction) {
    case Reduction::sum:
      return run(Add{}, 1);
    case Reduction::average:
      if constexpr (std::is_integral_v<T>)
        fail("an average of integers is not defined: sum them, or convert them to a floating type");
      return run(Add{}, static_cast<int>(sources.size()));
    case Reduction::product:
      return run(Multiply{}, 1);
    case Reduction::minimum:
      return run(Minimum{}, 1);
    case Reduction::maximum:
      return run(Maximum{}, 1);
  }
}

}  // namespace

bool can_reduce(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble:
    case c10::kFloat:
    case c10::kBFloat16:
    case c10::kHalf:
    case c10::kChar:
    case c10::kByte:
    case c10::kShort:
    case c10::kInt:
    case c10::kLong:
    case c10::kBool:
      return true;
    default:
      return false;
  }
}

void ordered_reduce(void* destination, std::span<const void* const> sources, int64_t count,
                    c10::ScalarType type, Reduction reduction) {
  switch (type) {
    case c10::kDouble:
      return reduce_typed<double>(destination, sources, count, reduction);
    case c10::kFloat:
      return reduce_typed<float>(destination, sources, count, reduction);
    case c10::kBFloat16:
      return reduce_typed<c10::BFloat16>(destination, sources, count, reduction);
    case c10::kHalf:
      return reduce_typed<c10::Half>(destination, sources, count, reduction);
    case c10::kChar:
      return reduce_typed<int8_t>(destination, sources, count, reduction);
    case c10::kByte:
      return reduce_typed<uint8_t>(destination, sources, count, reduction);
    case c10::kShort:
      return reduce_typed<int16_t>(destination, sources, count, reduction);
    case c10::kInt:
      return reduce_typed<int32_t>(destination, sources, count, reduction);
    case c10::kLong:
      return reduce_typed<int64_t>(destination, sources, count, reduction);
    case c10::kBool:
      return reduce_typed<bool>(destination, sources, count, reduction);
    default:
      fail("tensors of type {} cannot be reduced over ranks", c10::toString(type));
  }
}

}  // namespace lockstep
