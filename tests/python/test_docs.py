"""What the pages on quantized weights show, run as a newcomer would: each page's blocks, one after the other."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def run_blocks(page: str, folder: Path, more: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S)
    assert blocks
    code = "\n".join([*blocks, more])
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quantization(tmp_path):
    found = run_blocks("quantization.md", tmp_path, "print(y.shape, layer.scheme, layer.resident_bytes)")
    # int4_g32_min: the codes, and a float16 scale and minimum for each of 8 groups.
    assert found == f"(1, 64) int4_g32_min {64 * (256 // 2 + 8 * 2 * 2)}\n"


def test_checkpoints(tmp_path, rng):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    tensors = {}
    for part in "qkv":
        name = f"model.layers.0.self_attn.{part}_proj"
        tensors[f"{name}.qweight"] = rng.integers(0, 2**31, (32, 64), np.int32)
        tensors[f"{name}.qzeros"] = rng.integers(0, 2**31, (2, 8), np.int32)
        tensors[f"{name}.scales"] = rng.random((2, 64), np.float32).astype(np.float16)
    folder = tmp_path / "model-folder"
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    quantized = {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"}
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantized}))
    found = run_blocks("checkpoints.md", tmp_path, "print(qkv.fused, qkv.split_sizes, q.scheme)")
    assert found == "True [64, 64, 64] int4_g128_asym\n"
