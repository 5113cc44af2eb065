#include "clikart/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

namespace clikart {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Iota(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return *Tensor::FromVector<float>(shape, DType::kFloat32, values);
}

template <typename T>
std::vector<T> Values(const Tensor& tensor) {
  const Tensor dense = *tensor.Clone();
  std::vector<T> values(static_cast<size_t>(dense.numel()));
  if (!values.empty()) std::memcpy(values.data(), dense.Pin()->data, values.size() * sizeof(T));
  return values;
}

TEST(TensorTest, EmptyIsContiguousAndAligned) {
  for (int64_t width : {1, 16, 20000, 3 << 20}) {
    const Tensor t = *Tensor::Empty(Shape{2, width}, DType::kFloat32);
    EXPECT_EQ(t.ToString(), "float32[2, " + std::to_string(width) + "]");
    EXPECT_THAT(t.strides(), ElementsAre(width, 1));
    EXPECT_TRUE(t.IsContiguous());
    EXPECT_EQ(t.nbytes(), 8 * width);
    const auto pin = *t.Pin();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pin.data) % 64, 0u);
    std::memset(pin.data, 0xff, static_cast<size_t>(t.nbytes()));
  }
}

TEST(TensorTest, SizesAreChecked) {
  EXPECT_EQ(Tensor::Empty(Shape{2, -1}, DType::kInt8).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Empty(Shape{int64_t{1} << 40, int64_t{1} << 40}, DType::kInt8).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::Empty(Shape{int64_t{1} << 61}, DType::kFloat32).status().code(),
            absl::StatusCode::kInvalidArgument);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators stop the process instead
  EXPECT_EQ(Tensor::Empty(Shape{int64_t{1} << 62}, DType::kInt8).status().code(), absl::StatusCode::kResourceExhausted);
#endif
  // An empty tensor is empty, whatever its other sizes are.
  EXPECT_EQ(Tensor::Empty(Shape{int64_t{1} << 40, int64_t{1} << 40, 0}, DType::kInt8)->numel(), 0);
}

TEST(TensorTest, ZeroDimensionalAndEmpty) {
  const Tensor scalar = *Tensor::FromVector<float>(Shape{}, DType::kFloat32, std::vector<float>{3});
  EXPECT_EQ(scalar.ndim(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.ToString(), "float32[]");
  EXPECT_THAT(Values<float>(scalar), ElementsAre(3));
  const Tensor none = *Tensor::Zeros(Shape{3, 0, 2}, DType::kFloat16);
  EXPECT_TRUE(none.IsContiguous());
  EXPECT_TRUE(Values<uint16_t>(none).empty());
  EXPECT_TRUE(none.To(DType::kFloat32)->has_storage());
  EXPECT_EQ(none.Slice(1, 0, 0)->numel(), 0);
}

TEST(TensorTest, FromVectorTakesMatchingTypes) {
  EXPECT_THAT(Values<int32_t>(*Tensor::FromVector<int32_t>(Shape{2}, DType::kInt32, std::vector<int32_t>{-1, 7})),
              ElementsAre(-1, 7));
  EXPECT_THAT(Values<uint16_t>(*Tensor::FromVector<float>(Shape{2}, DType::kBFloat16, std::vector<float>{1, -2})),
              ElementsAre(0x3f80, 0xc000));
  EXPECT_THAT(Values<uint16_t>(*Tensor::FromVector<uint16_t>(Shape{1}, DType::kFloat16, std::vector<uint16_t>{9})),
              ElementsAre(9));
  EXPECT_FALSE(Tensor::FromVector<float>(Shape{1}, DType::kInt8, std::vector<float>{1}).ok());
  EXPECT_FALSE(Tensor::FromVector<int8_t>(Shape{1}, DType::kUInt8, std::vector<int8_t>{1}).ok());
  EXPECT_FALSE(Tensor::FromVector<float>(Shape{3}, DType::kFloat32, std::vector<float>{1}).ok());
}

TEST(TensorTest, SlicesAreViews) {
  const Tensor t = *Iota({4, 6}).Slice(0, 1, 2);
  EXPECT_THAT(Values<float>(*t.Slice(1, 5, 3, -2)), ElementsAre(11, 9, 7, 17, 15, 13));
  EXPECT_THAT(Values<float>(*t.Select(-1, 2)), ElementsAre(8, 14));
  EXPECT_THAT(t.Select(0, 1)->shape(), ElementsAre(6));
  EXPECT_EQ(t.storage(), t.Slice(1, 0, 3)->storage());
  EXPECT_FALSE(t.Slice(1, 0, 3)->IsContiguous());
  EXPECT_TRUE(t.IsContiguous());
  EXPECT_FALSE(t.Slice(1, 0, 7).ok());
  EXPECT_FALSE(t.Slice(1, 3, 5, -1).ok());
  EXPECT_FALSE(t.Slice(1, -1, 1).ok());
  EXPECT_FALSE(t.Slice(1, 0, 2, 0).ok());
  EXPECT_FALSE(t.Slice(2, 0, 1).ok());
  EXPECT_FALSE(t.Slice(1, 0, 3, std::numeric_limits<int64_t>::max()).ok());
  EXPECT_THAT(Values<float>(*t.Slice(1, 4, 1, std::numeric_limits<int64_t>::max())), ElementsAre(10, 16));
  EXPECT_EQ(t.Slice(1, 6, 0)->numel(), 0);
}

TEST(TensorTest, ReshapeNeedsContiguousAndEqualSize) {
  const Tensor t = Iota({2, 3});
  EXPECT_THAT(t.Reshape(Shape{3, 2})->strides(), ElementsAre(2, 1));
  EXPECT_FALSE(t.Reshape(Shape{4}).ok());
  EXPECT_THAT(t.Slice(1, 0, 2)->Reshape(Shape{4}).status().message(), HasSubstr("not contiguous"));
}

TEST(TensorTest, AnyStridesAndAlignmentCopy) {
  const Tensor base = Iota({3, 4, 5});
  const auto view = [&](Shape shape, Shape strides, int64_t offset) {
    return Tensor::View(base.storage(), shape, strides, DType::kFloat32, offset * 4);
  };
  EXPECT_THAT(Values<float>(view({2, 2}, {-20, -1}, 45)), ElementsAre(45, 44, 25, 24));
  EXPECT_THAT(Values<float>(view({2, 3}, {0, 1}, 7)), ElementsAre(7, 8, 9, 7, 8, 9));  // broadcast
  EXPECT_THAT(Values<float>(view({2, 3}, {1, 1}, 0)), ElementsAre(0, 1, 2, 1, 2, 3));  // overlapping
  EXPECT_THAT(Values<float>(view({5, 2}, {1, 5}, 0)), ElementsAre(0, 5, 1, 6, 2, 7, 3, 8, 4, 9));
  // Misaligned: the bytes of three floats from address 1 on.
  const Tensor bytes = *Tensor::Empty(Shape{17}, DType::kUInt8);
  const std::vector<float> three = {1.5f, -2, 3};
  std::memcpy(bytes.Pin()->data + 1, three.data(), 12);
  const Tensor odd = Tensor::View(bytes.storage(), {3}, {1}, DType::kFloat32, 1);
  EXPECT_THAT(Values<float>(odd), ElementsAre(1.5f, -2, 3));
  EXPECT_THAT(Values<uint16_t>(*odd.To(DType::kBFloat16)), ElementsAre(0x3fc0, 0xc000, 0x4040));
  const Tensor backward = Tensor::View(bytes.storage(), {3}, {-1}, DType::kFloat32, 9);
  EXPECT_THAT(Values<float>(*backward.Contiguous()), ElementsAre(3, -2, 1.5f));
}

TEST(TensorTest, ConvertsToNearestEvenAndKeepsNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float sneaky = std::bit_cast<float>(0x7f800001u);  // its payload would round away
  const std::vector<float> values = {1.00390625f, 1.01171875f, 65520.0f, 0x1p-24f, 0x1p-25f, -0.0f, nan, sneaky};
  const Tensor t = *Tensor::FromVector<float>(Shape{8}, DType::kFloat32, values);
  const std::vector<uint16_t> half = Values<uint16_t>(*t.To(DType::kFloat16));
  EXPECT_THAT(std::vector<uint16_t>(half.begin(), half.begin() + 6), ElementsAre(0x3c04, 0x3c0c, 0x7c00, 1, 0, 0x8000));
  const std::vector<uint16_t> brain = Values<uint16_t>(*t.To(DType::kBFloat16));
  EXPECT_EQ(brain[0], 0x3f80);  // a tie, to even
  EXPECT_EQ(brain[1], 0x3f82);
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const std::vector<float> back = Values<float>(*t.To(type)->To(DType::kFloat32));
    EXPECT_TRUE(std::isnan(back[6]) && std::isnan(back[7]));
    EXPECT_TRUE(std::signbit(back[5]));
  }
  EXPECT_THAT(Values<uint16_t>(*t.To(DType::kBFloat16)->To(DType::kFloat16))[0], 0x3c00);
  EXPECT_EQ(t.To(DType::kFloat32)->storage(), t.storage());
  EXPECT_THAT(t.To(DType::kInt32).status().message(), HasSubstr("only float types convert"));
}

TEST(TensorTest, EveryHalfAndBFloat16SurvivesWidening) {
  std::vector<uint16_t> bits(65536);
  std::iota(bits.begin(), bits.end(), 0);
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor t = *Tensor::FromVector<uint16_t>(Shape{65536}, type, bits);
    const std::vector<uint16_t> back = Values<uint16_t>(*t.To(DType::kFloat32)->To(type));
    const uint16_t infinity = type == DType::kFloat16 ? 0x7c00 : 0x7f80;
    for (size_t i = 0; i < bits.size(); ++i) {
      if ((bits[i] & 0x7fff) <= infinity) {
        ASSERT_EQ(back[i], bits[i]);
      } else {
        ASSERT_GT(back[i] & 0x7fff, infinity);
      }
    }
  }
}

TEST(TensorTest, ReleaseMakesEveryViewStorageFree) {
  const Tensor t = Iota({4, 4});
  const Tensor view = *t.Slice(0, 1, 2);
  const auto exported = *view.Pin();
  t.storage()->Release();
  EXPECT_FALSE(t.has_storage());
  EXPECT_FALSE(view.has_storage());
  EXPECT_THAT(view.Pin().status().message(), HasSubstr("storage-free"));
  EXPECT_EQ(view.Clone().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Concat(std::vector<Tensor>{t, t}, 0).ok());
  float first;
  std::memcpy(&first, exported.data, sizeof first);
  EXPECT_EQ(first, 4.0f);
  t.storage()->Release();
  EXPECT_FALSE(Tensor().has_storage());
  EXPECT_FALSE(Tensor().Pin().ok());
}

TEST(TensorTest, ReleaseFreesTheMemory) {
  auto owner = std::make_shared<int>(1);
  std::weak_ptr<int> watch = owner;
  std::byte bytes[4];
  const Tensor t =
      Tensor::View(std::make_shared<Storage>(Memory::Wrap(bytes, 4, std::move(owner))), {4}, {1}, DType::kInt8, 0);
  EXPECT_EQ(t.Pin()->data, bytes);
  EXPECT_FALSE(watch.expired());
  t.storage()->Release();
  EXPECT_TRUE(watch.expired());
}

TEST(TensorTest, PinRacesWithRelease) {
  for (int round = 0; round < 200; ++round) {
    const Tensor t = *Tensor::FromVector<int32_t>(Shape{1}, DType::kInt32, std::vector<int32_t>{round});
    std::weak_ptr<Memory> watch = t.storage()->memory();
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&] {
        for (int j = 0; j < 50; ++j) {
          if (const auto pin = t.Pin(); pin.ok()) {
            int32_t value;
            std::memcpy(&value, pin->data, sizeof value);
            EXPECT_EQ(value, round);
          }
        }
      });
    }
    t.storage()->Release();
    for (std::thread& reader : readers) reader.join();
    EXPECT_TRUE(watch.expired());
  }
}

TEST(TensorTest, SplitAndConcat) {
  const Tensor t = Iota({2, 5});
  const auto parts = *SplitWithSizes(t, Shape{2, 0, 3});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].storage(), t.storage());
  EXPECT_THAT(Values<float>(parts[2]), ElementsAre(2, 3, 4, 7, 8, 9));
  EXPECT_EQ(Values<float>(*Concat(parts)), Values<float>(t));
  EXPECT_THAT(Values<float>(*Concat(std::vector<Tensor>{parts[0], parts[0]}, 0)), ElementsAre(0, 1, 5, 6, 0, 1, 5, 6));
  EXPECT_THAT(SplitWithSizes(t, Shape{2, 2}).status().message(), HasSubstr("[2, 2] do not add up to 5"));
  EXPECT_FALSE(SplitWithSizes(t, Shape{-1, 6}).ok());
  EXPECT_FALSE(SplitWithSizes(t, Shape{2}, 2).ok());
  EXPECT_FALSE(Concat(parts, 0).ok());
  EXPECT_FALSE(Concat({}).ok());
  EXPECT_FALSE(Concat(std::vector<Tensor>{t, *t.To(DType::kFloat16)}).ok());
  EXPECT_FALSE(Concat(std::vector<Tensor>{t, *t.Select(0, 0)}).ok());
}

}  // namespace
}  // namespace clikart
