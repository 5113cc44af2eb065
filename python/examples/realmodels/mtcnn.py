"""The three nets of MTCNN face detection (P-Net, R-Net, O-Net), from the package `facenet-pytorch`.

Each takes an image tensor float32 `[batch, height, width, 3]` in -1..1 and ends in sibling layers over one input,
which are what fuses: 1x1 convolutions in P-Net, linears in the other two.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from clika_runtime import nn

from .checkpoints import read_torch
from .encoder import softmax
from .parallel import Parallel


def max_pool(x: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Over `[batch, height, width, channels]`; a last window that hangs over the edge counts (ceil mode)."""
    outputs = [-(-(extent - size) // stride) + 1 for extent in x.shape[1:3]]
    # As in PyTorch, a window must start inside the input.
    outputs = [n - ((n - 1) * stride >= extent) for n, extent in zip(outputs, x.shape[1:3], strict=True)]
    missing = [max(0, (n - 1) * stride + size - extent) for n, extent in zip(outputs, x.shape[1:3], strict=True)]
    x = np.pad(x, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return windows[:, ::stride, ::stride][:, : outputs[0], : outputs[1]].max(axis=(-2, -1))


def prelu(x, slope: np.ndarray) -> np.ndarray:
    """A negative value times its channel's slope; channels last."""
    x = np.asarray(x)
    return np.where(x > 0, x, x * slope)


def flatten(x: np.ndarray) -> np.ndarray:
    """`[batch, height, width, channels]` to rows in the order width, height, channels that the nets were trained on."""
    return x.transpose(0, 2, 1, 3).reshape(len(x), -1)


class _Net(nn.Module):
    """Loads its layers from `weights` and keeps the PReLU slopes for NumPy."""

    heads: Parallel

    def _load(self, weights: Mapping[str, np.ndarray]) -> None:
        self.slope = {name.removesuffix(".weight"): w for name, w in weights.items() if name.startswith("prelu")}
        self.load_state_dict({name: w for name, w in weights.items() if not name.startswith("prelu")})

    @property
    def groups(self) -> list[Parallel]:
        return [self.heads]

    def fuse(self) -> "_Net":
        self.heads.fuse()
        return self


class PNet(_Net):
    """Boxes `[batch, h, w, 4]` and face probabilities `[batch, h, w, 2]` on a grid of stride 2, for any image size."""

    outputs = ("boxes", "probabilities")

    def __init__(self, folder: str | Path):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 10, 3)
        self.conv2 = nn.Conv2d(10, 16, 3)
        self.conv3 = nn.Conv2d(16, 32, 3)
        self.conv4_1 = nn.Conv2d(32, 2, 1)
        self.conv4_2 = nn.Conv2d(32, 4, 1)
        self._load(read_torch(Path(folder) / "pnet.pt"))
        self.heads = Parallel("P-Net heads", self, ["conv4_1", "conv4_2"], nn.fuse_convs)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        x = max_pool(prelu(self.conv1(x), self.slope["prelu1"]), 2, 2)
        x = prelu(self.conv2(x), self.slope["prelu2"])
        x = prelu(self.conv3(x), self.slope["prelu3"])
        scores, boxes = self.heads(x)
        return boxes, softmax(scores)


class RNet(_Net):
    """Boxes `[batch, 4]` and face probabilities `[batch, 2]` of 24x24 candidates."""

    outputs = ("boxes", "probabilities")

    def __init__(self, folder: str | Path):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 28, 3)
        self.conv2 = nn.Conv2d(28, 48, 3)
        self.conv3 = nn.Conv2d(48, 64, 2)
        self.dense4 = nn.Linear(576, 128)
        self.dense5_1 = nn.Linear(128, 2)
        self.dense5_2 = nn.Linear(128, 4)
        self._load(read_torch(Path(folder) / "rnet.pt"))
        self.heads = Parallel("R-Net heads", self, ["dense5_1", "dense5_2"], nn.fuse_linears)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        x = max_pool(prelu(self.conv1(x), self.slope["prelu1"]), 3, 2)
        x = max_pool(prelu(self.conv2(x), self.slope["prelu2"]), 3, 2)
        x = prelu(self.conv3(x), self.slope["prelu3"])
        x = prelu(self.dense4(flatten(x)), self.slope["prelu4"])
        scores, boxes = self.heads(x)
        return boxes, softmax(scores)


class ONet(_Net):
    """Boxes `[batch, 4]`, landmarks `[batch, 10]` and face probabilities `[batch, 2]` of 48x48 candidates."""

    outputs = ("boxes", "landmarks", "probabilities")

    def __init__(self, folder: str | Path):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.conv4 = nn.Conv2d(64, 128, 2)
        self.dense5 = nn.Linear(1152, 256)
        self.dense6_1 = nn.Linear(256, 2)
        self.dense6_2 = nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)
        self._load(read_torch(Path(folder) / "onet.pt"))
        self.heads = Parallel("O-Net heads", self, ["dense6_1", "dense6_2", "dense6_3"], nn.fuse_linears)

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        x = max_pool(prelu(self.conv1(x), self.slope["prelu1"]), 3, 2)
        x = max_pool(prelu(self.conv2(x), self.slope["prelu2"]), 3, 2)
        x = max_pool(prelu(self.conv3(x), self.slope["prelu3"]), 2, 2)
        x = prelu(self.conv4(x), self.slope["prelu4"])
        x = prelu(self.dense5(flatten(x)), self.slope["prelu5"])
        scores, boxes, landmarks = self.heads(x)
        return boxes, landmarks, softmax(scores)


NETS = {"P-Net": PNet, "R-Net": RNet, "O-Net": ONet}
