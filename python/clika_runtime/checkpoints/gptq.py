"""GPTQ: what GPTQModel, AutoGPTQ and Optimum write.

| tensor | shape | what |
|---|---|---|
| `qweight` int32 | [in * bits / 32, out] | unsigned codes, packed along the inputs, the first in the lowest bits |
| `qzeros` int32 | [groups, out * bits / 32] | zero points, packed along the outputs; version 1 stores them less one |
| `scales` float | [groups, out] | |
| `g_idx` int32 | [in], optional | the group of each input; in activation order it is not k // group_size |
| `bias` float | [out], optional | |

w[o, k] = scales[g_idx[k], o] * (code[k, o] - zero[g_idx[k], o])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._codes import code_bits, from_words
from ._entries import FLOATS, Entries
from ._groups import group_order_of, group_size_of
from ._linear import QuantizedLinear, integer_linear

_VERSIONS = {"gptq": 1, "gptq_v2": 2}


def read(
    tensors: Mapping[str, Any],
    prefix: str = "",
    *,
    version: int | None = None,
    bits: int | None = None,
    group_size: int | None = None,
    in_features: int | None = None,
    symmetric: bool | None = None,
    config: Mapping[str, Any] | None = None,
) -> QuantizedLinear:
    """The linear whose tensors are named `prefix`.qweight and so on (the table of this module).

    `version`: how zero points are stored, 1 (less one) or 2; without it `config` says it (`checkpoint_format`, "gptq"
    where absent). `config`: the checkpoint's `quantize_config.json` or `quantization_config`. `bits`, `group_size`,
    `in_features`: where neither `config` nor the shapes tell them. `symmetric`: None drops zero points that are the
    middle of the range everywhere, False keeps them, True insists on them.

    The scheme is int2, int4 or int8 with the scales' dtype; a `g_idx` in activation order becomes `weight_g_idx`.
    ClikaRTError: tensors that are missing or do not fit, other widths than 2, 4 and 8 bits, zero points outside the
    range (a version 1 zero point of 16), a version that nothing states.
    """
    entries = Entries(tensors, prefix, "GPTQ")
    config = config or {}
    version = _version(entries, version, config)
    words = entries.take("qweight", ("int32", "uint32"), 2)
    scales = entries.take("scales", FLOATS, 2)
    zero_words = entries.take("qzeros", ("int32", "uint32"), 2)
    order = entries.find("g_idx", ("int32", "int64"), 1)
    groups, rows = scales.shape

    inputs = _inputs(entries, in_features, order)
    packed = [(rows, zero_words.shape[1])] + ([] if inputs is None else [(inputs, words.shape[0])])
    bits = code_bits(entries, "bits", bits or config.get("bits"), *packed)
    inputs = words.shape[0] * 32 // bits if inputs is None else inputs
    entries.expect_shape("qweight", words, (-(-inputs * bits // 32), rows), f"for {inputs} inputs of {bits} bits")
    entries.expect_shape("qzeros", zero_words, (groups, -(-rows * bits // 32)), f"for {rows} outputs of {bits} bits")

    stated = config.get("group_size") if group_size is None else group_size
    size = group_size_of(entries, inputs, groups, stated, order)
    zeros = from_words(zero_words, bits)[:, :rows]
    return integer_linear(
        entries,
        from_words(words.T, bits)[:, :inputs],
        scales.T,
        (zeros if version == 2 else _plus_one(entries, zeros, bits)).T,
        bits=bits,
        group_size=size,
        symmetric=symmetric,
        g_idx=group_order_of(entries, "g_idx", order, groups, size),
    )


def _version(entries: Entries, version: int | None, config: Mapping[str, Any]) -> int:
    if version is None:
        if not config:
            raise entries.refused(
                "nothing says how zero points are stored; pass version=1 (less one, checkpoint_format gptq), version=2 "
                "(as they are, gptq_v2) or the checkpoint's config"
            )
        name = config.get("checkpoint_format", "gptq")
        if name not in _VERSIONS:
            raise entries.refused(f'checkpoint_format "{name}" is not read; expected one of {", ".join(_VERSIONS)}')
        return _VERSIONS[name]
    if version not in (1, 2):
        raise entries.refused(f"version is {version!r}, expected 1 or 2")
    return version


def _inputs(entries: Entries, stated: int | None, order: np.ndarray | None) -> int | None:
    if order is None:
        return stated
    if stated is not None and stated != order.size:
        raise entries.refused(f"g_idx: found {order.size} inputs, expected in_features, {stated}")
    return order.size


def _plus_one(entries: Entries, stored: np.ndarray, bits: int) -> np.ndarray:
    """Version 1 zero points. The largest stored one is refused: it is either one above the range or, from writers that
    let a zero point of 0 wrap, 0 with a borrow that may have changed its neighbours.
    """
    largest = (1 << bits) - 1
    if (stored == largest).any():
        group, row = (int(i) for i in np.argwhere(stored == largest)[0])
        raise entries.refused(
            f"qzeros: found {largest} stored for group {group}, output {row}: a version 1 zero point of {largest + 1} "
            f"(or a 0 that wrapped), expected 0 to {largest} after adding one; write the checkpoint again as gptq_v2, "
            "and pass version=2 if it is one already"
        )
    return stored + np.uint8(1)
