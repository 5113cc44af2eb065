"""The packages that write quantized checkpoints, as far as tests need them, and how a loaded layer is read back.

Some of them import a training stack at their top. Their packing code needs PyTorch alone, so it is taken from the
installed files without importing the packages around it.
"""

import ast
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

# torchao's compiled kernels are for GPUs; without this it warns that it cannot load them.
os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")


def installed_file(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported; the test is skipped where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed (python/requirements-formats.txt)", allow_module_level=True)
    return Path(spec.submodule_search_locations[0]) / path


def module_of(package: str, path: str) -> ModuleType:
    """One file of an installed package as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"lone_{Path(path).stem}", installed_file(package, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def functions_of(package: str, path: str, *names: str, **namespace) -> SimpleNamespace:
    """Functions and methods of a file that cannot be imported alone; `namespace` is what their bodies refer to."""
    tree = ast.parse(installed_file(package, path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    assert sorted(node.name for node in found) == sorted(names)
    for node in found:
        node.decorator_list, node.returns = [], None
        for argument in node.args.args + node.args.kwonlyargs:
            argument.annotation = None
    exec(compile(ast.Module(found, []), path, "exec"), namespace)
    return SimpleNamespace(**{name: namespace[name] for name in names})


def columns(layer) -> np.ndarray:
    """The weight [out, in] that a layer computes with, float32: one-hot rows read its columns, each rounded once."""
    bias = layer.bias.numpy() if layer.has_bias else np.float32(0)
    assert not np.any(bias), "columns are read without a bias"
    return layer(np.eye(layer.in_features, dtype=np.float32)).numpy().T


def same_columns(layer, weight: np.ndarray) -> None:
    """`weight`: [out, in] in float64, what the format says."""
    np.testing.assert_array_equal(columns(layer), weight.astype(np.float32))


def round_trips(linear) -> None:
    """What was loaded comes back from the packed layer, bit for bit, and loads again."""
    layer = linear.layer()
    layer(np.zeros((1, linear.in_features), np.float32))
    assert layer.state == "packed"
    state = {name: np.array(tensor) for name, tensor in layer.state_dict().items()}
    assert state.keys() == linear.state.keys()
    for name, tensor in state.items():
        assert tensor.dtype == linear.state[name].dtype, name
        assert tensor.tobytes() == np.ascontiguousarray(linear.state[name]).tobytes(), name
    again = linear.layer()
    again.load_state_dict(state)
    np.testing.assert_array_equal(columns(again), columns(layer))
