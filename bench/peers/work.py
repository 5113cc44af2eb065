"""The work that every library is given: layers of codes and scales, rows to multiply, and what has to come out.

Layers are K=4096 inputs by N=6144 outputs. There are as many as exceed the last-level cache four times, and they are
run in turn, so that weights come from memory. Scales have eight significant bits: float16, bfloat16 and float32
hold the same weights.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

K, N = 4096, 6144
CHECKED = slice(0, N, 29)  # the outputs that are compared with float64
TIMES_CACHE = 4


class Activations(enum.Enum):
    """What a product multiplies codes with, and how far its result may be from float64's, relative to its norm."""

    FLOAT32 = "float32", 1e-5
    BFLOAT16 = "bfloat16", 1e-2
    INT8 = "8-bit", 2e-2

    @property
    def tolerance(self) -> float:
        return self.value[1]

    @property
    def floating(self) -> bool:
        return self is not Activations.INT8

    def __str__(self) -> str:
        return self.value[0]


@dataclass(frozen=True)
class Turn:
    """A product of the same rows with every layer, one after the other."""

    run: Callable[[], object]
    outputs: Callable[[], list[np.ndarray]]  # of the last run, float [rows, N] a layer


@dataclass(frozen=True)
class Variant:
    """One way in which a library does the work."""

    name: str
    activations: Activations
    prepare: Callable[[np.ndarray], Turn]  # from float32 [rows, K]


def last_level_cache() -> int:
    """Bytes of the largest cache that the first core sees."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size.removesuffix("K")) * 1024 for size in sizes if size.endswith("K")), default=32 << 20)


@dataclass(frozen=True)
class Work:
    """Weights of one scheme: symmetric codes of 4 or 8 bits, one scale a group (0: a row) of inputs."""

    bits: int
    group: int
    least_layers: int = 0

    @property
    def scheme(self) -> str:
        return f"int{self.bits}" + (f"_g{self.group}" if self.group else "")

    @property
    def inputs_per_scale(self) -> int:
        return self.group or K

    @property
    def layers(self) -> int:
        return self.least_layers or -(-TIMES_CACHE * last_level_cache() // (K * N * self.bits // 8))

    @cached_property
    def _first_codes(self) -> np.ndarray:
        half = 1 << (self.bits - 1)
        return np.random.default_rng(1).integers(-half, half, (N, K), np.int8)

    @cached_property
    def _first_scales(self) -> np.ndarray:
        mantissas = np.random.default_rng(2).integers(128, 256, (N, K // self.inputs_per_scale))
        return mantissas.astype(np.float32) / 2**15

    def codes(self, layer: int) -> np.ndarray:
        """int8 [N, K], around 0."""
        return np.roll(self._first_codes, layer, axis=0)

    def scales(self, layer: int, group: int = 0) -> np.ndarray:
        """float32 [N, groups]; repeated where `group` is smaller than the scheme's."""
        scales = np.roll(self._first_scales, layer, axis=0)
        return np.repeat(scales, self.inputs_per_scale // (group or self.inputs_per_scale), axis=1)

    def nibbles(self, layer: int) -> np.ndarray:
        """4-bit codes from 0, uint8 [N, K/2], the even input in the low half."""
        codes = (self.codes(layer) + 8).astype(np.uint8)
        return codes[:, 0::2] | codes[:, 1::2] << 4

    def rows(self, count: int) -> np.ndarray:
        """float32 [count, K], of which bfloat16 holds every value."""
        rows = np.random.default_rng(count).standard_normal((count, K), np.float32)
        return (rows.view(np.uint32) & 0xFFFF0000).view(np.float32)

    def expected(self, rows: np.ndarray, layer: int) -> np.ndarray:
        """The product in float64, [rows, checked outputs]."""
        weight = self.codes(layer)[CHECKED].astype(np.float64)
        weight *= np.repeat(self.scales(layer)[CHECKED], self.inputs_per_scale, axis=1)
        return rows.astype(np.float64) @ weight.T

    def error(self, turn: Turn, rows: np.ndarray) -> float:
        """The largest relative error of the last run's outputs, over the layers."""

        def of(layer: int, output: np.ndarray) -> float:
            expected = self.expected(rows, layer)
            return float(np.linalg.norm(output[:, CHECKED] - expected) / np.linalg.norm(expected))

        outputs = turn.outputs()
        assert len(outputs) == self.layers
        return max(of(layer, output) for layer, output in enumerate(outputs))
