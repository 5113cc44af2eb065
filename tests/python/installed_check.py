"""Run in an environment where only `pip install .` has happened: the package is there and serves a forward."""

import json
import os
import subprocess
import sys
from pathlib import Path

import clika_runtime as cr
import numpy as np
from clika_runtime import nn

q, k = (nn.Linear(32, 32).bind(weight=np.eye(32, dtype=np.float32), bias=np.ones(32, np.float32)) for _ in range(2))
group = nn.fuse_linears(q, k)
x = np.arange(64, dtype=np.float32).reshape(2, 32)
assert np.array_equal(group(x), np.concatenate([x + 1, x + 1], axis=-1))

# The LLVM emitter's object came along, and is found beside the extension module.
if "CLIKART_EMITTER" in os.environ:
    assert {kernel["emitter"] for kernel in cr.kernels.list()} == {"llvm"}
else:
    environment = {**os.environ, "CLIKART_EMITTER": "llvm", "CLIKART_STRICT": "1"}
    subprocess.run([sys.executable, __file__], env=environment, check=True)
    # So did clikart-cache, whose object of LLVM lies there too.
    program = Path(sys.prefix) / "bin" / "clikart-cache"
    listed = subprocess.run([program, "list", "--json"], check=True, capture_output=True, text=True).stdout
    key = json.loads(listed)[0]["key"]
    subprocess.run([program, "disasm", key], check=True, stdout=subprocess.DEVNULL)
print(f"clika_runtime {cr.__version__} from {cr.__file__}")
print(group.explain())
