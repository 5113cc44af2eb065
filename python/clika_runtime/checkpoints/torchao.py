"""torchao: tensor subclasses as `flatten_tensor_state_dict` writes them to safetensors.

A weight `layer.weight` becomes `layer._weight_qdata`, `layer._weight_scale`, `layer._weight_zero_point`, and an entry
"layer.weight" of the file's metadata names its class and its block size.

| class | qdata [out, in] | zero point | scheme |
|---|---|---|---|
| `Int8Tensor` | int8 | int8, or none | int8 |
| `IntxUnpackedToInt8Tensor` | int8 | int8, or a float that is a whole number | int2, int4 or int8 |
| `Int4Tensor` | two int4 a byte, the even input in the low nibble | an offset, added | int4, or int4 with a minimum |
| `Float8Tensor`, e4m3fn or e5m2 | the number itself | none | fp8_e4m3, fp8_e5m2 |

w[o, k] = scale[o, g] * (qdata[o, k] - zero[o, g]), g the block of k; in an `Int4Tensor`, whose scales and offsets are
[groups, out], w[o, k] = scale[g, o] * qdata[o, k] + offset[g, o]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._codes import from_bytes
from ._entries import FLOATS, Entries
from ._groups import group_size_of
from ._linear import FLOAT8, QuantizedLinear, float8_linear, integer_linear, minimum_linear


def read(
    tensors: Mapping[str, Any],
    prefix: str = "",
    *,
    metadata: Mapping[str, str] | None = None,
    symmetric: bool | None = None,
) -> QuantizedLinear:
    """The linear whose weight torchao calls `prefix`.weight (the table of this module).

    `metadata`: the safetensors file's, which names the classes; a `Checkpoint` brings its own. `symmetric`: None drops
    zero points that are 0 everywhere, False keeps them (adding them where there are none), True insists on them.
    ClikaRTError: no metadata, other classes (tile-packed, preshuffled and MX tensors are layouts of one kernel: save
    the model with a plain one), blocks over several rows, a scale on the activations, zero points that are no codes.
    """
    entries = Entries(tensors, prefix, "torchao")
    kind, attributes = _described(entries, metadata or {})
    reader = _READERS.get(kind)
    if reader is None:
        raise entries.refused(f"found a {kind}, expected one of {', '.join(_READERS)}; save the model with one of them")
    if "_weight_act_pre_scale" in entries:
        raise entries.refused("found act_pre_scale, which scales the activations; fold it into the layer before")
    return reader(entries, attributes, symmetric)


def _described(entries: Entries, metadata: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    """The class of the weight, and its attributes, `block_size` two positive numbers."""
    name = entries.key("weight")
    if name not in metadata:
        raise entries.refused(f'the metadata has no entry "{name}"; pass metadata, the safetensors file\'s')
    try:
        entry = json.loads(metadata[name])
        kind, attributes = entry["_type"], dict(entry["_data"])
    except (TypeError, ValueError, KeyError) as error:
        raise entries.refused(f'the metadata\'s entry "{name}" is not one that torchao writes: {error!r}') from error
    block = attributes.get("block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)):
        raise entries.refused(f"found blocks of {block}, expected [1, size]")
    return kind, attributes


def _blocks(entries: Entries, attributes: Mapping[str, Any], name: str, found: np.ndarray, shape: tuple[int, int]):
    """[out, groups] of what blocks of [1, size] hold; what one block of all rows holds is repeated for each."""
    rows, inputs = shape
    block = attributes["block_size"]
    if block[0] not in (1, rows) or block[1] > inputs:
        raise entries.refused(f"found blocks of {block}, expected [1, size] or [{rows}, size] in [{rows}, {inputs}]")
    groups = -(-inputs // block[1])
    entries.expect_shape(name, found, (rows // block[0], groups), f"for blocks of {block} in [{rows}, {inputs}]")
    return np.ascontiguousarray(np.broadcast_to(found, (rows, groups)))


def _signed(entries: Entries, attributes: Mapping[str, Any], bits: int, symmetric: bool | None) -> QuantizedLinear:
    codes = entries.take("_weight_qdata", ("int8",), 2)
    scale = entries.take("_weight_scale", FLOATS, 2)
    zero = entries.find("_weight_zero_point", ("int8", *FLOATS), 2)
    return integer_linear(
        entries,
        entries.unsigned("_weight_qdata", codes, bits),
        _blocks(entries, attributes, "_weight_scale", scale, codes.shape),
        None
        if zero is None
        else entries.unsigned(
            "_weight_zero_point", _blocks(entries, attributes, "_weight_zero_point", zero, codes.shape), bits
        ),
        bits=bits,
        group_size=_group_size(attributes, codes.shape[1]),
        symmetric=symmetric,
    )


def _group_size(attributes: Mapping[str, Any], inputs: int) -> int:
    size = attributes["block_size"][1]
    return -1 if size == inputs else size


def _int8(entries: Entries, attributes: Mapping[str, Any], symmetric: bool | None) -> QuantizedLinear:
    return _signed(entries, attributes, 8, symmetric)


def _intx(entries: Entries, attributes: Mapping[str, Any], symmetric: bool | None) -> QuantizedLinear:
    target = attributes.get("target_dtype")
    name = target.get("_data") if isinstance(target, dict) else target
    if name not in ("int2", "int4", "int8"):
        raise entries.refused(f"found codes of {name}, expected int2, int4 or int8")
    return _signed(entries, attributes, int(name[3:]), symmetric)


def _int4(entries: Entries, attributes: Mapping[str, Any], symmetric: bool | None) -> QuantizedLinear:
    pairs = entries.take("_weight_qdata", ("int8", "uint8"), 2)
    rows, inputs = pairs.shape[0], 2 * pairs.shape[1]
    scale = entries.take("_weight_scale", FLOATS, 2)
    zero = entries.take("_weight_zero_point", FLOATS, 2)
    entries.expect_shape("_weight_scale", scale, (scale.shape[0], rows), f"for {rows} outputs")
    entries.expect_shape("_weight_zero_point", zero, scale.shape, "as the scales")
    codes = from_bytes(pairs.view(np.uint8), 4) ^ 8
    size = group_size_of(entries, inputs, scale.shape[0], _group_size(attributes, inputs))
    if not zero.any():
        return integer_linear(entries, codes, scale.T, None, bits=4, group_size=size, symmetric=symmetric)
    if symmetric:
        raise entries.refused("found offsets that are added to the weights; a symmetric weight has none")
    scale, minimum = scale.T.astype(np.float32), _minimum(entries, scale.T, zero.T)
    return minimum_linear(entries, codes, scale, minimum, bits=4, group_size=size)


def _minimum(entries: Entries, scale: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """What unsigned codes, 8 more than the signed ones, have added instead of `offset`: 8 scales less, in float32.

    ClikaRTError: float32 does not hold the difference exactly (its error, which float32 always holds, is not 0).
    """
    a, b = offset.astype(np.float32), -8 * scale.astype(np.float32)
    with np.errstate(invalid="ignore"):
        total = a + b
        rest = total - a
        error = (a - (total - rest)) + (b - rest)
    if not (error == 0).all():
        raise entries.refused(
            f"_weight_zero_point: found the offset {float(offset[error != 0][0]):g} over the scale "
            f"{float(scale[error != 0][0]):g}, which float32 does not hold together exactly; quantize with "
            "IntxUnpackedToInt8Tensor, whose zero points are codes"
        )
    return total


def _float8(entries: Entries, attributes: Mapping[str, Any], symmetric: bool | None) -> QuantizedLinear:
    if symmetric is False:
        raise entries.refused("8-bit floats have no zero points; symmetric must not be False")
    codes = entries.take("_weight_qdata", tuple(FLOAT8), 2)
    scale = entries.take("_weight_scale", FLOATS, 2)
    scale = _blocks(entries, attributes, "_weight_scale", scale, codes.shape)
    return float8_linear(entries, codes, scale, _group_size(attributes, codes.shape[1]))


_READERS = {
    "Int8Tensor": _int8,
    "IntxUnpackedToInt8Tensor": _intx,
    "Int4Tensor": _int4,
    "Float8Tensor": _float8,
}
