#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using testing::Floats;
using ::testing::HasSubstr;
using testing::MakeLinear;
using testing::Random;
using testing::ReferenceRows;
using testing::SameBits;
using testing::ToFloats;
using testing::Value;

TEST(Linear, ServesTheContractsSumsAtEveryBatchSize) {
  for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
    for (int64_t k : {1, 7, 64}) {
      for (int64_t n : {1, 16, 37}) {
        const auto layer = MakeLinear(k, n, 1, {.residency = residency});
        const std::vector<float> w = ToFloats(Value(layer->Parameter("weight")));
        const std::vector<float> b = ToFloats(Value(layer->Parameter("bias")));
        for (int64_t m : {1, 2, 5, 33, 70}) {
          const Tensor x = Random({m, k}, 7);
          const Tensor y = Value(layer->Forward(x));
          EXPECT_TRUE(SameBits(y, Floats({m, n}, ReferenceRows(ToFloats(x), w, b, m, n, k))))
              << k << " " << n << " " << m;
        }
      }
    }
  }
}

TEST(Linear, TakesEveryFloatInputAndKeepsItsDType) {
  for (DType w : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const auto layer = MakeLinear(24, 19, 3, {.dtype = w});
    for (DType x : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      const Tensor input = Random({2, 3, 24}, 5, x);
      const Tensor y = Value(layer->Forward(input));
      EXPECT_EQ(y.dtype(), x);
      EXPECT_EQ(y.shape(), Shape({2, 3, 19}));
      const std::vector<float> sums = ReferenceRows(ToFloats(input), ToFloats(Value(layer->Parameter("weight"))),
                                                    ToFloats(Value(layer->Parameter("bias"))), 6, 19, 24);
      EXPECT_TRUE(SameBits(y, Floats({2, 3, 19}, sums, x)));
    }
  }
}

TEST(Linear, OutputsThatAreGoneMakeRoomForTheNext) {
  const auto layer = MakeLinear(8, 300, 1);
  const Tensor x = Random({100, 8}, 2);
  const Tensor held = Value(layer->Forward(x));
  const auto address = [](const Tensor& tensor) { return Value(tensor.Pin()).data; };
  std::byte* first = nullptr;
  {
    const Tensor y = Value(layer->Forward(x));
    EXPECT_NE(address(y), address(held));
    first = address(y);
  }
  const Tensor again = Value(layer->Forward(x));
  EXPECT_EQ(address(again), first);
  EXPECT_TRUE(SameBits(again, held));
}

TEST(Linear, PackingReleasesHeldViewsAndReadsBackBitForBit) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (Activation activation : {Activation::kNone, Activation::kSwiglu}) {
      const auto layer = MakeLinear(9, 38, 3, {.bias = false, .dtype = dtype, .activation = activation});
      const Tensor held = Value(layer->Parameter("weight"));
      const Tensor copy = Value(held.Clone());
      ASSERT_TRUE(layer->Forward(Random({1, 9}, 1)).ok());
      EXPECT_FALSE(held.has_storage());
      EXPECT_EQ(held.shape(), Shape({38, 9}));
      EXPECT_TRUE(SameBits(Value(layer->Parameter("weight")), copy));
      EXPECT_EQ(layer->state(), LayerState::kPacked);
    }
  }
}

TEST(Linear, PerCallKeepsTheWeightAsLoaded) {
  const auto layer = MakeLinear(9, 21, 3, {.residency = Residency::kPerCall});
  const Tensor held = Value(layer->Parameter("weight"));
  ASSERT_TRUE(layer->Forward(Random({4, 9}, 1)).ok());
  EXPECT_TRUE(held.has_storage());
  EXPECT_EQ(Value(layer->Parameter("weight")).Pin()->data, held.Pin()->data);
}

TEST(Linear, StridedRowsEqualTheirContiguousCopy) {
  const auto layer = MakeLinear(12, 17, 3);
  const Tensor wide = Random({6, 4, 30}, 2);
  const Tensor columns = Value(wide.Slice(2, 5, 12));
  const Tensor backwards = Value(columns.Slice(0, 5, 6, -1));
  const Tensor spread = Value(Random({6, 24}, 3).Slice(1, 0, 12, 2));
  const Tensor middle = Value(Value(wide.Slice(1, 1, 2)).Slice(2, 0, 12));
  for (const Tensor& x : {columns, backwards, spread, middle}) {
    EXPECT_TRUE(SameBits(Value(layer->Forward(x)), Value(layer->Forward(Value(x.Clone())))));
  }
  const Tensor row = Random({12}, 4);
  EXPECT_TRUE(SameBits(Value(layer->Forward(row)),
                       Value(Value(layer->Forward(Value(row.Reshape(Shape{1, 12})))).Reshape(Shape{17}))));
}

// The same values `shift` bytes past an aligned address.
Tensor Misaligned(const Tensor& tensor, int64_t shift) {
  const Tensor::Pinned from = Value(tensor.Pin());
  const std::shared_ptr<Memory> memory = Value(Memory::Allocate(static_cast<size_t>(tensor.nbytes() + shift)));
  std::memcpy(memory->data() + shift, from.data, static_cast<size_t>(tensor.nbytes()));
  return Tensor::View(std::make_shared<Storage>(memory), tensor.shape(), tensor.strides(), tensor.dtype(), shift);
}

TEST(Linear, MisalignedMemoryServes) {  // C076
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (Residency residency : {Residency::kPacked, Residency::kPerCall}) {
      for (int64_t shift : {1, 2, 3}) {
        const LinearOptions options{.dtype = dtype, .residency = residency};
        const auto plain = MakeLinear(12, 37, 3, options);
        const auto layer = Value(Linear::Create(12, 37, options));
        ASSERT_TRUE(layer
                        ->Bind({{"weight", Misaligned(Value(plain->Parameter("weight")), shift)},
                                {"bias", Misaligned(Value(plain->Parameter("bias")), shift)}},
                               {.assign = true})
                        .ok());
        const Tensor x = Random({9, 12}, 4, dtype);
        EXPECT_TRUE(SameBits(Value(layer->Forward(Misaligned(x, shift))), Value(plain->Forward(x))));
        EXPECT_TRUE(SameBits(Value(layer->Parameter("weight")), Value(plain->Parameter("weight"))));
      }
    }
  }
}

TEST(Linear, BroadcastRowsServe) {
  const auto layer = MakeLinear(12, 17, 3);
  const Tensor row = Random({12}, 4);
  const Tensor x = Tensor::View(row.storage(), {3, 5, 12}, {0, 0, 1}, row.dtype(), row.offset());
  EXPECT_TRUE(SameBits(Value(layer->Forward(x)), Value(layer->Forward(Value(x.Clone())))));
}

TEST(Linear, EmptyBatchesDispatchNothing) {  // C013
  const auto layer = MakeLinear(100, 1, 3);
  for (const Shape& shape : {Shape{0, 100}, Shape{2, 0, 100}}) {
    const DispatchCounter counter;
    Shape expected = shape;
    expected.back() = 1;
    EXPECT_EQ(Value(layer->Forward(Value(Tensor::Zeros(shape, DType::kFloat32)))).shape(), expected);
    EXPECT_EQ(counter.total(), 0);
  }
  EXPECT_TRUE(layer->Forward(Random({3, 100}, 1)).ok());
}

TEST(Linear, WithoutInputsGivesTheBias) {  // C014
  const auto layer = Value(Linear::Create(0, 5, {.activation = Activation::kRelu}));
  const Tensor bias = Floats({5}, {-1, 0, 1, NAN, 2});
  ASSERT_TRUE(layer->Bind({{"weight", Floats({5, 0}, {})}, {"bias", bias}}).ok());
  const Tensor y = Value(layer->Forward(Floats({3, 4, 0}, {})));
  EXPECT_EQ(y.shape(), Shape({3, 4, 5}));
  EXPECT_TRUE(SameBits(Value(Value(y.Select(0, 2)).Select(0, 3)), Floats({5}, {0, 0, 1, NAN, 2})));
  const auto bare = Value(Linear::Create(0, 5, {.bias = false}));
  ASSERT_TRUE(bare->Bind({{"weight", Floats({5, 0}, {})}}).ok());
  EXPECT_TRUE(SameBits(Value(bare->Forward(Floats({2, 0}, {}))), Value(Tensor::Zeros(Shape{2, 5}, DType::kFloat32))));
  const auto none = MakeLinear(4, 0, 3);
  EXPECT_EQ(Value(none->Forward(Random({3, 4}, 1))).shape(), Shape({3, 0}));
}

TEST(Linear, RefusesInputsThatDoNotFitByName) {  // C015
  const auto layer = MakeLinear(8, 4, 3, {.name = "proj"});
  for (const Tensor& x : {Random({2, 7}, 1), Random({}, 1), Value(Tensor::Zeros(Shape{2, 8}, DType::kInt32))}) {
    const absl::Status status = layer->Forward(x).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("proj"));
  }
  EXPECT_THAT(layer->Forward(Random({2, 7}, 1)).status().message(), HasSubstr("[*, 8]"));
  EXPECT_THAT(layer->Forward(Random({2, 7}, 1)).status().message(), HasSubstr("[2, 7]"));
}

TEST(Linear, UnboundIsRefused) {
  const auto layer = Value(Linear::Create(8, 4, {.name = "proj"}));
  EXPECT_EQ(layer->state(), LayerState::kUnbound);
  EXPECT_EQ(layer->Forward(Random({2, 8}, 1)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(layer->Parameter("weight").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(layer->Parameter("scale").status().code(), absl::StatusCode::kNotFound);
}

TEST(Linear, GatedHalvesTheOutputsAndTakesNoBias) {
  const auto layer = MakeLinear(8, 6, 3, {.bias = false, .activation = Activation::kReglu});
  EXPECT_EQ(Value(layer->Forward(Random({2, 8}, 1))).shape(), Shape({2, 3}));
  EXPECT_EQ(Linear::Create(8, 6, {.activation = Activation::kReglu}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Linear::Create(8, 5, {.bias = false, .activation = Activation::kReglu}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Linear::Create(-8, 6, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Linear, OneDispatchAForward) {
  const auto layer = MakeLinear(8, 6, 3);
  const DispatchCounter counter;
  ASSERT_TRUE(layer->Forward(Random({50, 8}, 1)).ok());
  EXPECT_EQ(counter.total(), 1);
}

TEST(Linear, ExplainNamesTheKernel) {
  const auto layer = MakeLinear(8, 6, 3);
  EXPECT_THAT(layer->Explain(), HasSubstr("kernel "));
  ASSERT_TRUE(layer->Forward(Random({50, 8}, 1)).ok());
  EXPECT_THAT(layer->Explain(), HasSubstr("packed"));
  EXPECT_THAT(layer->Explain(), HasSubstr("emitter "));
  EXPECT_THAT(Value(Linear::Create(8, 4, {}))->Explain(), HasSubstr("unbound"));
}

}  // namespace
}  // namespace clikart
