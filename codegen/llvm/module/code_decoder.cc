#include "code_decoder.h"

#include "group_header.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "program.h"

namespace clikart::codegen::llvm_module {
namespace {

constexpr int kIndexBits = 4;  // of a table of ir::kLevels
constexpr int kPermutedLanes = 16;

}  // namespace

// One permutation looks up sixteen levels where registers have as many lanes. Elsewhere integers need no table.
CodeDecoder::CodeDecoder(KernelBuilder& build, const ir::KernelSpec& spec, int positions)
    : build_(build),
      layout_(ir::CodeLayoutOf(spec)),
      decoding_(ir::DecodingOf(layout_.scheme)),
      placed_(build.lanes() < kPermutedLanes ? PlacedCodes::Of(decoding_) : std::nullopt),
      positions_(positions) {
  if (in_units() && !placed_ && build.lanes() == 4) table_ = build.Constants(decoding_.levels);
}

void CodeDecoder::BeginGroup(Value* header) {
  zero_points_ = LoadZeroPoints(build_, layout_, header);
  for (Value*& vector : zero_points_) vector = build_.CreateSIToFP(vector, build_.Floats(build_.lanes()));
  if (!placed_) return;
  offsets_.clear();
  for (int position = 0; position < positions_ && placed_->PositionOf(position) == position; ++position) {
    Values& offsets = offsets_.emplace_back(vectors(), Splat(placed_->Offset(position)));
    for (size_t i = 0; i < zero_points_.size(); ++i) offsets[i] = build_.CreateFAdd(zero_points_[i], offsets[i]);
  }
}

Value* CodeDecoder::DecodeUnits(Value* units, int code, int vector) {
  const int position = placed_ && code < positions_ ? placed_->PositionOf(code) : 0;
  if (code != position) units = build_.CreateLShr(units, static_cast<uint64_t>(code * decoding_.bits));
  if (!placed_) return SubtractZeroPoints(LevelsOf(units), vector);
  Value* const masked = build_.CreateAnd(units, build_.Bits(placed_->Mask(position), build_.lanes()));
  Value* const base = build_.CreateBitCast(Splat(placed_->Base(position)), units->getType());
  Value* const number = build_.CreateBitCast(build_.CreateOr(masked, base), build_.Floats(build_.lanes()));
  return build_.CreateFSub(number, offsets_[static_cast<size_t>(position)][static_cast<size_t>(vector)]);
}

Value* CodeDecoder::DecodeBytes(Value* from, int vector) {
  Value* const codes = LoadBytes(build_, build_.At(from, int64_t{vector} * build_.lanes()), decoding_.is_signed);
  Value* const input = build_.CreateBitCast(codes, build_.Floats(build_.lanes()));
  return SubtractZeroPoints(LowerProgram(build_, decoding_.program, {&input, 1}), vector);
}

Value* CodeDecoder::SubtractZeroPoints(Value* values, int vector) {
  return zero_points_.empty() ? values : build_.CreateFSub(values, zero_points_[static_cast<size_t>(vector)]);
}

// By the low kIndexBits of each lane: the table repeats its levels where codes are shorter.
Value* CodeDecoder::LevelsOf(Value* codes) {
  const int lanes = build_.lanes();
  switch (lanes) {
    case kPermutedLanes:
      return build_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {TableFrom(0), codes});
    case 8: {
      const auto half = [&](int first) {
        return build_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {TableFrom(first), codes});
      };
      Value* const top_bit = build_.CreateShl(codes, 32 - kIndexBits);
      return build_.CreateSelect(build_.CreateICmpSLT(top_bit, build_.Bits(0, lanes)), half(8), half(0));
    }
    default:
      return LookUp(build_.CreateAnd(codes, build_.Bits(ir::kLevels - 1, lanes)));
  }
}

// A vector of the table from level `first` on.
Value* CodeDecoder::TableFrom(int first) {
  const auto lanes = static_cast<size_t>(build_.lanes());
  return llvm::ConstantDataVector::get(
      build_.getContext(), llvm::ArrayRef<float>(decoding_.levels).slice(static_cast<size_t>(first), lanes));
}

Value* CodeDecoder::LookUp(Value* indices) {
  const int lanes = build_.lanes();
  Value* levels = llvm::PoisonValue::get(build_.Floats(lanes));
  for (int lane = 0; lane < lanes; ++lane) {
    Value* const index = build_.CreateExtractElement(indices, static_cast<uint64_t>(lane));
    Value* const place = build_.CreateGEP(build_.getFloatTy(), table_, build_.CreateZExt(index, build_.getInt64Ty()));
    levels =
        build_.CreateInsertElement(levels, build_.CreateLoad(build_.getFloatTy(), place), static_cast<uint64_t>(lane));
  }
  return levels;
}

Value* CodeDecoder::Splat(float number) { return build_.FloatBits(std::bit_cast<uint32_t>(number), build_.lanes()); }

}  // namespace clikart::codegen::llvm_module
