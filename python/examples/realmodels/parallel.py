"""Layers that read one input: side by side, or as one fused group."""

from collections.abc import Callable, Sequence

import numpy as np
from clika_runtime import Tensor, nn, split_with_sizes


class Parallel:
    """Calls the children of `owner` under these names on one input and returns an output each.

    `fuse()` joins them; from then on a call is one dispatch and the outputs are views of its result. The last
    input is kept, so that a report can time the parts and the group on what the network really feeds them.
    """

    def __init__(self, name: str, owner: nn.Module, names: Sequence[str], fuse: Callable):
        self.name = name
        self._owner = owner
        self._names = tuple(names)
        self.group = None
        self.last_input = None
        self._fuse = fuse

    @property
    def parts(self) -> list[nn.Module]:
        """Those that the owner has now: layers may have been replaced by quantized ones."""
        return [getattr(self._owner, name) for name in self._names]

    def fuse(self) -> None:
        self.group = self._fuse(*self.parts, name=self.name)

    def __call__(self, x: np.ndarray) -> list[np.ndarray]:
        self.last_input = x = Tensor.from_data(x)
        return [np.asarray(y) for y in self.forward(x)]

    def forward(self, x: Tensor) -> list[Tensor]:
        if self.group is None:
            return [part(x) for part in self.parts]
        return split_with_sizes(self.group(x), self.group.split_sizes)
