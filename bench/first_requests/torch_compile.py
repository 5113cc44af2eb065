"""One process of `torch.compile`: seconds of its first requests, as one JSON object. Run by bench/first_request.py.

The caches of inductor lie where TORCHINDUCTOR_CACHE_DIR says.
"""

import json
import shutil
import sys
import time

ABSENT = 3  # the status by which bench/first_request.py knows that something is not installed

if shutil.which("g++") is None:
    print("g++, with which torch.compile makes kernels, is not installed", file=sys.stderr)
    sys.exit(ABSENT)
try:
    import torch
except ImportError as error:
    print(f"{error.name} is not installed", file=sys.stderr)
    sys.exit(ABSENT)


def layer(in_features: int, out_features: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(in_features, out_features), torch.nn.GELU()).eval()


def request(module: torch.nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter()
    module(x)
    return time.perf_counter() - start


def main() -> None:
    work = json.loads(sys.argv[1])
    x = torch.ones(1, work["in"])
    first, second = (torch.compile(layer(work["in"], work["out"])) for _ in range(2))
    with torch.inference_mode():
        taken = {"first": request(first, x), "again": request(second, x)}
        taken["later"] = min(request(second, x) for _ in range(1000))
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
