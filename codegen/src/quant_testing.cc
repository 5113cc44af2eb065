#include "quant_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <variant>

#include "../portable/portable_emitter.h"
#include "clikart/codegen/driver.h"
#include "clikart/ir/code_layout.h"
#include "quant_parts.h"

namespace clikart::codegen {
namespace {

using ir::Contraction;

std::unique_ptr<GuardedBuffer> Guarded(const void* data, size_t bytes, GuardedBuffer::Edge edge) {
  auto buffer = std::make_unique<GuardedBuffer>(bytes, edge);
  if (bytes > 0) std::memcpy(buffer->data(), data, bytes);
  return buffer;
}

template <typename T>
std::unique_ptr<GuardedBuffer> Guarded(const std::vector<T>& values, GuardedBuffer::Edge edge) {
  return Guarded(values.data(), values.size() * sizeof(T), edge);
}

float Load(ir::DType dtype, const std::byte* from) {
  if (dtype == ir::DType::kInt8) return static_cast<int8_t>(*from);
  if (dtype == ir::DType::kUInt8) return static_cast<uint8_t>(*from);
  return LoadElement(dtype, from);
}

void Store(ir::DType dtype, float value, std::byte* to) {
  if (ir::IsFloat(dtype)) return StoreElement(dtype, value, to);
  *to = static_cast<std::byte>(static_cast<int>(value) & 0xff);
}

int64_t GroupSize(const ir::KernelSpec& spec) {
  return spec.scheme->group_size == -1 ? spec.k : spec.scheme->group_size;
}

// kInteger: what the checkpoint's codes and scales become for a kernel.
struct IntegerColumns {
  std::vector<std::byte> panels;
  std::vector<float> scales;
  std::vector<int64_t> sums;
};

IntegerColumns PackIntegers(const QuantProblem& problem) {
  const ir::PanelLayout layout = ir::LayoutOf(problem.spec);
  IntegerColumns columns;
  columns.panels.resize(static_cast<size_t>(layout.TotalBytes()));
  for (int64_t panel = 0; panel < layout.Panels(); ++panel) {
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
      const int64_t n = layout.RowOf(panel, lane);
      columns.scales.push_back(n < 0 ? 0.0f : problem.input_scale * problem.weight_scale[static_cast<size_t>(n)]);
      columns.sums.push_back(0);
      if (n < 0) continue;
      const auto [part, row] = Locate(problem, n);
      for (int64_t k = 0; k < problem.spec.k; ++k) {
        const uint8_t code = part->codes[static_cast<size_t>(row * problem.spec.k + k)];
        columns.panels[static_cast<size_t>(panel * layout.PanelBytes() + layout.OffsetOf(lane, k))] = std::byte{code};
        columns.sums.back() += static_cast<int8_t>(code);
      }
    }
  }
  return columns;
}

// What quantized parts become for a kernel.
struct PackedCodes {
  std::vector<std::byte> panels;
  std::vector<std::vector<int32_t>> columns;  // of each part, sorted by group
  std::vector<int64_t> group_begins;          // of all parts, where groups are uneven
  std::vector<float> lane_scales;
};

// Inputs sorted by group, and where each group begins.
std::vector<int32_t> SortedColumns(const ir::KernelSpec& spec, const QuantPart& part, std::vector<int64_t>& begins) {
  std::vector<int32_t> columns;
  begins.clear();
  for (int64_t group = 0; group < Groups(spec); ++group) {
    begins.push_back(static_cast<int64_t>(columns.size()));
    for (int64_t k = 0; k < spec.k; ++k) {
      if (GroupOf(spec, part, k) == group) columns.push_back(static_cast<int32_t>(k));
    }
  }
  begins.push_back(static_cast<int64_t>(columns.size()));
  return columns;
}

void PackLane(const ir::KernelSpec& spec, const ir::CodeLayout& layout, const QuantPart& part, int64_t row,
              const std::vector<int32_t>& columns, int64_t lane, std::byte* panel) {
  for (int64_t group = 0; group < layout.Groups(); ++group) {
    std::byte* const to = panel + layout.GroupAt(group);
    const auto at = static_cast<size_t>(row * layout.Groups() + group);
    const auto size = static_cast<size_t>(layout.ScaleBytes());
    std::memcpy(to + layout.ScaleAt(lane), &part.scales[at], size);
    if (layout.scheme.minimum) std::memcpy(to + layout.MinimumAt(lane), &part.minimums[at], size);
    if (layout.scheme.HasZeroPoint()) to[layout.ZeroPointAt(lane)] = std::byte{part.zero_points[at]};
    for (int64_t step = 0; step < layout.GroupSteps(group); ++step) {
      const int64_t k = columns[static_cast<size_t>(layout.GroupBegin(group) + step)];
      const unsigned code = part.codes[static_cast<size_t>(row * spec.k + k)] ^ (layout.turned ? 0x80u : 0u);
      to[layout.CodeAt(lane, step)] |= static_cast<std::byte>(code << layout.CodeShift(step));
    }
  }
}

PackedCodes PackCodes(const QuantProblem& problem) {
  const ir::KernelSpec& spec = problem.spec;
  PackedCodes packed;
  std::vector<int64_t> begins;
  for (const QuantPart& part : problem.parts) packed.columns.push_back(SortedColumns(spec, part, begins));
  if (spec.order == ir::InputOrder::kUneven) packed.group_begins = begins;
  const ir::CodeLayout layout = ir::CodeLayoutOf(spec, packed.group_begins);
  packed.panels.resize(static_cast<size_t>(layout.TotalBytes()));
  for (int64_t panel = 0; panel < layout.panels.Panels(); ++panel) {
    for (int64_t lane = 0; lane < ir::kPanelLanes; ++lane) {
      packed.lane_scales.push_back(1.0f);
      const int64_t n = layout.panels.RowOf(panel, lane);
      if (n < 0) continue;
      const auto [part, row] = Locate(problem, n);
      packed.lane_scales.back() = part->global_scale;
      const auto index = static_cast<size_t>(part - problem.parts.data());
      PackLane(spec, layout, *part, row, packed.columns[index], lane,
               packed.panels.data() + panel * layout.PanelBytes());
    }
  }
  return packed;
}

}  // namespace

ir::KernelSpec SchemeSpec(ir::Contraction contraction, std::string_view scheme, int64_t n, int64_t k) {
  ir::KernelSpec spec;
  spec.contraction = contraction;
  spec.n = n;
  spec.k = k;
  spec.scheme = ir::QuantScheme::Parse(scheme).value();
  spec.w = spec.scheme->CodeDType();
  spec.interleave = ir::CodeInterleave(contraction, *spec.scheme);
  return spec;
}

ir::KernelSpec IntegerSpec(ir::DType x, int64_t n, int64_t k) {
  ir::KernelSpec spec;
  spec.contraction = ir::Contraction::kInteger;
  spec.n = n;
  spec.k = k;
  spec.x = x;
  spec.w = ir::DType::kInt8;
  spec.interleave = 4;
  return spec;
}

ir::KernelSpec Requantized(ir::KernelSpec spec) {
  spec.requantize = true;
  spec.y = spec.x;
  return spec;
}

uint32_t ScaleBits(ir::ScaleType type, float scale) {
  switch (type) {
    case ir::ScaleType::kFloat32:
      return std::bit_cast<uint32_t>(scale);
    case ir::ScaleType::kFloat16:
      return ir::FloatToHalf(scale);
    case ir::ScaleType::kBFloat16:
      return ir::FloatToBFloat16(scale);
    case ir::ScaleType::kE8m0:
    case ir::ScaleType::kE4m3:
      break;
  }
  for (uint32_t bits = 0; bits < 256; ++bits) {
    if (ir::DecodeScale(type, bits) == scale) return bits;
  }
  ADD_FAILURE() << scale << " is no scale of that type";
  return 0;
}

QuantPart RandomPart(const ir::KernelSpec& spec, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  QuantPart part;
  part.rows = rows;
  const unsigned mask = spec.scheme ? (1u << spec.scheme->bits) - 1 : 255;
  for (int64_t i = 0; i < rows * spec.k; ++i) {
    auto code = static_cast<uint8_t>(random() & mask);
    if (spec.scheme && spec.scheme->codebook >= ir::Codebook::kE4m3) code &= 0xdb;  // no NaN or infinity among them
    part.codes.push_back(code);
  }
  if (!spec.scheme) return part;
  const auto random_scale = [&] {
    const float power = std::ldexp(1.0f, static_cast<int>(random() % 4) - 2);
    const bool plain = spec.scheme->scale_type == ir::ScaleType::kE8m0;
    return ScaleBits(spec.scheme->scale_type, plain ? power : random() % 2 ? 1.25f * power : -power);
  };
  for (int64_t i = 0; i < rows * Groups(spec); ++i) {
    part.scales.push_back(random_scale());
    if (spec.scheme->minimum) part.minimums.push_back(random_scale());
    if (spec.scheme->HasZeroPoint()) part.zero_points.push_back(static_cast<uint8_t>(random() & mask));
  }
  if (spec.scheme->HasGlobalScale()) part.global_scale = 0.3f;
  return part;
}

QuantProblem RandomQuantProblem(const ir::KernelSpec& spec, int64_t rows, std::vector<int64_t> part_rows,
                                uint64_t seed) {
  EXPECT_TRUE(spec.Verify().ok()) << spec.Verify();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  QuantProblem problem;
  problem.spec = spec;
  problem.rows = rows;
  for (int64_t i = 0; i < rows * spec.k; ++i) {
    std::byte element[4];
    const float value = ir::IsFloat(spec.x) ? normal(random) : static_cast<float>(random() & 255);
    Store(spec.x, value, element);
    problem.x.push_back(Load(spec.x, element));
  }
  std::vector<int32_t> groups;
  for (int64_t k = 0; k < spec.k && spec.order != ir::InputOrder::kNatural; ++k) {
    const auto count = static_cast<uint64_t>(Groups(spec));
    const bool uneven = spec.order == ir::InputOrder::kUneven;
    groups.push_back(static_cast<int32_t>(uneven ? random() % count : static_cast<uint64_t>(k / GroupSize(spec))));
  }
  for (int64_t part : part_rows) {
    problem.parts.push_back(RandomPart(spec, part, random()));
    // As many inputs of a group in each part, and most often not the same ones.
    if (random() % 3 != 0) std::shuffle(groups.begin(), groups.end(), random);
    problem.parts.back().g_idx = groups;
  }
  for (int64_t i = 0; i < spec.n; ++i) {
    if (spec.bias == ir::BiasKind::kFloat32) problem.bias.push_back(normal(random));
    problem.weight_scale.push_back(0.01f + std::fabs(normal(random)));
  }
  if (spec.contraction == Contraction::kInteger) {
    problem.input_scale = 0.03f;
    problem.input_zero_point = spec.x == ir::DType::kInt8 ? -5 : 131;
    problem.output_scale = 20.0f;
    problem.output_zero_point = spec.y == ir::DType::kInt8 ? 3 : 120;
  }
  return problem;
}

void MakeExtreme(QuantProblem& problem, uint64_t seed) {
  const ir::KernelSpec& spec = problem.spec;
  std::mt19937_64 random(seed);
  const auto one_of = [&](std::initializer_list<float> values) { return values.begin()[random() % values.size()]; };
  for (float& x : problem.x) {
    if (spec.contraction == Contraction::kInteger) {
      if (random() % 3 == 0) x = spec.x == ir::DType::kInt8 ? one_of({-128, 127}) : one_of({0, 255});
      continue;
    }
    if (random() % 40 != 0) continue;
    std::byte element[4];
    Store(spec.x, one_of({0.0f, -0.0f, 1e-40f, 0x1p-24f, 6e4f, 1e30f, -3e38f, INFINITY, -INFINITY, NAN}), element);
    x = Load(spec.x, element);
  }
  for (QuantPart& part : problem.parts) {
    const uint8_t most = static_cast<uint8_t>(spec.scheme ? (1u << spec.scheme->bits) - 1 : 255);
    const bool same = random() % 3 == 0;
    for (uint8_t& code : part.codes) {
      if (same) code = most == 255 ? 0x80 : most;
      if (!same && random() % 3 == 0) code = static_cast<uint8_t>((random() % 2 ? 0x80 : 0x7f) & most);
    }
    for (std::vector<uint32_t>* const scales : {&part.scales, &part.minimums}) {
      for (uint32_t& scale : *scales) {
        const uint64_t mask = (uint64_t{1} << 8 * ir::SizeOf(spec.scheme->ScaleDType())) - 1;
        if (random() % 20 == 0) scale = static_cast<uint32_t>(random() & mask);
      }
    }
    for (uint8_t& zero : part.zero_points) {
      if (random() % 4 == 0) zero = random() % 2 == 0 ? 0 : most;
    }
    if (random() % 4 == 0) part.global_scale = one_of({0.0f, 1e-40f, 1e30f, 448.0f, -1.0f});
  }
  for (float& bias : problem.bias) {
    if (random() % 20 == 0) bias = one_of({0.0f, -0.0f, 1e-40f, 3e38f, INFINITY, NAN});
  }
  for (float& scale : problem.weight_scale) {
    if (random() % 20 == 0) scale = one_of({0.0f, 1e-40f, 1e-20f, 1e30f, -1.0f});
  }
  const bool is_signed = spec.x == ir::DType::kInt8;
  if (random() % 2 == 0)
    problem.input_zero_point = static_cast<int32_t>(one_of({0, 1, 127, 128, 254, 255})) - 128 * is_signed;
  if (random() % 2 == 0) problem.output_zero_point = static_cast<int32_t>(one_of({0, 1, 128, 255})) - 128 * is_signed;
  if (random() % 4 == 0) problem.input_scale = one_of({1e-30f, 1.0f, 1e20f});
  if (random() % 4 == 0) problem.output_scale = one_of({1e-30f, 0.5f, 1.0f, 3.0f, 1e20f});
}

std::vector<float> RunQuant(const QuantProblem& problem, const QuantLaunch& launch) {
  const auto [emitted, edge, tile_rows, tile_panels, stray_write, prepares] = launch;
  const ir::KernelSpec& spec = problem.spec;
  const LoadedKernel kernel(emitted != nullptr ? *emitted
                                               : std::get<EmittedKernel>(PortableEmitter().Emit(spec, Target{})));
  const auto x_size = static_cast<int64_t>(ir::SizeOf(spec.x)), y_size = static_cast<int64_t>(ir::SizeOf(spec.y));
  const int64_t x_stride = (spec.k + 1) * x_size, y_stride = (spec.outputs() + 3) * y_size;
  if (problem.rows == 0) return {};
  GuardedBuffer x(static_cast<size_t>((problem.rows - 1) * x_stride + spec.k * x_size), edge);
  std::memset(x.data(), 0xff, x.bytes());
  for (int64_t i = 0; i < problem.rows * spec.k; ++i) {
    Store(spec.x, problem.x[static_cast<size_t>(i)], x.data() + i / spec.k * x_stride + i % spec.k * x_size);
  }
  std::vector<std::unique_ptr<GuardedBuffer>> buffers;
  const auto keep = [&](std::unique_ptr<GuardedBuffer> buffer) {
    buffers.push_back(std::move(buffer));
    return buffers.back().get();
  };
  const ir::PanelLayout layout = ir::LayoutOf(spec);
  std::vector<float> padded_bias = problem.bias;
  if (!padded_bias.empty()) padded_bias.resize(static_cast<size_t>(layout.Panels() * layout.OutputsPerPanel()));
  const GuardedBuffer* bias = keep(Guarded(padded_bias, edge));
  const bool is_integer = spec.contraction == Contraction::kInteger;
  const IntegerColumns columns = is_integer ? PackIntegers(problem) : IntegerColumns();
  const PackedCodes packed = is_integer ? PackedCodes() : PackCodes(problem);
  const std::byte* const panels = keep(Guarded(is_integer ? columns.panels : packed.panels, edge))->data();
  const int64_t panel_bytes = ir::PackedPanelBytes(spec, packed.group_begins);
  CodeArgs codes;
  codes.group_begins = packed.group_begins;
  codes.lane_scales = keep(Guarded(packed.lane_scales, edge))->as<float>();
  std::vector<ColumnOrder> orders;
  for (size_t i = 0; i < problem.parts.size() && spec.order != ir::InputOrder::kNatural; ++i) {
    const auto same =
        std::find(packed.columns.begin(), packed.columns.begin() + static_cast<ptrdiff_t>(i), packed.columns[i]);
    const auto first = static_cast<size_t>(same - packed.columns.begin());
    orders.push_back({first < i ? orders[first].columns : keep(Guarded(packed.columns[i], edge))->as<int32_t>(),
                      problem.parts[i].rows});
  }
  codes.orders = orders;
  IntegerQuant integer;
  integer.scales = keep(Guarded(columns.scales, edge))->as<float>();
  integer.column_sums = keep(Guarded(columns.sums, edge))->as<int64_t>();
  integer.input_zero_point = problem.input_zero_point;
  integer.output_scale = problem.output_scale;
  integer.output_zero_point = problem.output_zero_point;
  GuardedBuffer y(static_cast<size_t>((problem.rows - 1) * y_stride + spec.outputs() * y_size), edge);
  const int64_t scratch_bytes = ScratchBytes(spec, kernel.image().schedule, std::min(tile_rows, problem.rows),
                                             std::min(tile_panels, layout.Panels()));
  GuardedBuffer scratch(static_cast<size_t>((scratch_bytes + 63) / 64 * 64), edge);
  // Rows are prepared in two calls, as threads do.
  const int64_t prepared_bytes = PreparedBytes(kernel.image(), &codes, problem.rows);
  GuardedBuffer prepared(static_cast<size_t>((prepared_bytes + 63) / 64 * 64), edge);
  GuardedBuffer prepare_scratch(static_cast<size_t>((PrepareScratchBytes(kernel.image()) + 63) / 64 * 64), edge);
  // What is read of these has to be written first: as floats these bytes are NaN.
  for (const GuardedBuffer* buffer : {&scratch, &prepared, &prepare_scratch}) {
    if (buffer->bytes() > 0) std::memset(buffer->data(), 0xFF, buffer->bytes());
  }
  PrepareArgs prepare{.x = x.data(), .x_stride = x_stride, .codes = &codes, .rows = problem.rows};
  prepare.out = prepared.data();
  prepare.scratch = prepare_scratch.data();
  for (const int64_t end : {problem.rows / 2, problem.rows}) {
    prepare.count = end - prepare.first;
    prepares(kernel.image(), prepare);
    prepare.first = end;
  }
  constexpr std::byte kCanary{0xa5};
  std::fill_n(y.data(), y.bytes(), kCanary);
  for (int64_t row = 0; row < problem.rows; row += tile_rows) {
    for (int64_t panel = 0; panel < layout.Panels(); panel += tile_panels) {
      TileArgs args;
      args.x = x.data() + row * x_stride;
      args.x_stride = x_stride;
      args.rows = std::min(tile_rows, problem.rows - row);
      if (prepared_bytes > 0) args.prepared = {prepared.data(), problem.rows, row};
      args.weights = panels + panel * panel_bytes;
      if (is_integer) {
        args.integer = &integer;
      } else {
        args.codes = &codes;
      }
      args.first_panel = panel;
      args.panels = std::min(tile_panels, layout.Panels() - panel);
      args.bias = problem.bias.empty() ? nullptr : bias->as<float>();
      args.y = y.data() + row * y_stride;
      args.y_stride = y_stride;
      args.scratch = scratch.data();
      kernel.Run(args);
    }
  }
  std::vector<float> result;
  for (int64_t row = 0; row < problem.rows; ++row) {
    const std::byte* from = y.data() + row * y_stride;
    for (int64_t i = 0; i < spec.outputs(); ++i) result.push_back(Load(spec.y, from + i * y_size));
    if (row + 1 == problem.rows) break;
    for (int64_t i = spec.outputs() * y_size; i < y_stride; ++i) {
      if (from[i] != kCanary) ReportStrayWrite(row, i, spec.outputs() * y_size, stray_write);
    }
  }
  return result;
}

}  // namespace clikart::codegen
