// What the layers' tests share: values, reference sums, bit comparisons.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "clikart/nn.h"
#include "gtest/gtest.h"
#include "tensor_copy.h"

namespace clikart::testing {

template <typename T>
T Value(absl::StatusOr<T> result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : T();
}

inline Tensor Floats(const Shape& shape, const std::vector<float>& values, DType dtype = DType::kFloat32) {
  return Value(Tensor::FromVector<float>(shape, dtype, values));
}

inline Tensor Random(const Shape& shape, unsigned seed, DType dtype = DType::kFloat32) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return Floats(shape, values, dtype);
}

inline Tensor Bytes(const Shape& shape, unsigned seed, DType dtype = DType::kUInt8, int limit = 256) {
  std::mt19937 generator(seed);
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<uint8_t> values(static_cast<size_t>(count));
  for (uint8_t& value : values) value = static_cast<uint8_t>(generator() % static_cast<unsigned>(limit));
  if (dtype == DType::kUInt8) return Value(Tensor::FromVector<uint8_t>(shape, dtype, values));
  const std::vector<int8_t> integers(values.begin(), values.end());
  return Value(Tensor::FromVector<int8_t>(shape, dtype, integers));
}

// The elements as f32, in order.
inline std::vector<float> ToFloats(const Tensor& tensor) {
  const Tensor dense = Value(tensor.Contiguous());
  std::vector<float> values(static_cast<size_t>(dense.numel()));
  const Tensor::Pinned pinned = Value(dense.Pin());
  ConvertFloats(pinned.data, dense.dtype(), reinterpret_cast<std::byte*>(values.data()), DType::kFloat32,
                dense.numel());
  return values;
}

// Bit for bit; all NaNs are equal.
inline ::testing::AssertionResult SameBits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure() << a.ToString() << " against " << b.ToString();
  }
  const Tensor left = Value(a.Contiguous()), right = Value(b.Contiguous());
  const Tensor::Pinned x = Value(left.Pin()), y = Value(right.Pin());
  if (left.nbytes() == 0 || std::memcmp(x.data, y.data, static_cast<size_t>(left.nbytes())) == 0) {
    return ::testing::AssertionSuccess();
  }
  if (!ir::IsFloat(a.dtype())) return ::testing::AssertionFailure() << "integers differ";
  const std::vector<float> u = ToFloats(left), v = ToFloats(right);
  for (size_t i = 0; i < u.size(); ++i) {
    if (std::isnan(u[i]) && std::isnan(v[i])) continue;
    if (std::memcmp(&u[i], &v[i], sizeof u[i]) != 0) {
      return ::testing::AssertionFailure() << "element " << i << ": " << u[i] << " against " << v[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline std::shared_ptr<Linear> MakeLinear(int64_t in, int64_t out, unsigned seed, LinearOptions options = {}) {
  std::shared_ptr<Linear> layer = Value(Linear::Create(in, out, options));
  StateDict state = {{"weight", Random({out, in}, seed, options.dtype)}};
  if (options.bias) state.emplace_back("bias", Random({out}, seed + 1000));
  EXPECT_TRUE(layer->Bind(state).ok());
  return layer;
}

// One chain a sum, as spec/numerics.md rule 1 has it, in f32 and without the activation.
inline std::vector<float> ReferenceRows(const std::vector<float>& x, const std::vector<float>& w,
                                        const std::vector<float>& bias, int64_t m, int64_t n, int64_t k) {
  std::vector<float> y(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t t = 0; t < k; ++t) {
        sum = std::fma(x[static_cast<size_t>(i * k + t)], w[static_cast<size_t>(j * k + t)], sum);
      }
      y[static_cast<size_t>(i * n + j)] = bias.empty() ? sum : sum + bias[static_cast<size_t>(j)];
    }
  }
  return y;
}

}  // namespace clikart::testing
