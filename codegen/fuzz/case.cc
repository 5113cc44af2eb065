#include "case.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clikart/ir/activation.h"

namespace clikart::codegen {
namespace {

std::string FeaturesText(const Target& target) {
  std::string text;
  for (int i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (target.Has(feature)) absl::StrAppend(&text, text.empty() ? "" : "+", std::string(Name(feature)));
  }
  return text.empty() ? "baseline" : text;
}

absl::StatusOr<Target> ParseFeatures(std::string_view text) {
  Target target;
  if (text == "baseline") return target;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(std::string(text), '+'))) {
    int i = 0;
    while (i < kFeatureCount && Name(static_cast<Feature>(i)) != word) ++i;
    if (i == kFeatureCount) return absl::InvalidArgumentError(absl::StrCat("unknown feature \"", word, "\""));
    target.features.Add(static_cast<Feature>(i));
  }
  return target;
}

// The words behind the spec, each once and in any order.
absl::Status ReadWord(std::string_view name, const std::string& value, Case& c) {
  const auto is_number = [&](auto& number) { return absl::SimpleAtoi(value, &number); };
  bool good = true;
  if (name == "rows") {
    good = is_number(c.rows) && c.rows >= 0;
  } else if (name == "seed") {
    good = is_number(c.seed);
  } else if (name == "values") {
    good = value == "ordinary" || value == "extreme";
    c.values = value == "extreme" ? Values::kExtreme : Values::kOrdinary;
  } else if (name == "edge") {
    good = value == "end" || value == "start";
    c.edge = value == "end" ? GuardedBuffer::Edge::kEnd : GuardedBuffer::Edge::kStart;
  } else if (name == "tile") {
    const std::vector<std::string> sides = absl::StrSplit(value, 'x');
    good = sides.size() == 2 && absl::SimpleAtoi(sides[0], &c.tile_rows) &&
           absl::SimpleAtoi(sides[1], &c.tile_panels) && c.tile_rows > 0 && c.tile_panels > 0;
  } else if (name == "emitter") {
    c.emitter = value;
    good = FindEmitter(value) != nullptr;
  } else if (name == "target") {
    const absl::StatusOr<Target> target = ParseFeatures(value);
    if (!target.ok()) return target.status();
    c.target = *target;
  } else {
    good = false;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot use \"", std::string(name), "=", value, "\""));
}

}  // namespace

std::string Case::ToString() const {
  return absl::StrCat(spec.ToString(), " rows=", rows, " values=", values == Values::kExtreme ? "extreme" : "ordinary",
                      " seed=", seed, " tile=", tile_rows, "x", tile_panels,
                      " edge=", edge == GuardedBuffer::Edge::kEnd ? "end" : "start", " emitter=", emitter,
                      " target=", FeaturesText(target));
}

absl::StatusOr<Case> Case::Parse(std::string_view text) {
  const size_t rows = text.find(" rows=");
  if (rows == std::string_view::npos) return absl::InvalidArgumentError("no \"rows=\" behind a kernel spec");
  Case c;
  const absl::StatusOr<ir::KernelSpec> spec = ir::KernelSpec::Parse(text.substr(0, rows));
  if (!spec.ok()) return spec.status();
  c.spec = *spec;
  for (const std::string& word :
       std::vector<std::string>(absl::StrSplit(std::string(text.substr(rows)), ' ', absl::SkipEmpty()))) {
    const size_t equals = std::min(word.find('='), word.size() - 1);
    if (absl::Status status = ReadWord(std::string_view(word).substr(0, equals), word.substr(equals + 1), c);
        !status.ok()) {
      return status;
    }
  }
  if (c.emitter.empty()) return absl::InvalidArgumentError("no \"emitter=\"");
  return c;
}

bool IsQuantized(const ir::KernelSpec& spec) {
  return spec.contraction != ir::Contraction::kFloat && spec.contraction != ir::Contraction::kDepthwise;
}

std::vector<int64_t> PartRows(const Case& c) {
  std::mt19937_64 random(c.seed);
  std::vector<int64_t> parts;
  for (int64_t left = c.spec.n; left > 0; left -= parts.back()) {
    parts.push_back(random() % 2 == 0 ? left : 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(left)));
  }
  if (parts.empty()) parts.push_back(0);
  return parts;
}

std::vector<Case> Simpler(const Case& c) {
  std::vector<Case> simpler;
  const auto add = [&](auto change) {
    Case other = c;
    change(other);
    if (other.ToString() != c.ToString() && other.spec.Verify().ok()) simpler.push_back(std::move(other));
  };
  const auto smaller = [&](auto member, int64_t step) {
    for (const int64_t divisor : {8, 2}) {
      add([&](Case& o) { member(o) = member(o) / divisor / step * step; });
    }
    add([&](Case& o) { member(o) -= std::min(step, member(o)); });
  };
  smaller([](Case& o) -> int64_t& { return o.rows; }, 1);
  if (c.spec.contraction != ir::Contraction::kDepthwise) {
    smaller([](Case& o) -> int64_t& { return o.spec.k; }, 1);
  }
  smaller([](Case& o) -> int64_t& { return o.spec.n; }, c.spec.gated() ? 2 : 1);
  if (c.spec.access == ir::Access::kIndirect) smaller([](Case& o) -> int64_t& { return o.spec.taps; }, 1);
  add([](Case& o) { o.tile_rows = o.tile_panels = 1 << 20; });
  add([](Case& o) { o.edge = GuardedBuffer::Edge::kEnd; });
  add([](Case& o) { o.values = Values::kOrdinary; });
  add([](Case& o) { o.spec.activation = ir::Activation::kNone; });
  add([](Case& o) { o.spec.bias = ir::BiasKind::kNone; });
  add([](Case& o) { o.spec.order = ir::InputOrder::kNatural; });
  add([](Case& o) {
    o.spec.access = ir::Access::kDense;
    o.spec.taps = 1;
  });
  if (ir::IsFloat(c.spec.y)) add([](Case& o) { o.spec.y = ir::DType::kFloat32; });
  add([](Case& o) { o.seed = 0; });
  return simpler;
}

}  // namespace clikart::codegen
