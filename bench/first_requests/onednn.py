"""One process of oneDNN: seconds of its first requests, as one JSON object. Run by bench/first_request.py.

A matmul with bias and gelu, whose weights lie as the primitive wants them: its primitive alone, then the same with the
reordering of the weights and the first execution.
"""

import ctypes
import json
import sys
import time
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

CPU, IN_ORDER, F32, ANY = 1, 1, 3, 1
GELU_ERF = 0x31
QUERY_WEIGHTS = 131
SRC, DST, WEIGHTS, BIAS = 1, 17, 33, 41
ABSENT = 3  # the status by which bench/first_request.py knows that a package is not installed


class _Argument(ctypes.Structure):
    _fields_ = (("index", c_int), ("memory", c_void_p))


def load() -> ctypes.CDLL:
    path = Path(sys.prefix) / "lib/libdnnl.so.3"
    if not path.exists():
        print("onednn-cpu-gomp is not installed", file=sys.stderr)
        sys.exit(ABSENT)
    return ctypes.CDLL(str(path))


class Dnnl:
    """oneDNN's C functions; what they make lives as long as the process."""

    def __init__(self) -> None:
        self.library = load()
        self.library.dnnl_primitive_desc_query_md.restype = c_void_p
        self.engine = self.make("engine_create", c_int(CPU), c_size_t(0))
        self.stream = self.make("stream_create", self.engine, c_int(IN_ORDER))

    def call(self, name: str, *arguments) -> None:
        if status := getattr(self.library, f"dnnl_{name}")(*arguments):
            raise RuntimeError(f"dnnl_{name} returned {status}")

    def make(self, name: str, *arguments) -> c_void_p:
        made = c_void_p()
        self.call(name, byref(made), *arguments)
        return made

    def plain(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> c_void_p:
        dims = c_int64 * 12
        return self.make("memory_desc_create_with_strides", len(shape), dims(*shape), F32, dims(*strides))

    def any_layout(self, shape: tuple[int, ...]) -> c_void_p:
        return self.make("memory_desc_create_with_tag", len(shape), (c_int64 * 12)(*shape), F32, ANY)

    def memory(self, description: c_void_p, array: np.ndarray | None = None) -> c_void_p:
        """Of oneDNN's own where no array is given."""
        handle = c_void_p(-1) if array is None else c_void_p(array.ctypes.data)
        return self.make("memory_create", description, self.engine, handle)

    def execute(self, primitive: c_void_p, memories: dict[int, c_void_p]) -> None:
        arguments = (_Argument * len(memories))(*(_Argument(i, memory) for i, memory in memories.items()))
        self.call("primitive_execute", primitive, self.stream, len(memories), arguments)
        self.call("stream_wait", self.stream)


class Linear:
    def __init__(self, dnnl: Dnnl, in_features: int, out_features: int):
        self.dnnl = dnnl
        self.weight = np.random.default_rng(0).standard_normal((out_features, in_features), np.float32)
        self.arrays = {
            SRC: np.ones((1, in_features), np.float32),
            BIAS: np.zeros((1, out_features), np.float32),
            DST: np.empty((1, out_features), np.float32),
        }
        self.plain = {i: dnnl.plain(array.shape, (array.shape[1], 1)) for i, array in self.arrays.items()}
        self.memories = {i: dnnl.memory(self.plain[i], array) for i, array in self.arrays.items()}
        self.shape = in_features, out_features

    def make_primitive(self) -> None:
        dnnl = self.dnnl
        operations = dnnl.make("post_ops_create")
        dnnl.call("post_ops_append_eltwise", operations, c_int(GELU_ERF), c_float(0), c_float(0))
        attributes = dnnl.make("primitive_attr_create")
        dnnl.call("primitive_attr_set_post_ops", attributes, operations)
        layouts = self.plain[SRC], dnnl.any_layout(self.shape), self.plain[BIAS], self.plain[DST]
        self.description = dnnl.make("matmul_primitive_desc_create", dnnl.engine, *layouts, attributes)
        self.primitive = dnnl.make("primitive_create", self.description)

    def pack(self) -> None:
        dnnl = self.dnnl
        wanted = c_void_p(dnnl.library.dnnl_primitive_desc_query_md(self.description, QUERY_WEIGHTS, 0))
        given = dnnl.plain(self.shape, (1, self.shape[0]))
        reorder = dnnl.make("reorder_primitive_desc_create", given, dnnl.engine, wanted, dnnl.engine, None)
        source, self.memories[WEIGHTS] = dnnl.memory(given, self.weight), dnnl.memory(wanted)
        dnnl.execute(dnnl.make("primitive_create", reorder), {SRC: source, DST: self.memories[WEIGHTS]})

    def run(self) -> None:
        self.dnnl.execute(self.primitive, self.memories)

    def check(self) -> None:
        sums = self.weight.sum(axis=1, dtype=np.float64)
        inside = np.abs(sums) > 6  # where gelu is 0 or the identity
        expected = np.maximum(sums[inside], 0)
        if not np.allclose(self.arrays[DST][0, inside], expected, rtol=1e-4, atol=1e-4):
            raise RuntimeError("oneDNN's result is wrong")


def request(layer: Linear) -> dict[str, float]:
    """Seconds until the primitive is there, and until the result is."""
    start = time.perf_counter()
    layer.make_primitive()
    made = time.perf_counter() - start
    layer.pack()
    layer.run()
    return {"kernel": made, "request": time.perf_counter() - start}


def later(layer: Linear) -> float:
    start = time.perf_counter()
    layer.run()
    return time.perf_counter() - start


def main() -> None:
    work = json.loads(sys.argv[1])
    dnnl = Dnnl()
    first, second = (Linear(dnnl, work["in"], work["out"]) for _ in range(2))
    taken = {"first": request(first), "again": request(second)}
    second.check()
    print(json.dumps(taken | {"later": min(later(second) for _ in range(1000))}))


if __name__ == "__main__":
    main()
