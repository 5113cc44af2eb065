"""One process of this library: seconds of its first requests, as one JSON object. Run by bench/first_request.py.

The kernels' manifest is given as text, so that a kernel can be asked for alone.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from clika_runtime import Tensor, WarmupManifest, kernels, nn


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def linear(in_features: int, out_features: int) -> nn.Linear:
    layer = nn.Linear(in_features, out_features, activation="gelu")
    weight = np.random.default_rng(0).standard_normal((out_features, in_features), np.float32)
    layer.load_state_dict({"weight": weight, "bias": np.zeros(out_features, np.float32)})
    return layer


def kernel(manifest: str) -> dict[str, float]:
    """Asking for the kernel alone, twice."""
    asked = WarmupManifest.parse(manifest)
    return {"first": asked.compile().items[0].seconds, "again": asked.compile().items[0].seconds}


def request(in_features: int, out_features: int) -> dict[str, float]:
    """The first call of a layer, of a second layer of the same shape, and a later call. Calls pack the weights."""
    first, second = linear(in_features, out_features), linear(in_features, out_features)
    x = Tensor.from_data(np.ones((1, in_features), np.float32))
    taken = {"first": timed(lambda: first(x)), "again": timed(lambda: second(x))}
    return taken | {"later": min(timed(lambda: second(x)) for _ in range(1000))}


def main() -> None:
    work = json.loads(sys.argv[1])
    seconds = kernel(work["manifest"]) if "manifest" in work else request(work["in"], work["out"])
    stats = kernels.stats()
    print(json.dumps(seconds | {"compiled": stats["compiled"], "loaded": stats["loaded"]}))


if __name__ == "__main__":
    main()
