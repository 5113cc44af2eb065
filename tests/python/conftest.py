"""What the tests share: layers bound to random weights, and comparison to the bit."""

import os
import tempfile

# Whatever the tests compile stays out of the cache of the user who runs them: set before the first import.
_cache = tempfile.TemporaryDirectory(prefix="clikart-test-")
os.environ["CLIKART_CACHE_DIR"] = _cache.name
os.environ["CLIKART_CACHE_SYSTEM_DIR"] = os.path.join(_cache.name, "system")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from clika_runtime import nn  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


class Make:
    """Bound layers with random weights."""

    def __init__(self, rng):
        self.rng = rng

    def array(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def linear(self, inputs, outputs, bias=True, **options):
        layer = nn.Linear(inputs, outputs, bias, **options)
        return layer.bind(weight=self.array(outputs, inputs), bias=self.array(outputs) if bias else None)

    def conv(self, inputs, outputs, kernel=3, bias=True, cls=nn.Conv2d, **options):
        layer = cls(inputs, outputs, kernel, bias=bias, **options)
        weight = self.array(outputs, inputs // layer.groups, *layer.kernel_size)
        return layer.bind(weight=weight, bias=self.array(outputs) if bias else None)

    def woq(self, inputs, outputs, scheme="int8_g32", bias=True, **options):
        scheme = nn.QuantScheme.parse(scheme)
        layer = nn.QLinearWoQ(inputs, outputs, bias, scheme=scheme, **options)
        groups = 1 if scheme.group_size < 0 else -(-inputs // scheme.group_size)
        width = inputs if scheme.bits == 8 else -(-inputs // 2)
        signed = scheme.bits == 8 and scheme.symmetric
        codes = self.rng.integers(-128 if signed else 0, 128 if signed else 256, (outputs, width))
        tensors = {
            "weight": codes.astype(np.int8 if signed else np.uint8),
            "weight_scale": (0.01 + self.rng.random((outputs, groups))).astype(np.float16),
            "bias": self.array(outputs) if bias else None,
        }
        if not scheme.symmetric:
            tensors["weight_zero_point"] = self.rng.integers(0, 2**scheme.bits, (outputs, groups)).astype(np.uint8)
        return layer.bind(**tensors)


@pytest.fixture
def make(rng):
    return Make(rng)


def twin(layer):
    """Another layer with the same weights that is not part of anything."""
    import copy

    return copy.deepcopy(layer)


def same_bits(a, b):
    """Equal shape, dtype and bits; all NaNs count as equal."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    if a.dtype.kind in "iu":
        np.testing.assert_array_equal(a, b)
        return
    whole = {2: np.uint16, 4: np.uint32}[a.dtype.itemsize]
    nan = np.isnan(a.astype(np.float32))
    np.testing.assert_array_equal(nan, np.isnan(b.astype(np.float32)))
    np.testing.assert_array_equal(np.ascontiguousarray(a).view(whole)[~nan], np.ascontiguousarray(b).view(whole)[~nan])
