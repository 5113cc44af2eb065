"""compressed-tensors: what LLM Compressor writes and vLLM serves.

The format "pack-quantized":

| tensor | shape | what |
|---|---|---|
| `weight_packed` int32 | [out, ceil(in * bits / 32)] | codes plus 2^(bits-1), the first in the lowest bits |
| `weight_shape` int | [2] | out, in |
| `weight_scale` float | [out, groups], [out, 1] or [1] | |
| `weight_zero_point` int32 | [ceil(out * bits / 32), groups] | where asymmetric: packed along the outputs |
| or int8 | [out, groups] | the same, not packed |
| `weight_g_idx` int32 | [in], optional | the group of each input; all -1: not used |
| `bias` float | [out], optional | |

The formats "int-quantized" and "float-quantized" hold `weight`, int8 or float8 [out, in], instead of the first two, and
zero points that are not packed.

w[o, k] = weight_scale[o, g] * (code[o, k] - zero[o, g]), both signed, g the group of k
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._codes import code_bits, from_words
from ._entries import FLOATS, Entries
from ._groups import group_order_of, group_size_of
from ._linear import FLOAT8, QuantizedLinear, float8_linear, integer_linear

_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision")


def read(
    tensors: Mapping[str, Any],
    prefix: str = "",
    *,
    num_bits: int | None = None,
    group_size: int | None = None,
    symmetric: bool | None = None,
    config: Mapping[str, Any] | None = None,
) -> QuantizedLinear:
    """The linear whose tensors are named `prefix`.weight_packed and so on (the text of this module).

    `config`: the checkpoint's `quantization_config`. `num_bits`, `group_size`: where neither it nor the shapes tell
    them. `symmetric`: None drops zero points that are all 0, False keeps them (adding them where there are none), True
    insists. The scheme is int2, int4, int8 or fp8 with the scales' dtype; zero points become unsigned as the codes do.
    ClikaRTError: tensors that are missing or do not fit, other widths than 2, 4 and 8 bits, other formats.
    """
    entries = Entries(tensors, prefix, "compressed-tensors")
    arguments = _weight_arguments(entries, config or {})
    stated = arguments.get("group_size") if group_size is None else group_size
    if "weight_packed" not in entries and "weight" in entries:
        return _plain(entries, stated, symmetric)
    words = entries.take("weight_packed", ("int32",), 2)
    rows, inputs = _shape(entries)
    bits = code_bits(entries, "num_bits", num_bits or arguments.get("num_bits"), (inputs, words.shape[1]))
    expected = (rows, -(-inputs * bits // 32))
    entries.expect_shape("weight_packed", words, expected, f"for [{rows}, {inputs}], {bits} bits")
    return _integers(entries, from_words(words, bits)[:, :inputs], bits, stated, symmetric)


def _plain(entries: Entries, stated: Any, symmetric: bool | None) -> QuantizedLinear:
    """Codes that are not packed."""
    codes = entries.take("weight", ("int8", *FLOAT8), 2)
    if codes.dtype.name not in FLOAT8:
        return _integers(entries, entries.unsigned("weight", codes, 8), 8, stated, symmetric)
    if symmetric is False:
        raise entries.refused("8-bit floats have no zero points; symmetric must not be False")
    rows, inputs = codes.shape
    scale = _scale(entries, rows)
    return float8_linear(entries, codes, scale, group_size_of(entries, inputs, scale.shape[1], stated))


def _integers(entries: Entries, codes: np.ndarray, bits: int, stated: Any, symmetric: bool | None) -> QuantizedLinear:
    rows, inputs = codes.shape
    scale = _scale(entries, rows)
    groups = scale.shape[1]
    order = _order(entries, inputs)
    size = group_size_of(entries, inputs, groups, stated, order)
    return integer_linear(
        entries,
        codes,
        scale,
        _zero_point(entries, rows, groups, bits),
        bits=bits,
        group_size=size,
        symmetric=symmetric,
        g_idx=group_order_of(entries, "weight_g_idx", order, groups, size),
    )


def _weight_arguments(entries: Entries, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the config says of weights, where it says one thing for all layers."""
    groups = [group for group in config.get("config_groups", {}).values() if group]
    for found in {group.get("format") or config.get("format") or "pack-quantized" for group in groups}:
        if found not in _FORMATS:
            raise entries.refused(f'found the format "{found}", expected one of {", ".join(_FORMATS)}')
    return (groups[0].get("weights") or {}) if len(groups) == 1 else {}


def _shape(entries: Entries) -> tuple[int, int]:
    shape = entries.take("weight_shape", ("int32", "int64"), 1)
    entries.expect_shape("weight_shape", shape, (2,))
    return int(shape[0]), int(shape[1])


def _scale(entries: Entries, rows: int) -> np.ndarray:
    """[out, groups]; one scale for the whole tensor is repeated for each row."""
    rank = 1 if entries.rank("weight_scale") == 1 else 2
    scale = entries.take("weight_scale", FLOATS, rank)
    if scale.size == 1:
        return np.full((rows, 1), scale.reshape(()), scale.dtype)
    scale = scale.reshape(scale.shape[0], -1)
    entries.expect_shape("weight_scale", scale, (rows, scale.shape[1]), f"for {rows} outputs")
    return scale


def _order(entries: Entries, inputs: int) -> np.ndarray | None:
    order = entries.find("weight_g_idx", ("int32", "int64"), 1)
    if order is None:
        return None
    entries.expect_shape("weight_g_idx", order, (inputs,))
    return None if (order == -1).all() else order


def _zero_point(entries: Entries, rows: int, groups: int, bits: int) -> np.ndarray | None:
    """Unsigned, as the packed codes are."""
    found = entries.find("weight_zero_point", ("int8", "int32"), 2)
    if found is None:
        return None
    if found.dtype == np.int32:
        entries.expect_shape("weight_zero_point", found, (-(-rows * bits // 32), groups), "packed along the outputs")
        return from_words(found.T, bits)[:, :rows].T
    entries.expect_shape("weight_zero_point", found, (rows, groups))
    return entries.unsigned("weight_zero_point", found, bits)
