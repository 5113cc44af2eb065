"""Linears out of checkpoints: GPTQ, AWQ, compressed-tensors, GGUF, torchao and plain safetensors into `nn.QLinearWoQ`.

    checkpoint = checkpoints.open("model-folder")  # or a .gguf or .safetensors file
    q = checkpoints.load_linear(checkpoint, "model.layers.0.self_attn.q_proj")

Codes, scales and zero points are taken over as they are; what no scheme holds exactly is refused by name. Each format
is a module of its own with a `read`, which lists its tensors.
"""

from ._checkpoint import Checkpoint
from ._linear import QuantizedLinear
from ._load import load_linear, open, read_linear

from . import awq, compressed_tensors, gguf, gptq, safetensors, torchao  # isort: skip

__all__ = [
    "Checkpoint",
    "QuantizedLinear",
    "awq",
    "compressed_tensors",
    "gguf",
    "gptq",
    "load_linear",
    "open",
    "read_linear",
    "safetensors",
    "torchao",
]
