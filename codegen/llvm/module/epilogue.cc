// The epilogue: bias, program, one rounding and the store, a vector of outputs at a time. Its loops are nested so
// that a vector's bias is read once for all rows.

#include <algorithm>
#include <cstddef>

#include "clikart/ir/activation.h"
#include "clikart/ir/panel_layout.h"
#include "entries.h"
#include "panel_driver.h"
#include "program.h"

namespace clikart::codegen::llvm_module {

namespace {

using Turn = KernelBuilder::Turn;

constexpr int kGatedOutputs = ir::kPanelLanes / 2;
constexpr int64_t kHalfBytes = kGatedOutputs * sizeof(float);

// What makes a program's input of an accumulator: the bias, of an integer contraction the other terms too.
struct Terms {
  Value* compensation = nullptr;
  Value* scale = nullptr;
  Value* bias = nullptr;
};

class Epilogue {
 public:
  Epilogue(KernelBuilder& build, const ir::KernelSpec& spec)
      : build_(build),
        spec_(spec),
        integer_(spec.contraction == ir::Contraction::kInteger),
        biased_(spec.bias != ir::BiasKind::kNone),
        lanes_(spec.gated() ? std::min(kGatedOutputs, build.lanes()) : build.lanes()),
        floats_(build.Floats(lanes_)) {}

  void Build() {
    Value* const c_stride = build_.IntArgument(offsetof(EpilogueArgs, c_stride));
    Value* const y_stride = build_.IntArgument(offsetof(EpilogueArgs, y_stride));
    Value* const rows = build_.IntArgument(offsetof(EpilogueArgs, rows));
    // c, y and the terms of the vector's first column; the columns left.
    const Values start = {
        build_.PointerArgument(offsetof(EpilogueArgs, c)), build_.PointerArgument(offsetof(EpilogueArgs, y)),
        build_.PointerArgument(integer_ ? offsetof(EpilogueArgs, terms) : offsetof(EpilogueArgs, bias)),
        build_.IntArgument(offsetof(EpilogueArgs, columns))};
    build_.Loop("vector", start, [&](const Values& outer) {
      const std::vector<Terms> terms = LoadTerms(outer[2]);
      build_.Loop("row", {outer[0], outer[1], rows}, [&](const Values& now) {
        FinishRow(now[0], now[1], terms, outer[3]);
        Value* const left = build_.CreateSub(now[2], build_.getInt64(1));
        return Turn{{build_.At(now[0], c_stride), build_.At(now[1], y_stride), left}, build_.IsPositive(left)};
      });
      const int64_t bytes = lanes_ * int64_t{sizeof(float)};
      Value* const columns = build_.CreateSub(outer[3], build_.getInt64(lanes_));
      const int64_t y_bytes = lanes_ * static_cast<int64_t>(ir::SizeOf(spec_.y));
      Value* const next_terms = integer_ || biased_ ? build_.At(outer[2], bytes) : outer[2];
      return Turn{{build_.At(outer[0], bytes), build_.At(outer[1], y_bytes), next_terms, columns},
                  build_.IsPositive(columns)};
    });
  }

 private:
  // For the gate and the up projection, or for the one input.
  std::vector<Terms> LoadTerms(Value* from) {
    std::vector<Terms> terms(spec_.gated() ? 2 : 1);
    if (!integer_) {
      if (biased_) terms[0].bias = build_.LoadVector(floats_, from);
      return terms;
    }
    for (size_t half = 0; half < terms.size(); ++half) {
      const auto load = [&](llvm::Type* type, size_t offset) {
        return build_.LoadVector(type, build_.At(from, static_cast<int64_t>(offset + half * kHalfBytes)));
      };
      if (!NeedsInt64(spec_)) {
        terms[half].compensation = load(build_.Ints(lanes_), offsetof(PanelTerms, compensation));
      }
      terms[half].scale = load(floats_, offsetof(PanelTerms, scale));
      if (biased_) terms[half].bias = load(floats_, offsetof(PanelTerms, bias));
    }
    return terms;
  }

  Value* LoadInput(Value* from, const Terms& terms) {
    if (!integer_) {
      Value* const sum = build_.LoadVector(floats_, from);
      return terms.bias != nullptr ? build_.CreateFAdd(sum, terms.bias) : sum;
    }
    Value* sum = nullptr;
    if (terms.compensation == nullptr) {  // the driver has made it f32
      sum = build_.LoadVector(floats_, from);
    } else {
      Value* const whole = build_.CreateAdd(build_.LoadVector(build_.Ints(lanes_), from), terms.compensation);
      sum = build_.CreateSIToFP(whole, floats_);
    }
    return terms.bias != nullptr ? build_.Fma(sum, terms.scale, terms.bias) : build_.CreateFMul(sum, terms.scale);
  }

  // Codes of y as int32.
  Value* Requantize(Value* value) {
    const auto argument = [&](size_t offset, llvm::Type* type) {
      return build_.CreateVectorSplat(lanes_, build_.Argument(offsetof(EpilogueArgs, requantization) + offset, type));
    };
    Value* const low = argument(offsetof(Requantization, low), build_.getFloatTy());
    Value* const high = argument(offsetof(Requantization, high), build_.getFloatTy());
    value = build_.CreateFDiv(value, argument(offsetof(Requantization, scale), build_.getFloatTy()));
    value = build_.CreateSelect(build_.CreateFCmpOGT(value, low), value, low);  // NaN becomes the lowest code
    value = build_.CreateSelect(build_.CreateFCmpOLT(value, high), value, high);
    return build_.CreateAdd(build_.ToInt(value), argument(offsetof(Requantization, zero_point), build_.getInt32Ty()));
  }

  void FinishRow(Value* c, Value* y, const std::vector<Terms>& terms, Value* columns) {
    Values inputs;
    for (size_t half = 0; half < terms.size(); ++half) {
      inputs.push_back(LoadInput(build_.At(c, static_cast<int64_t>(half) * kHalfBytes), terms[half]));
    }
    Value* const result = LowerProgram(build_, ir::ProgramOf(spec_.activation), inputs);
    Value* const elements = spec_.requantize ? build_.CreateTrunc(Requantize(result), build_.Elements(spec_.y, lanes_))
                                             : build_.Round(spec_.y, result);
    Value* const whole = build_.CreateICmpSGE(columns, build_.getInt64(lanes_));
    build_.When(whole, {}, [&](const Values&) {
      build_.StoreVector(elements, y);
      return Values{};
    });
    build_.When(build_.CreateNot(whole), {}, [&](const Values&) {
      build_.StoreFirst(elements, y, columns);
      return Values{};
    });
  }

  KernelBuilder& build_;
  const ir::KernelSpec& spec_;
  const bool integer_;
  const bool biased_;
  const int lanes_;
  llvm::Type* const floats_;
};

}  // namespace

void BuildEpilogue(KernelBuilder& build, const ir::KernelSpec& spec) { Epilogue(build, spec).Build(); }

}  // namespace clikart::codegen::llvm_module
