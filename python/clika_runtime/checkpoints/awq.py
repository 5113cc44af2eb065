"""AWQ: the "gemm" layout that AutoAWQ, GPTQModel and llm-awq's converters write.

| tensor | shape | what |
|---|---|---|
| `qweight` int32 | [in, out / 8] | unsigned 4-bit codes, packed along the outputs in AWQ's order |
| `qzeros` int32 | [groups, out / 8] | zero points in the same order, as they are |
| `scales` float | [groups, out] | |
| `bias` float | [out], optional | |

From the lowest bits up, a word holds the outputs 0, 2, 4, 6, 1, 3, 5, 7 of its eight.
w[o, k] = scales[k // group_size, o] * (code[k, o] - zero[k // group_size, o])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._entries import FLOATS, Entries
from ._groups import group_size_of
from ._linear import QuantizedLinear, integer_linear


def read(
    tensors: Mapping[str, Any],
    prefix: str = "",
    *,
    group_size: int | None = None,
    symmetric: bool | None = None,
    config: Mapping[str, Any] | None = None,
) -> QuantizedLinear:
    """The linear whose tensors are named `prefix`.qweight and so on (the table of this module).

    `config`: the checkpoint's `quant_config.json` or `quantization_config`; `group_size`: where neither it nor the
    shapes tell it. `symmetric`: None drops zero points that are 8 everywhere, False keeps them, True insists on them.
    The scheme is int4 with the scales' dtype. ClikaRTError: tensors that are missing or do not fit, other widths than 4
    bits, other layouts than "gemm".
    """
    entries = Entries(tensors, prefix, "AWQ")
    config = config or {}
    _check_config(entries, config)
    words = entries.take("qweight", ("int32", "uint32"), 2)
    scales = entries.take("scales", FLOATS, 2)
    zero_words = entries.take("qzeros", ("int32", "uint32"), 2)
    inputs = words.shape[0]
    groups, rows = scales.shape
    if rows % 8:
        raise entries.refused(f"scales: found {rows} outputs, expected a multiple of 8, which AWQ packs into a word")
    entries.expect_shape("qweight", words, (inputs, rows // 8), f'for {rows} outputs in the "gemm" layout')
    entries.expect_shape("qzeros", zero_words, (groups, rows // 8), f"for {groups} groups of {rows} outputs")
    stated = config.get("group_size", config.get("q_group_size")) if group_size is None else group_size
    return integer_linear(
        entries,
        _unpacked(words).T,
        scales.T,
        _unpacked(zero_words).T,
        bits=4,
        group_size=group_size_of(entries, inputs, groups, stated),
        symmetric=symmetric,
    )


def _check_config(entries: Entries, config: Mapping[str, Any]) -> None:
    bits = config.get("bits", config.get("w_bit", 4))
    if bits != 4:
        raise entries.refused(f"found {bits}-bit codes; AWQ's layout is read for 4 bits")
    layout = str(config.get("version", config.get("format", "gemm"))).lower()
    if layout != "gemm":
        raise entries.refused(f'found the layout "{layout}", expected "gemm"; convert the checkpoint to it')


def _unpacked(words: np.ndarray) -> np.ndarray:
    """[rows, n] words to uint8 [rows, 8n], in the order of the outputs."""
    rows, count = words.shape
    # Bytes p and p + 2 of a word hold the outputs 4p to 4p + 3, their low nibbles the first two.
    pairs = np.ascontiguousarray(words).view(np.uint8).reshape(rows, count, 2, 2).swapaxes(2, 3)
    codes = np.empty((rows, count, 2, 2, 2), np.uint8)
    np.bitwise_and(pairs, 15, out=codes[:, :, :, 0])
    np.right_shift(pairs, 4, out=codes[:, :, :, 1])
    return codes.reshape(rows, 8 * count)
