#include <functional>

#include "clikart/nn.h"
#include "clikart/runtime.h"
#include "gmock/gmock.h"
#include "layer_testing.h"

namespace clikart {
namespace {

using ::testing::ElementsAre;
using testing::Floats;
using ::testing::HasSubstr;
using testing::Random;
using testing::SameBits;
using testing::ToFloats;
using testing::Value;

using Pads = std::vector<std::pair<int64_t, int64_t>>;

std::shared_ptr<Conv> MakeConv(int64_t in, int64_t out, unsigned seed, const ConvOptions& options) {
  std::shared_ptr<Conv> conv = Value(Conv::Create(in, out, options));
  Shape shape = {out, in / options.groups};
  shape.insert(shape.end(), options.kernel_size.begin(), options.kernel_size.end());
  StateDict state = {{"weight", Random(shape, seed, options.dtype)}};
  if (options.bias) state.emplace_back("bias", Random({out}, seed + 1000));
  EXPECT_TRUE(conv->Bind(state).ok());
  return conv;
}

// What the padding modes of NumPy do, one element at a time, by walking.
int64_t PaddedSource(PaddingMode mode, int64_t p, int64_t size) {
  if (p >= 0 && p < size) return p;
  if (mode == PaddingMode::kZeros) return -1;
  if (mode == PaddingMode::kReplicate) return p < 0 ? 0 : size - 1;
  if (mode == PaddingMode::kCircular) {
    while (p < 0) p += size;
    while (p >= size) p -= size;
    return p;
  }
  return p < 0 ? -p : 2 * size - 2 - p;
}

// The convolution in the contract's order: taps in raster order, channels inside; `pads` explicit.
Tensor Reference(const Conv& conv, const Tensor& x, const Pads& pads) {
  const ConvOptions& options = conv.options();
  const size_t rank = options.kernel_size.size();
  const auto at = [&](const Shape& list, size_t axis) { return list.empty() ? 1 : list[axis]; };
  Shape out_shape = {x.shape()[0]};
  for (size_t a = 0; a < rank; ++a) {
    const int64_t padded = x.shape()[a + 1] + pads[a].first + pads[a].second;
    const int64_t extent = at(options.dilation, a) * (options.kernel_size[a] - 1) + 1;
    out_shape.push_back((padded - extent) / at(options.stride, a) + 1);
  }
  out_shape.push_back(conv.out_channels());
  const std::vector<float> input = ToFloats(x), weight = ToFloats(Value(conv.Parameter("weight")));
  const std::vector<float> bias = options.bias ? ToFloats(Value(conv.Parameter("bias"))) : std::vector<float>();
  int64_t taps = 1, pixels = 1;
  for (size_t a = 0; a < rank; ++a) taps *= options.kernel_size[a], pixels *= out_shape[a + 1];
  const int64_t in = conv.in_channels(), out = conv.out_channels();
  const int64_t depth = in / options.groups, wide = out / options.groups;
  std::vector<float> y;
  for (int64_t image = 0; image < x.shape()[0]; ++image) {
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      for (int64_t o = 0; o < out; ++o) {
        float sum = 0;
        for (int64_t tap = 0; tap < taps; ++tap) {
          int64_t place = 0, p = pixel, t = tap, step = 1;
          bool zero = false;
          for (size_t a = rank; a-- > 0;) {
            const int64_t position = p % out_shape[a + 1] * at(options.stride, a) - pads[a].first +
                                     t % options.kernel_size[a] * at(options.dilation, a);
            const int64_t source = PaddedSource(options.padding_mode, position, x.shape()[a + 1]);
            zero |= source < 0;
            place += source * step;
            step *= x.shape()[a + 1];
            p /= out_shape[a + 1];
            t /= options.kernel_size[a];
          }
          for (int64_t c = 0; c < depth; ++c) {
            const int64_t channel = o / wide * depth + c;
            const float value = zero ? 0.0f : input[static_cast<size_t>((image * step + place) * in + channel)];
            sum = std::fma(value, weight[static_cast<size_t>((o * depth + c) * taps + tap)], sum);
          }
        }
        y.push_back(bias.empty() ? sum : sum + bias[static_cast<size_t>(o)]);
      }
    }
  }
  return Floats(out_shape, y, x.dtype());
}

TEST(Conv, EqualsTheReferenceOverGeometries) {
  struct Case {
    Shape kernel, stride, dilation;
    Pads pads;
    Shape x;
    int64_t groups = 1, out = 7;
  };
  const std::vector<Case> cases = {
      {{3}, {}, {}, {{1, 1}}, {2, 9, 5}},
      {{1}, {}, {}, {{0, 0}}, {2, 9, 5}},
      {{1, 1}, {2, 1}, {}, {{0, 0}, {0, 0}}, {2, 5, 4, 3}},
      {{3, 2}, {2, 1}, {1, 2}, {{1, 0}, {2, 1}}, {3, 7, 6, 4}},
      {{2, 3, 2}, {}, {}, {{0, 1}, {1, 1}, {0, 0}}, {2, 3, 4, 3, 2}},
      {{3, 3}, {}, {}, {{1, 1}, {1, 1}}, {2, 5, 5, 6}, 3, 9},
      {{3, 3}, {}, {}, {{1, 1}, {1, 1}}, {2, 5, 5, 5}, 5, 10},  // depthwise, two outputs a channel
      {{1, 1}, {}, {}, {{0, 0}, {0, 0}}, {2, 4, 5, 6}, 2, 34},
      {{3, 3}, {}, {}, {{1, 1}, {1, 1}}, {1, 9, 8, 17}, 1, 40},
  };
  for (const Case& c : cases) {
    for (PaddingMode mode :
         {PaddingMode::kZeros, PaddingMode::kReflect, PaddingMode::kReplicate, PaddingMode::kCircular}) {
      for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        const ConvOptions options{.kernel_size = c.kernel,
                                  .stride = c.stride,
                                  .dilation = c.dilation,
                                  .padding = c.pads,
                                  .padding_mode = mode,
                                  .groups = c.groups,
                                  .dtype = dtype};
        const auto conv = MakeConv(c.x.back(), c.out, 4, options);
        const Tensor x = Random(c.x, 5, dtype);
        const DispatchCounter counter;
        const Tensor y = Value(conv->Forward(x));
        EXPECT_EQ(counter.total(), 1);
        EXPECT_TRUE(SameBits(y, Reference(*conv, x, c.pads))) << ShapeString(c.kernel) << Name(mode);
      }
    }
  }
}

// Channels in lanes, and tails of every kind, under an epilogue of their own dtype.
TEST(Conv, DepthwiseEqualsTheReference) {
  struct Case {
    Shape kernel, stride, dilation;
    Pads pads;
    Shape x;  // without the channels
  };
  const std::vector<Case> cases = {
      {{3}, {}, {2}, {{2, 1}}, {2, 19}},
      {{1}, {}, {}, {{0, 0}}, {2, 9}},
      {{3, 3}, {}, {}, {{1, 1}, {1, 1}}, {2, 5, 7}},
      {{5, 2}, {2, 1}, {1, 2}, {{2, 1}, {0, 2}}, {1, 9, 8}},
      {{1, 1}, {2, 2}, {}, {{0, 0}, {0, 0}}, {3, 5, 4}},
      {{2, 3, 2}, {1, 2, 1}, {}, {{0, 1}, {1, 1}, {0, 0}}, {2, 3, 5, 3}},
  };
  const auto options_of = [](const Case& c, int64_t channels, DType dtype, PaddingMode mode) {
    return ConvOptions{.kernel_size = c.kernel,
                       .stride = c.stride,
                       .dilation = c.dilation,
                       .padding = c.pads,
                       .padding_mode = mode,
                       .groups = channels,
                       .dtype = dtype};
  };
  unsigned seed = 0;
  for (const Case& c : cases) {
    for (int64_t channels : {1, 3, 5, 8, 16, 17, 40}) {
      Shape shape = c.x;
      shape.push_back(channels);
      for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        const PaddingMode modes[] = {PaddingMode::kZeros, PaddingMode::kReflect, PaddingMode::kReplicate,
                                     PaddingMode::kCircular};
        ++seed;
        const auto conv = MakeConv(channels, channels, seed, options_of(c, channels, dtype, modes[seed % 4]));
        for (DType input : {dtype, DType::kFloat32}) {
          const Tensor x = Random(shape, seed, input);
          const DispatchCounter counter;
          const Tensor y = Value(conv->Forward(x));
          EXPECT_EQ(counter.total(), 1);
          EXPECT_TRUE(SameBits(y, Reference(*conv, x, c.pads))) << ShapeString(c.kernel) << ShapeString(shape);
        }
      }
    }
  }
}

TEST(Conv, DepthwiseReadsItsViewAndKeepsItsWeight) {
  const auto conv = MakeConv(
      21, 21, 4, {.kernel_size = {3, 3}, .padding = {{1, 1}, {1, 1}}, .groups = 21, .dtype = DType::kBFloat16});
  const Tensor copy = Value(Value(conv->Parameter("weight")).Clone());
  const Tensor wide = Random({4, 12, 10, 30}, 5);
  const Tensor x = Value(Value(Value(wide.Slice(3, 2, 21)).Slice(1, 2, 6)).Slice(2, 8, 4, -2));
  EXPECT_TRUE(SameBits(Value(conv->Forward(x)), Value(conv->Forward(Value(x.Clone())))));
  EXPECT_EQ(copy.shape(), Shape({21, 1, 3, 3}));
  EXPECT_TRUE(SameBits(Value(conv->Parameter("weight")), copy));
  EXPECT_THAT(conv->Explain(), HasSubstr("kind=depthwise"));
}

TEST(Conv, ExplainSaysWhereLanesIdle) {  // C093
  const Tensor x = Random({1, 6, 12}, 1);
  const auto narrow = MakeConv(12, 24, 4, {.kernel_size = {3}, .groups = 12});
  EXPECT_THAT(narrow->Explain(), HasSubstr("12 groups, each a contraction of its own that uses 2 of 16 lanes"));
  ASSERT_TRUE(narrow->Forward(x).ok());
  EXPECT_THAT(narrow->Explain(), HasSubstr("uses 2 of 16 lanes"));
  for (const auto& conv :
       {MakeConv(12, 12, 4, {.kernel_size = {3}, .groups = 12}), MakeConv(12, 24, 4, {.kernel_size = {3}, .groups = 2}),
        MakeConv(12, 3, 4, {.kernel_size = {3}})}) {
    EXPECT_THAT(conv->Explain(), ::testing::Not(HasSubstr("lanes")));
    ASSERT_TRUE(conv->Forward(x).ok());
    EXPECT_THAT(conv->Explain(), ::testing::Not(HasSubstr("lanes")));
  }
}

TEST(Conv, SamePaddingKeepsSizesAndPutsTheOddPadAfter) {  // C018
  struct Case {
    Shape kernel, dilation, x;
    Pads pads;
  };
  const std::vector<Case> cases = {{{3, 5}, {2, 3}, {1, 28, 31, 3}, {{2, 2}, {6, 6}}},
                                   {{2, 4}, {1, 3}, {1, 12, 13, 3}, {{0, 1}, {4, 5}}},
                                   {{2}, {1}, {2, 9, 3}, {{0, 1}}}};
  for (const Case& c : cases) {
    for (PaddingMode mode :
         {PaddingMode::kZeros, PaddingMode::kReflect, PaddingMode::kReplicate, PaddingMode::kCircular}) {
      ConvOptions options{.kernel_size = c.kernel,
                          .dilation = c.dilation,
                          .padding_kind = ConvOptions::Padding::kSame,
                          .padding_mode = mode};
      const auto conv = MakeConv(3, 8, 4, options);
      const Tensor x = Random(c.x, 5);
      const Tensor y = Value(conv->Forward(x));
      for (size_t a = 0; a + 1 < c.x.size(); ++a) EXPECT_EQ(y.shape()[a], c.x[a]);
      EXPECT_TRUE(SameBits(y, Reference(*conv, x, c.pads)));
      options.stride = Shape(c.kernel.size(), 2);
      EXPECT_EQ(Conv::Create(3, 8, options).status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(Conv, LimitsOfReflectAndCircularPadding) {  // C020
  const Tensor x = Random({1, 10, 10, 1}, 5);
  const auto with = [](PaddingMode mode, int64_t pad, int64_t dilation = 1) {
    return MakeConv(1, 1, 4,
                    {.kernel_size = {3, 3},
                     .dilation = {dilation, dilation},
                     .padding = {{pad, pad}, {pad, pad}},
                     .padding_mode = mode});
  };
  const auto circular = with(PaddingMode::kCircular, 15, 15);
  EXPECT_TRUE(SameBits(Value(circular->Forward(x)), Reference(*circular, x, {{15, 15}, {15, 15}})));
  const auto replicate = with(PaddingMode::kReplicate, 50);
  EXPECT_TRUE(SameBits(Value(replicate->Forward(x)), Reference(*replicate, x, {{50, 50}, {50, 50}})));
  const auto reflect = with(PaddingMode::kReflect, 9);
  EXPECT_TRUE(SameBits(Value(reflect->Forward(x)), Reference(*reflect, x, {{9, 9}, {9, 9}})));
  const absl::Status status = with(PaddingMode::kReflect, 10)->Forward(x).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* text : {"reflect", "10", "axis 0", "at most 9"}) EXPECT_THAT(status.message(), HasSubstr(text));
  const Tensor thin = Random({1, 1, 10, 1}, 5), none = Floats({1, 0, 10, 1}, {});
  EXPECT_EQ(with(PaddingMode::kReflect, 1)->Forward(thin).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with(PaddingMode::kCircular, 1)->Forward(none).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with(PaddingMode::kReplicate, 1)->Forward(none).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(with(PaddingMode::kZeros, 1)->Forward(thin).ok());
}

TEST(Conv, KernelLargerThanThePaddedInputIsRefused) {  // C017
  const auto conv = MakeConv(6, 4, 4, {.kernel_size = {3, 3}, .groups = 2, .name = "head"});
  ASSERT_TRUE(conv->Forward(Random({1, 3, 3, 6}, 1)).ok());
  const absl::Status status = conv->Forward(Random({1, 2, 2, 6}, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* text : {"head", "axis 0", "size 2", "extent 3"}) EXPECT_THAT(status.message(), HasSubstr(text));
  EXPECT_FALSE(MakeConv(1, 1, 4, {.kernel_size = {3}, .dilation = {4}})->Forward(Random({1, 8, 1}, 1)).ok());
  EXPECT_EQ(Value(MakeConv(1, 1, 4, {.kernel_size = {3}, .dilation = {4}})->Forward(Random({1, 9, 1}, 1))).shape(),
            Shape({1, 1, 1}));
}

TEST(Conv, RankMistakesGiveOneErrorInEveryMode) {  // C015
  for (PaddingMode mode :
       {PaddingMode::kZeros, PaddingMode::kReflect, PaddingMode::kReplicate, PaddingMode::kCircular}) {
    const auto conv = MakeConv(
        1, 10, 4,
        {.kernel_size = {3, 3, 3}, .padding = {{1, 1}, {1, 1}, {1, 1}}, .padding_mode = mode, .name = "volume"});
    for (const Shape& shape : {Shape{10, 10, 10, 1}, Shape{1, 1, 10, 10, 10}, Shape{}}) {
      const absl::Status status = conv->Forward(Value(Tensor::Zeros(shape, DType::kFloat32))).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      for (const std::string& text : {std::string("volume"), std::string("[batch, *spatial, C]"), ShapeString(shape)}) {
        EXPECT_THAT(status.message(), HasSubstr(text));
      }
    }
  }
}

TEST(Conv, ConstructionErrorsNameTheNumbers) {
  const auto message = [](int64_t in, int64_t out, const ConvOptions& options) {
    const absl::Status status = Conv::Create(in, out, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(3, 7, {.kernel_size = {3}, .groups = 3}),
              HasSubstr("out_channels 7 is not divisible by groups 3"));
  EXPECT_THAT(message(4, 6, {.kernel_size = {3}, .groups = 3}),
              HasSubstr("in_channels 4 is not divisible by groups 3"));
  EXPECT_THAT(message(4, 6, {.kernel_size = {3}, .groups = 0}), HasSubstr("groups"));
  EXPECT_THAT(message(4, 6, {}), HasSubstr("kernel_size"));
  EXPECT_THAT(message(4, 6, {.kernel_size = {0}}), HasSubstr("kernel_size"));
  EXPECT_THAT(message(4, 6, {.kernel_size = {3}, .stride = {1, 1}}), HasSubstr("stride"));
  EXPECT_THAT(message(4, 6, {.kernel_size = {3}, .padding = {{-1, 0}}}), HasSubstr("padding"));
  EXPECT_EQ(Conv::Create(4, 6, {.kernel_size = {3}, .bias = false, .activation = Activation::kSwiglu}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(Conv, GeometryThatLeaves64BitsIsRefused) {
  // 4 * 2^62 is 0 in 64 bits: the kernel's extent would seem to be 1.
  const int64_t large = int64_t{1} << 62;
  const ConvOptions cases[] = {
      {.kernel_size = {5}, .dilation = {large}},
      {.kernel_size = {5}, .dilation = {large}, .padding_kind = ConvOptions::Padding::kSame},
      {.kernel_size = {1}, .stride = {large}, .padding = {{large, large}}},
      {.kernel_size = {large}},
      {.kernel_size = {1 << 30, 1 << 30, 1 << 30}},
  };
  for (const ConvOptions& options : cases) {
    EXPECT_EQ(Conv::Create(1, 1, options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Conv, EveryGroupGetsItsEpilogue) {  // C024
  const auto conv = Value(Conv::Create(8, 8, {.kernel_size = {3, 3}, .groups = 4, .activation = Activation::kRelu}));
  ASSERT_TRUE(conv->Bind({{"weight", Value(Tensor::Zeros(Shape{8, 2, 3, 3}, DType::kFloat32))},
                          {"bias", Floats({8}, std::vector<float>(8, -1.0f))}})
                  .ok());
  for (float value : ToFloats(Value(conv->Forward(Random({2, 4, 4, 8}, 1))))) EXPECT_EQ(value, 0.0f);
}

TEST(Conv, PaddedTapsMultiplyByZero) {  // numerics, rule 8: an infinite weight over padding is not a number
  const auto conv = Value(Conv::Create(1, 1, {.kernel_size = {3}, .padding = {{1, 1}}, .bias = false}));
  ASSERT_TRUE(conv->Bind({{"weight", Floats({1, 1, 3}, {INFINITY, 1, 1})}}).ok());
  const std::vector<float> y = ToFloats(Value(conv->Forward(Floats({1, 3, 1}, {1, 2, 3}))));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], INFINITY);
}

TEST(Conv, StridedInputsEqualTheirCopy) {
  for (const Shape& kernel : {Shape{3, 3}, Shape{1, 1}}) {
    const auto conv = MakeConv(3, 8, 4, {.kernel_size = kernel});
    const Tensor wide = Random({4, 12, 10, 7}, 5);
    const Tensor channels = Value(wide.Slice(3, 2, 3));
    const Tensor crop = Value(Value(channels.Slice(1, 2, 6)).Slice(2, 8, 4, -2));
    const Tensor spread = Value(wide.Slice(3, 0, 3, 2));
    for (const Tensor& x : {channels, crop, spread, Value(channels.Slice(0, 3, 2, -2))}) {
      EXPECT_TRUE(SameBits(Value(conv->Forward(x)), Value(conv->Forward(Value(x.Clone())))));
    }
  }
}

TEST(Conv, EachImageEqualsItselfAloneAndEmptyBatchesAreFree) {  // C013
  const auto conv = MakeConv(3, 20, 4, {.kernel_size = {3, 3}, .padding = {{1, 1}, {1, 1}}});
  const DispatchCounter counter;
  EXPECT_EQ(Value(conv->Forward(Floats({0, 5, 5, 3}, {}))).shape(), Shape({0, 5, 5, 20}));
  EXPECT_EQ(counter.total(), 0);
  const Tensor x = Random({5, 5, 5, 3}, 5);
  const Tensor y = Value(conv->Forward(x));
  for (int64_t image = 0; image < 5; ++image) {
    EXPECT_TRUE(SameBits(Value(y.Slice(0, image, 1)), Value(conv->Forward(Value(x.Slice(0, image, 1))))));
  }
}

TEST(Conv, ManySizesKeepServing) {  // C064
  const auto conv = MakeConv(2, 4, 4, {.kernel_size = {3, 3}});
  ASSERT_TRUE(conv->Forward(Random({1, 3, 3, 2}, 1)).ok());
  const int64_t entries = GetKernelStats().entries;
  for (int64_t size = 3; size < 40; ++size) {
    const Tensor x = Random({1, size, 3 + size % 5, 2}, 7);
    EXPECT_TRUE(SameBits(Value(conv->Forward(x)), Reference(*conv, x, {{0, 0}, {0, 0}})));
  }
  EXPECT_EQ(GetKernelStats().entries, entries);
}

TEST(Conv, PackReadsBackBitForBit) {
  for (int64_t groups : {1, 3}) {
    const auto conv = MakeConv(6, 21, 4, {.kernel_size = {2, 3}, .groups = groups, .dtype = DType::kFloat16});
    const Tensor held = Value(conv->Parameter("weight"));
    const Tensor copy = Value(held.Clone());
    ASSERT_TRUE(conv->Forward(Random({1, 4, 4, 6}, 1)).ok());
    EXPECT_FALSE(held.has_storage());
    EXPECT_TRUE(SameBits(Value(conv->Parameter("weight")), copy));
  }
}

// Groups.

using Convs = std::vector<std::shared_ptr<Conv>>;

Tensor Apart(const Convs& convs, const Tensor& x) {
  std::vector<Tensor> outputs;
  for (const auto& conv : convs) outputs.push_back(Value(conv->Forward(x)));
  return Value(Concat(outputs));
}

TEST(ConvGroup, EqualsItsPartsBitForBit) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (Activation activation : {Activation::kNone, Activation::kSilu}) {
      const auto make = [&] {
        const ConvOptions options{.kernel_size = {3, 3},
                                  .stride = {2, 1},
                                  .padding = {{1, 1}, {0, 2}},
                                  .dtype = dtype,
                                  .activation = activation};
        return Convs{MakeConv(5, 16, 1, options), MakeConv(5, 3, 2, options), MakeConv(5, 7, 3, options)};
      };
      const Convs parts = make(), apart = make();
      const Tensor held = Value(parts[1]->Parameter("weight"));
      const auto group = Value(FuseConvs(parts));
      EXPECT_TRUE(group->fused());
      EXPECT_EQ(group->residency(), Residency::kPacked);
      EXPECT_FALSE(held.has_storage());
      EXPECT_THAT(group->split_sizes(), ElementsAre(16, 3, 7));
      EXPECT_TRUE(SameBits(Value(parts[1]->Parameter("weight")), Value(apart[1]->Parameter("weight"))));
      EXPECT_TRUE(SameBits(Value(parts[2]->Parameter("bias")), Value(apart[2]->Parameter("bias"))));
      for (int64_t batch : {1, 3}) {
        const Tensor x = Random({batch, 7, 6, 5}, 9, dtype);
        const DispatchCounter counter;
        const Tensor y = Value(group->Forward(x));
        EXPECT_EQ(counter.total(), 1);
        EXPECT_TRUE(SameBits(y, Apart(apart, x)));
      }
      EXPECT_EQ(parts[0]->Forward(Random({1, 7, 6, 5}, 1)).status().code(), absl::StatusCode::kFailedPrecondition);
    }
  }
}

TEST(ConvGroup, PartsThatDifferServeSideBySide) {
  struct Case {
    ConvOptions first, second;
    const char* reason;
  };
  const ConvOptions plain{.kernel_size = {3}, .padding = {{1, 1}}};
  ConvOptions wide = plain, bare = plain, half = plain, grouped = plain, reflect = plain;
  wide.kernel_size = {5}, wide.padding = {{2, 2}};
  bare.bias = false;
  half.dtype = DType::kFloat16;
  grouped.groups = 2;
  reflect.padding_mode = PaddingMode::kReflect;
  for (const Case& c : {Case{plain, wide, "geometry"}, Case{plain, bare, "mixed_biases"}, Case{plain, half, "dtypes"},
                        Case{grouped, grouped, "grouped_convolution"}, Case{plain, reflect, "geometry"}}) {
    const auto make = [&](Activation activation) {
      ConvOptions first = c.first, second = c.second;
      first.activation = second.activation = activation;
      return Convs{MakeConv(4, 6, 1, first), MakeConv(4, 8, 2, second)};
    };
    const auto group = Value(FuseConvs(make(Activation::kNone), {.activation = Activation::kGelu}));
    EXPECT_FALSE(group->fused());
    EXPECT_THAT(group->Explain(), HasSubstr(c.reason));
    const Tensor x = Random({2, 9, 4}, 5);
    const DispatchCounter counter;
    const Tensor y = Value(group->Forward(x));
    EXPECT_EQ(counter.total(), 2);
    EXPECT_TRUE(SameBits(y, Apart(make(Activation::kGelu), x)));
  }
}

TEST(ConvGroup, DepthwisePartsServeSideBySide) {
  const auto make = [] {
    const ConvOptions options{.kernel_size = {3}, .padding = {{1, 1}}, .groups = 18};
    return Convs{MakeConv(18, 18, 1, options), MakeConv(18, 18, 2, options)};
  };
  const auto group = Value(FuseConvs(make(), {.activation = Activation::kRelu6}));
  EXPECT_FALSE(group->fused());
  EXPECT_THAT(group->Explain(), HasSubstr("has groups=18"));
  auto options = make()[0]->options();
  options.activation = Activation::kRelu6;
  const Tensor x = Random({2, 9, 18}, 5);
  EXPECT_TRUE(
      SameBits(Value(group->Forward(x)), Apart({MakeConv(18, 18, 1, options), MakeConv(18, 18, 2, options)}, x)));
}

TEST(ConvGroup, GridsThatDisagreeAreRefusedAtTheForward) {
  const auto group = Value(FuseConvs(
      Convs{MakeConv(4, 6, 1, {.kernel_size = {3}}), MakeConv(4, 6, 1, {.kernel_size = {5}, .name = "wide"})}));
  const absl::Status status = group->Forward(Random({2, 9, 4}, 5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("wide"));
}

TEST(ConvGroup, Refusals) {
  const ConvOptions options{.kernel_size = {3}};
  const auto a = MakeConv(4, 6, 1, options), b = MakeConv(4, 6, 2, options);
  const auto code = [](const Convs& convs, FuseOptions fuse = {}) { return FuseConvs(convs, fuse).status().code(); };
  EXPECT_EQ(code({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({a}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({a, nullptr}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({a, a}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({a, Value(Conv::Create(4, 6, options))}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({a, b}, {.activation = Activation::kSwiglu}), absl::StatusCode::kFailedPrecondition);
  const auto run = MakeConv(4, 6, 2, options);
  ASSERT_TRUE(run->Forward(Random({1, 3, 4}, 1)).ok());
  EXPECT_EQ(code({a, run}), absl::StatusCode::kFailedPrecondition);
  const auto group = Value(FuseConvs(Convs{a, b}));
  EXPECT_EQ(code({a, MakeConv(4, 6, 2, options)}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code({group, MakeConv(4, 6, 2, options)}), absl::StatusCode::kFailedPrecondition);
}

TEST(ConvGroup, ALoadDissolvesIt) {
  const ConvOptions options{.kernel_size = {3, 3}};
  const auto make = [&] { return Convs{MakeConv(4, 6, 1, options), MakeConv(4, 5, 2, options)}; };
  const Convs parts = make();
  const auto group = Value(FuseConvs(parts, {.activation = Activation::kRelu}));
  const Tensor x = Random({2, 5, 6, 4}, 5);
  const Tensor before = Value(group->Forward(x));
  ASSERT_TRUE(parts[0]->Bind(Value(parts[0]->GetStateDict())).ok());
  EXPECT_FALSE(group->fused());
  const DispatchCounter counter;
  EXPECT_TRUE(SameBits(Value(group->Forward(x)), before));
  EXPECT_EQ(counter.total(), 2);
  EXPECT_TRUE(SameBits(Value(parts[1]->Forward(x)), Value(make()[1]->Forward(x))));
}

}  // namespace
}  // namespace clikart
