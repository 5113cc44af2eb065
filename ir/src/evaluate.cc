// Interprets programs: each operation runs over a block of lanes before the next one starts.
#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "clikart/ir/program.h"

namespace clikart::ir {
namespace {

constexpr int64_t kBlock = 32;

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
float Float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t Mask(bool condition) { return condition ? 0xffffffffu : 0u; }

// Lane operations take the bits of up to three operands and the immediate.
template <typename F>
inline __attribute__((always_inline)) void ForLanes(uint32_t* out, const uint32_t* a, const uint32_t* b,
                                                    const uint32_t* c, F f) {
  for (int64_t i = 0; i < kBlock; ++i) out[i] = f(a[i], b[i], c[i]);
}

// Lanes past the caller's hold zeros: computing on them is harmless and keeps the loops of fixed length.
inline __attribute__((always_inline)) void RunBlock(const Program& program, uint32_t (*values)[kBlock]) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& in = program.instructions[i];
    uint32_t* out = values[static_cast<size_t>(program.inputs) + i];
    const uint32_t *a = values[in.a], *b = values[in.b], *c = values[in.c];
    const uint32_t imm = in.imm;
    using U = uint32_t;
    switch (in.op) {
      case Op::kConst:
        ForLanes(out, a, b, c, [=](U, U, U) { return imm; });
        break;
      case Op::kAdd:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Bits(Float(x) + Float(y)); });
        break;
      case Op::kSub:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Bits(Float(x) - Float(y)); });
        break;
      case Op::kMul:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Bits(Float(x) * Float(y)); });
        break;
      case Op::kDiv:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Bits(Float(x) / Float(y)); });
        break;
      case Op::kFma:
        for (int64_t j = 0; j < kBlock; ++j) out[j] = Bits(__builtin_fmaf(Float(a[j]), Float(b[j]), Float(c[j])));
        break;
      case Op::kMax:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Float(x) > Float(y) ? x : y; });
        break;
      case Op::kMin:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Float(x) < Float(y) ? x : y; });
        break;
      case Op::kLess:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Mask(Float(x) < Float(y)); });
        break;
      case Op::kLessEq:
        ForLanes(out, a, b, c, [](U x, U y, U) { return Mask(Float(x) <= Float(y)); });
        break;
      case Op::kIsNan:
        ForLanes(out, a, b, c, [](U x, U, U) { return Mask(Float(x) != Float(x)); });
        break;
      case Op::kSelect:
        ForLanes(out, a, b, c, [](U x, U y, U z) { return (x & y) | (~x & z); });
        break;
      case Op::kAnd:
        ForLanes(out, a, b, c, [](U x, U y, U) { return x & y; });
        break;
      case Op::kOr:
        ForLanes(out, a, b, c, [](U x, U y, U) { return x | y; });
        break;
      case Op::kXor:
        ForLanes(out, a, b, c, [](U x, U y, U) { return x ^ y; });
        break;
      case Op::kAndNot:
        ForLanes(out, a, b, c, [](U x, U y, U) { return ~x & y; });
        break;
      case Op::kIntAdd:
        ForLanes(out, a, b, c, [](U x, U y, U) { return x + y; });
        break;
      case Op::kIntSub:
        ForLanes(out, a, b, c, [](U x, U y, U) { return x - y; });
        break;
      case Op::kShl:
        ForLanes(out, a, b, c, [=](U x, U, U) { return x << imm; });
        break;
      case Op::kShr:
        ForLanes(out, a, b, c, [=](U x, U, U) { return x >> imm; });
        break;
      case Op::kSar:
        ForLanes(out, a, b, c, [=](U x, U, U) { return static_cast<U>(static_cast<int32_t>(x) >> imm); });
        break;
      case Op::kToInt:  // the instruction's own answer for NaN and out of range is the definition
        ForLanes(out, a, b, c, [](U x, U, U) { return static_cast<U>(_mm_cvtss_si32(_mm_set_ss(Float(x)))); });
        break;
      case Op::kToFloat:
        ForLanes(out, a, b, c, [](U x, U, U) { return Bits(static_cast<float>(static_cast<int32_t>(x))); });
        break;
    }
  }
}

using BlockFunction = void (*)(const Program&, uint32_t (*)[kBlock]);

// fma is correctly rounded wherever it runs, so the instruction and the C library give the same bits.
__attribute__((target("fma"))) void RunBlockFma(const Program& program, uint32_t (*values)[kBlock]) {
  RunBlock(program, values);
}
void RunBlockBaseline(const Program& program, uint32_t (*values)[kBlock]) { RunBlock(program, values); }

BlockFunction ChooseRunBlock() { return __builtin_cpu_supports("fma") ? RunBlockFma : RunBlockBaseline; }

}  // namespace

void EvaluateLanes(const Program& program, std::span<const float* const> inputs, int64_t lanes, float* out) {
  static const BlockFunction run_block = ChooseRunBlock();
  // One row of lanes a value; programs are short, so this stays in the first cache levels.
  std::vector<uint32_t> storage((inputs.size() + program.instructions.size()) * kBlock);
  auto* values = reinterpret_cast<uint32_t(*)[kBlock]>(storage.data());
  for (int64_t first = 0; first < lanes; first += kBlock) {
    const int64_t count = std::min(kBlock, lanes - first);
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (int64_t j = 0; j < count; ++j) values[i][j] = Bits(inputs[i][first + j]);
    }
    run_block(program, values);
    for (int64_t j = 0; j < count; ++j) out[first + j] = Float(values[program.result][j]);
  }
}

float Evaluate(const Program& program, const float* inputs) {
  const float* pointers[2] = {inputs, inputs + 1};
  float out;
  EvaluateLanes(program, std::span(pointers, static_cast<size_t>(program.inputs)), 1, &out);
  return out;
}

}  // namespace clikart::ir
