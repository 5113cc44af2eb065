"""ONNX Runtime: MatMulNBits with float (accuracy level 0, and 1, which asks for the same) and 8-bit activations (4),
and DynamicQuantizeMatMul, whose 8-bit sums saturate on CPUs without VNNI.

A session runs all layers, since the threads of several sessions would wait for work on the same cores.
"""

from collections.abc import Iterator

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from .work import Activations, K, N, Turn, Variant, Work

MICROSOFT = "com.microsoft"
ROW_GROUP = 128  # inputs that share a scale where the operator cannot take one for a whole row
LEVELS = {0: Activations.FLOAT32, 4: Activations.INT8}


def variants(work: Work, threads: int) -> Iterator[Variant]:
    for level, activations in LEVELS.items():
        parts = [_codes(work, layer, level) for layer in range(work.layers)]
        yield Variant(f"ort MatMulNBits accuracy {level}", activations, _prepare(parts, threads))
    if work.group == 0:
        parts = [_dynamic(work, layer) for layer in range(work.layers)]
        yield Variant("ort DynamicQuantizeMatMul", Activations.INT8, _prepare(parts, threads))


def _codes(work: Work, layer: int, level: int):
    group = work.group or ROW_GROUP
    codes = work.nibbles(layer) if work.bits == 4 else (work.codes(layer).astype(np.int16) + 128).astype(np.uint8)
    tensors = {f"q{layer}": codes.reshape(N, K // group, -1), f"s{layer}": work.scales(layer, group).copy()}
    attributes = {"K": K, "N": N, "bits": work.bits, "block_size": group, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", *tensors], [f"y{layer}"], domain=MICROSOFT, **attributes)
    return node, tensors


def _dynamic(work: Work, layer: int):
    tensors = {f"q{layer}": work.codes(layer).T.copy(), f"s{layer}": work.scales(layer)[:, 0].copy()}
    return helper.make_node("DynamicQuantizeMatMul", ["x", *tensors], [f"y{layer}"], domain=MICROSOFT), tensors


def _session(parts, threads: int) -> onnxruntime.InferenceSession:
    names = [f"y{layer}" for layer in range(len(parts))]
    graph = helper.make_graph(
        [node for node, _ in parts],
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", N]) for name in names],
        [numpy_helper.from_array(value, name) for _, tensors in parts for name, value in tensors.items()],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _prepare(parts, threads: int):
    session = _session(parts, threads)
    parts.clear()

    def prepare(rows: np.ndarray) -> Turn:
        binding = session.io_binding()
        outputs = [np.zeros((len(rows), N), np.float32) for _ in session.get_outputs()]
        binding.bind_input("x", "cpu", 0, np.float32, rows.shape, rows.ctypes.data)
        for description, y in zip(session.get_outputs(), outputs, strict=True):
            binding.bind_output(description.name, "cpu", 0, np.float32, y.shape, y.ctypes.data)

        def run(kept=rows) -> None:  # the binding knows the rows' address alone
            session.run_with_iobinding(binding)

        return Turn(run, lambda: outputs)

    return prepare
