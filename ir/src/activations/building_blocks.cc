#include "activations/building_blocks.h"

#include <initializer_list>

namespace clikart::ir {
namespace {

// Coefficients from the highest power down.
Lane Polynomial(Lane x, std::initializer_list<float> coefficients) {
  const float* c = coefficients.begin();
  Lane sum = x.builder().Const(c[0]);
  for (size_t i = 1; i < coefficients.size(); ++i) sum = Fma(sum, x, c[i]);
  return sum;
}

// x = n * ln 2 + remainder with |remainder| <= ln(2) / 2, where x and the remainder are multiplied by
// `scale`. The first step of the subtraction is exact.
struct Reduced {
  Lane n;  // an integer
  Lane remainder;
};

Reduced ReduceByLn2(Lane scaled, float scale) {
  const double ln2 = scale * 0x1.62e42fefa39efp-1;
  const auto high = static_cast<float>(ln2);
  const auto low = static_cast<float>(ln2 - high);
  const Lane n = ToInt(scaled * static_cast<float>(0x1.71547652b82fep+0 / scale));
  const Lane multiple = ToFloat(n);
  return {n, Fma(multiple, -low, Fma(multiple, -high, scaled))};
}

// 2^n for n in [-126, 127].
Lane PowerOfTwo(Lane n) { return IntAdd(Shl(n, 23), n.builder().Const(1.0f)); }

SplitExp ExpOfReduced(const Reduced& reduced) {
  const Lane f = reduced.remainder;
  // (e^f - 1 - f) / f^2, to 2^-28 of e^f.
  const Lane p = Polynomial(f, {0x1.6d9a60p-10f, 0x1.1228f4p-7f, 0x1.555486p-5f, 0x1.5554aep-3f, 0x1.000000p-1f});
  const Lane exp_f = Fma(Fma(p, f, 1.0f), f, 1.0f);
  const Lane half = Sar(reduced.n, 1);
  return {IntAdd(exp_f, Shl(half, 23)), PowerOfTwo(IntSub(reduced.n, half))};
}

}  // namespace

SplitExp ExpNegative(Lane x) { return ExpOfReduced(ReduceByLn2(x, 1.0f)); }

SplitExp ExpNegative(Lane x, Lane correction) {
  const Reduced reduced = ReduceByLn2(x, 1.0f);
  return ExpOfReduced({reduced.n, reduced.remainder + correction});
}

Lane Value(const SplitExp& e) { return e.significand * e.scale; }

TwoSums Expm1Negative(Lane scaled, float scale) {
  // Everything linear in x stays multiplied by `scale`: x itself may be too small to be a normal number.
  const Reduced reduced = ReduceByLn2(scaled, scale);
  const Lane f = scale == 1.0f ? reduced.remainder : reduced.remainder * (1.0f / scale);
  // (e^f - 1 - f) / f^2, to 2^-32 of e^f - 1.
  const Lane p =
      Polynomial(f, {0x1.a1a2b8p-13f, 0x1.6d7598p-10f, 0x1.11108ep-7f, 0x1.5554acp-5f, 0x1.555556p-3f, 0x1.000000p-1f});
  const Lane expm1_f = Fma(reduced.remainder * f, p, reduced.remainder);
  // e^x -+ 1 = 2^n (e^f - 1) + (2^n -+ 1)
  const Lane power = PowerOfTwo(reduced.n);
  return {Fma(power, expm1_f, Fma(power, scale, -scale)), Fma(power, expm1_f, Fma(power, scale, scale))};
}

Lane TimesSigmoid(Lane x, Lane y) {
  // With e = exp(-|y|): x / (1 + e) or x * e / (1 + e).
  const SplitExp split = ExpNegative(AtLeast(-150.0f, NegativeAbs(y)));
  const Lane small = (x * split.significand) * split.scale;
  return Select(Less(y, 0.0f), small, x) / (Value(split) + 1.0f);
}

Lane Log1p(Lane x) {
  // 2 atanh(s) with s = x / (x + 2) <= 1/3: 2 s + s^3 * (a series in s^2).
  const Lane s = x / (x + 2.0f);
  const Lane square = s * s;
  const Lane p = Polynomial(square, {0x1.f0ced4p-3f, 0x1.b7176ap-3f, 0x1.250626p-2f, 0x1.9996ccp-2f, 0x1.555558p-1f});
  return Fma(square * p, s, s + s);
}

Lane Silu(Lane x) {
  const Lane bounded = AtLeast(-150.0f, x);
  return TimesSigmoid(bounded, bounded);
}

Lane Gelu(Lane x) {
  // x * Phi(x) = max(x, 0) - a * Phi(-a) with a = |x|, and Phi(-a) = exp(-a^2 / 2) * G(a), where G falls slowly
  // from 1/2 and keeps the tail's relative accuracy. Beyond 14.5 the second term is 0.
  const Lane a = AtMost(14.5f, Abs(x));
  const Lane u = (a - 3.0f) / (a + 3.0f);
  const Lane g = Polynomial(u, {0x1.bdf4f0p-15f, 0x1.e2672cp-14f, -0x1.637b2ap-12f, -0x1.01c35ep-10f, 0x1.7caf14p-9f,
                                0x1.91dcecp-8f, -0x1.7a943ep-5f, 0x1.f8bad2p-4f, -0x1.a6b66ap-3f, 0x1.f1b89cp-4f});
  // The square's rounding error would cost 100 ulp in the exponent, so it is carried along.
  const Lane half = a * -0.5f;
  const Lane exponent = half * a;
  const Lane rest = Fma(half, a, Abs(exponent));
  const SplitExp split = ExpNegative(exponent, rest);
  const Lane tail = ((a * g) * split.significand) * split.scale;
  return PositivePart(x) - tail;
}

}  // namespace clikart::ir
