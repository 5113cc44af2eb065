"""Loading a quantized linear of each checkpoint format: CPU time a weight, and the most memory that it takes meanwhile.

    .venv/bin/python bench/checkpoints.py [--quick] [--json]

The tensors lie in memory, 4096 inputs and 11008 outputs (--quick: 1376). Memory is what NumPy allocates, the layer's
own tensors included, as a multiple of one byte a weight. Leaves with 1 where a goal was missed.
"""

import argparse
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from clika_runtime import checkpoints

INPUTS, GROUP = 4096, 128
NANOSECONDS, BYTES = 15, 3  # goals: at most, a weight
ROUNDS = 3

Load = Callable[[], Any]


class Maker:
    """Tensors of random codes, for `rows` outputs."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.groups = INPUTS // GROUP
        self.rng = np.random.default_rng(0)

    def bytes(self, *shape: int) -> np.ndarray:
        return self.rng.integers(0, 256, shape, np.uint8)

    def words(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)

    def scales(self, *shape: int) -> np.ndarray:
        return (self.rng.random(shape, np.float32) + 0.5).astype(np.float16)

    def gptq(self, bits: int, version: int, ordered: bool = False) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        tensors = {
            "qweight": self.words(INPUTS * bits // 32, self.rows),
            # Codes whose highest bit is 0: version 1 refuses the largest.
            "qzeros": self.words(self.groups, self.rows * bits // 32)
            & np.int32(0x77777777 if bits > 2 else 0x55555555),
            "scales": self.scales(self.groups, self.rows),
            "g_idx": np.arange(INPUTS, dtype=np.int32) // GROUP,
        }
        if ordered:
            self.rng.shuffle(tensors["g_idx"])
        return tensors, {"version": version, "bits": bits}

    def awq(self) -> dict[str, np.ndarray]:
        return {
            "qweight": self.words(INPUTS, self.rows // 8),
            "qzeros": self.words(self.groups, self.rows // 8),
            "scales": self.scales(self.groups, self.rows),
        }

    def packed(self, bits: int) -> dict[str, np.ndarray]:
        return {
            "weight_packed": self.words(self.rows, INPUTS * bits // 32),
            "weight_shape": np.array([self.rows, INPUTS]),
            "weight_scale": self.scales(self.rows, self.groups),
            "weight_zero_point": self.words(self.rows * bits // 32, self.groups),
        }

    def plain(self, dtype: Any) -> dict[str, np.ndarray]:
        codes = self.bytes(self.rows, INPUTS) & 0x77  # no NaN among the floats
        return {"weight": codes.view(dtype), "weight_scale": self.scales(self.rows, self.groups)}

    def torchao(self, kind: str, codes: np.ndarray, zero: np.ndarray | None, **attributes: Any):
        turned = kind == "Int4Tensor"
        shape = (self.groups, self.rows) if turned else (self.rows, self.groups)
        tensors = {"_weight_qdata": codes, "_weight_scale": self.scales(*shape)}
        if zero is not None:
            tensors["_weight_zero_point"] = zero.reshape(shape)
        entry = {"_type": kind, "_data": {"block_size": [1, GROUP], **attributes}}
        return tensors, {"metadata": {"weight": json.dumps(entry)}}

    def gguf(self, kind: str, codes: int, size: int) -> dict[str, Any]:
        blocks = self.bytes(self.rows, INPUTS // codes, size) & 0x3B  # float16 scales without infinities
        return {"weight": checkpoints.gguf.GgufTensor(kind, blocks.reshape(self.rows, -1))}


GGUF = {
    **{"Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24)},
    **{"Q2_K": (256, 84), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210), "MXFP4": (32, 17)},
}


def cases(make: Maker) -> Iterator[tuple[str, Load]]:
    """Each format by name; tensors are made when the case is asked for."""

    def load(format: str, tensors: Mapping[str, Any], arguments: Mapping[str, Any] | None = None) -> Load:
        return lambda: checkpoints.load_linear(tensors, format=format, **(arguments or {}))

    for bits in (2, 4, 8):
        yield f"GPTQ version 2, {bits} bits", load("gptq", *make.gptq(bits, 2))
    yield "GPTQ version 1, 4 bits", load("gptq", *make.gptq(4, 1))
    yield "GPTQ in activation order, 4 bits", load("gptq", *make.gptq(4, 2, ordered=True))
    yield "AWQ", load("awq", make.awq())
    for bits in (2, 4, 8):
        yield f"compressed-tensors, {bits} bits", load("compressed-tensors", make.packed(bits))
    yield "compressed-tensors, int8", load("compressed-tensors", make.plain(np.int8))
    yield "compressed-tensors, float8", load("compressed-tensors", make.plain(ml_dtypes.float8_e4m3fn))
    whole = make.rows * make.groups
    for name, bits in (("int2", 2), ("int4", 4), ("int8", 8)):
        codes = (make.bytes(make.rows, INPUTS).view(np.int8) >> (8 - bits)).astype(np.int8)
        zero = np.zeros(whole, np.int8)
        yield (
            f"torchao Intx, {name}",
            load("torchao", *make.torchao("IntxUnpackedToInt8Tensor", codes, zero, target_dtype=name)),
        )
    codes = make.bytes(make.rows, INPUTS).view(np.int8)
    yield "torchao Int8Tensor", load("torchao", *make.torchao("Int8Tensor", codes, None))
    pairs = make.bytes(make.rows, INPUTS // 2)
    yield "torchao Int4Tensor", load("torchao", *make.torchao("Int4Tensor", pairs, np.zeros(whole, np.float16)))
    offsets = np.full(whole, 0.25, np.float16)
    yield "torchao Int4Tensor, offsets", load("torchao", *make.torchao("Int4Tensor", pairs, offsets))
    floats = (make.bytes(make.rows, INPUTS) & 0x77).view(ml_dtypes.float8_e4m3fn)
    yield "torchao Float8Tensor", load("torchao", *make.torchao("Float8Tensor", floats, None))
    for kind, (codes_of_block, size) in GGUF.items():
        yield f"GGUF {kind}", load("gguf", make.gguf(kind, codes_of_block, size))


def seconds(load: Load) -> float:
    start = time.process_time()
    load()
    return time.process_time() - start


def peak(load: Load) -> int:
    tracemalloc.start()
    load()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the outputs")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    options = parser.parse_args()
    make = Maker(1376 if options.quick else 11008)
    weights = make.rows * INPUTS
    missed = False
    for name, load in cases(make):
        taken = statistics.median(seconds(load) for _ in range(ROUNDS)) * 1e9 / weights
        memory = peak(load) / weights
        kept = taken <= NANOSECONDS and memory <= BYTES
        missed |= not kept
        if options.json:
            print(json.dumps({"case": name, "nanoseconds": taken, "bytes": memory, "kept": kept}), flush=True)
        else:
            print(f"{name:34} {taken:6.2f} ns, {memory:5.2f} bytes a weight   {'ok' if kept else 'MISSED'}", flush=True)
    if not options.json:
        print(f"goals: {NANOSECONDS} ns and {BYTES} bytes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
