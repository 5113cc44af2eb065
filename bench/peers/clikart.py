"""This library's own layers."""

from collections.abc import Iterator

import numpy as np
from clika_runtime import Tensor, nn, set_num_threads

from .work import Activations, K, N, Turn, Variant, Work


def variants(work: Work, threads: int) -> Iterator[Variant]:
    set_num_threads(threads)
    yield Variant("clikart float", Activations.FLOAT32, _prepare(work, "float"))
    yield Variant("clikart int8", Activations.INT8, _prepare(work, "int8"))


def _layer(work: Work, index: int, compute: str) -> nn.QLinearWoQ:
    layer = nn.QLinearWoQ(K, N, bias=False, scheme=work.scheme, compute=compute)
    weight = work.codes(index) if work.bits == 8 else work.nibbles(index)
    layer.load_state_dict({"weight": weight, "weight_scale": work.scales(index).astype(np.float16)})
    return layer


def _prepare(work: Work, compute: str):
    layers = [_layer(work, index, compute) for index in range(work.layers)]

    def prepare(rows: np.ndarray) -> Turn:
        x, outputs = Tensor.from_data(rows), []

        def run() -> None:
            outputs[:] = [layer(x) for layer in layers]

        return Turn(run, lambda: [output.numpy() for output in outputs])

    return prepare
