"""QLinearWoQ.quantize(scales="mse") takes the best of a documented list of grids: the list written down in NumPy's
float64, candidate by candidate, gives the same scales, minimums, zero points and codes."""

import ml_dtypes
import numpy as np
import pytest
from clika_runtime import nn
from test_quantize import TABLES, linear_of

SCHEMES = [
    *["int4_g16", "int4_g32_asym", "int4_g16_min", "int8", "int8_g16_asym_bf16", "int2_g7_min", "int2_g16_f32"],
    *["int8_min_f32", "int4_g16_min_f32", "int4_g16_e8m0", "nf4_g16", "nf4_bf16", "fp4_g16_e4m3", "mxfp4", "nvfp4"],
    *["fp8_e4m3", "fp8_e5m2_g16_f32"],
]
# Positive numbers of the scale types that are few enough to write down, those in use as scales.
NUMBERS = {
    "float16": np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64),
    "bfloat16": np.arange(0x80, 0x7F80, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float64),
    "e8m0": 2.0 ** np.arange(-126, 128),
    "e4m3": np.arange(1, 0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64),
}


def least_scale(kind, wanted):
    """The least scale of a type that is at least `wanted`; None where there is none."""
    if kind == "float32":
        with np.errstate(over="ignore"):
            near = np.float32(wanted)
        if float(near) < wanted:
            near = np.nextafter(near, np.float32(np.inf))
        return max(float(near), 2.0**-126) if np.isfinite(near) else None
    at = np.searchsorted(NUMBERS[kind], wanted)
    return NUMBERS[kind][at] if at < len(NUMBERS[kind]) else None


def greatest_minimum(kind, wanted):
    dtype = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[kind]
    near = dtype(wanted)
    return float(near if float(near) <= wanted else np.nextafter(near, dtype(-np.inf)))


def total(terms):
    """One addition after the other: NumPy's own sum adds in pairs."""
    return np.cumsum(terms)[-1]


class Search:
    def __init__(self, scheme, global_scale):
        self.scheme, self.kind = scheme, str(scheme.scale_dtype).removeprefix("clika_runtime.")
        self.global_scale = global_scale
        self.minimum = "_min" in str(scheme)
        self.zero_point = not scheme.symmetric and not self.minimum
        if scheme.codebook is not None:
            table = TABLES[scheme.codebook].astype(np.float64)
            codes = np.flatnonzero(np.isfinite(table) & ~((table == 0) & np.signbit(table)))
            self.codes = codes[np.argsort(table[codes])]
            self.levels = table[self.codes]
            self.middles = (self.levels[1:] + self.levels[:-1]) / 2
        else:
            span = 2**scheme.bits
            self.levels = np.arange(span) - (span // 2 if scheme.symmetric else 0.0)

    def nearest(self, weights, grid):
        """The values, less the zero point, and the codes."""
        _, scale, zero, minimum = grid
        numbers = (weights - minimum) / scale
        if self.scheme.codebook is None:
            values = np.round(np.clip(numbers, self.levels[0] - zero, self.levels[-1] - zero))
            return values, values + zero
        below = np.searchsorted(self.middles, numbers)
        tie = (below < len(self.middles)) & (self.middles[np.minimum(below, len(self.middles) - 1)] == numbers)
        below = below + (tie & (self.codes[below] % 2 == 1))
        return self.levels[below], self.codes[below]

    def stored(self, wanted):
        slack = 1 - 2.0**-22 if self.scheme == nn.QuantScheme.parse("nvfp4") else 1
        return least_scale(self.kind, wanted / self.global_scale * slack)

    def grid(self, wanted, minimum=0.0, low=None):
        stored = self.stored(wanted)
        if stored is None:
            return None
        scale = float(np.float32(stored * self.global_scale))
        zero = np.round(np.clip(-low / scale, 0, self.levels[-1])) if self.zero_point else 0.0
        return stored, scale, zero, minimum

    def cover(self, low, high):
        if self.minimum:
            minimum = greatest_minimum(self.kind, low)
            return self.grid((high - minimum) / self.levels[-1], minimum)
        if self.zero_point:
            return self.grid((high - low) / self.levels[-1], low=low)
        return self.grid(max(low / self.levels[0], high / self.levels[-1]))

    def sums(self, weights, counts, grid):
        values, _ = self.nearest(weights, grid)
        off = weights - (grid[1] * values + grid[3])
        terms = (counts * off * off, counts * values, counts * values * values, counts * weights * values)
        return tuple(total(term) for term in terms)

    def refitted(self, weights, counts, grid):
        _, v, vv, wv = self.sums(weights, counts, grid)
        count, w = total(counts), total(counts * weights)
        up, down = (wv * count - w * v, vv * count - v * v) if self.minimum else (wv, vv)
        if not (down > 0 and up / down > 0):
            return None
        stored = self.stored(up / down)
        if stored is None:
            return None
        scale = float(np.float32(stored * self.global_scale))
        minimum = greatest_minimum(self.kind, (w - scale * v) / count) if self.minimum else 0.0
        return None if (stored, minimum) == (grid[0], grid[3]) else (stored, scale, grid[2], minimum)

    def candidates(self, weights, counts):
        low, high = weights.min(), weights.max()
        if not self.minimum:
            low, high = min(low, 0.0), max(high, 0.0)
        center = (low + high) / 2 if self.minimum else 0.0
        yield self.cover(low, high)
        for i in range(17):
            factor = 1 - 0.5 * i / 16
            grid = self.cover(center - (center - low) * factor, center + (high - center) * factor)
            for _ in range(3):
                if grid is None:
                    break
                yield grid
                grid = self.refitted(weights, counts, grid)

    def best(self, weights, counts):
        return min(self.candidates(weights, counts), key=lambda grid: self.sums(weights, counts, grid)[0])


def unpacked(layer):
    codes, bits = np.asarray(layer.weight), layer.scheme.bits
    if bits == 8:
        return codes
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return (codes[:, :, None] >> shifts & 2**bits - 1).reshape(len(codes), -1)[:, : layer.in_features]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_search_takes_the_best_of_its_list(rng, scheme, weighted):
    weight = (rng.standard_normal((11, 40)) * np.exp(rng.standard_normal((11, 40)))).astype(np.float32)
    weight[3] += 7
    weight[4] = np.round(weight[4] * 4) / 4  # weights half way between two values, and grids that are equally good
    importance = np.square(rng.standard_normal(40)).astype(np.float32)
    importance[::9] = 0
    options = {"importance": importance} if weighted else {}
    layer = nn.QLinearWoQ.quantize(linear_of(weight), scheme, scales="mse", **options)
    global_scale = 1.0 if layer.weight_global_scale is None else float(np.asarray(layer.weight_global_scale)[0])
    search = Search(layer.scheme, global_scale)
    size = 40 if layer.scheme.group_size < 0 else layer.scheme.group_size
    codes = unpacked(layer)
    wanted_codes, grids = np.zeros_like(codes), []
    for row in range(len(weight)):
        for first in range(0, 40, size):
            group = slice(first, min(first + size, 40))
            weights = weight[row, group].astype(np.float64)
            counts = importance[group].astype(np.float64) if weighted else np.ones(len(weights))
            grid = search.best(weights, counts)
            grids.append(grid)
            found = search.nearest(weights, grid)[1]
            centered = layer.scheme.codebook is None and layer.scheme.symmetric and layer.scheme.bits < 8
            wanted_codes[row, group] = found + (2 ** (layer.scheme.bits - 1) if centered else 0)
    stored, _, zeros, minimums = (np.array(column).reshape(len(weight), -1) for column in zip(*grids, strict=True))
    scales = np.asarray(layer.weight_scale)
    if search.kind == "e8m0":
        scales = 2.0 ** (scales.astype(np.float64) - 127)
    elif search.kind == "e4m3":
        scales = scales.view(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(scales.astype(np.float64), stored)
    if layer.weight_minimum is not None:
        np.testing.assert_array_equal(np.asarray(layer.weight_minimum).astype(np.float64), minimums)
    if layer.weight_zero_point is not None:
        np.testing.assert_array_equal(np.asarray(layer.weight_zero_point).astype(np.float64), zeros)
    np.testing.assert_array_equal(codes, wanted_codes)
