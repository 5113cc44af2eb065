"""The package itself: import, what it says when it cannot be imported, its stubs."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import clika_runtime
import pytest
from clika_runtime import nn

PACKAGE = Path(clika_runtime.__file__).parent


def run(script, *flags, **options):
    return subprocess.run(
        [sys.executable, *flags, "-c", script], capture_output=True, text=True, timeout=120, **options
    )


def test_import_is_silent_and_loads_no_llvm():
    script = (
        "import clika_runtime, pathlib\n"
        "names = {l.split('/')[-1].lower() for l in pathlib.Path('/proc/self/maps').read_text().splitlines()}\n"
        "print([n for n in names if 'llvm' in n])"
    )
    done = run(script, "-W", "error")
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_import_brings_no_optional_package():
    script = (
        "import sys, clika_runtime; print({'rich', 'ml_dtypes', 'torch', 'safetensors', 'gguf'} & set(sys.modules))"
    )
    assert run(script).stdout.strip() == "set()"


def test_readers_of_checkpoints_are_imported_when_asked_for():
    script = (
        "import sys, clika_runtime; print('clika_runtime.checkpoints' in sys.modules, end=' ');"
        "print('checkpoints' in dir(clika_runtime), hasattr(clika_runtime, 'nothing'), end=' ');"
        "print(clika_runtime.checkpoints.load_linear.__name__)"
    )
    assert run(script).stdout.split() == ["False", "True", "False", "load_linear"]


def test_without_numpy_the_remedy_is_named():
    done = run("import sys; sys.modules['numpy'] = None; import clika_runtime")
    assert "ImportError: clika_runtime needs NumPy (pip install numpy)" in done.stderr


def test_without_the_compiled_module_the_remedy_is_named(tmp_path):
    copy = tmp_path / "clika_runtime"
    copy.mkdir()
    for source in PACKAGE.glob("*.py"):
        (copy / source.name).write_text(source.read_text())
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import clika_runtime"
    done = run(script)
    assert "ImportError: clika_runtime's compiled module _core is missing" in done.stderr
    assert "./dev build" in done.stderr


def test_reload_keeps_the_types():
    script = (
        "import importlib, clika_runtime as c; from clika_runtime import nn; l = nn.Linear(1, 1); importlib.reload(c);"
        "importlib.reload(nn); assert isinstance(l, nn.Linear); nn.Linear(2, 2); print('ok')"
    )
    done = run(script)
    assert done.stdout.strip() == "ok", done.stderr


@pytest.mark.parametrize("first", ["", "import clika_runtime\n"])
def test_a_subinterpreter_gets_an_import_error(first):
    script = (
        "import warnings; warnings.simplefilter('ignore')\n" + first + "import _xxsubinterpreters as s\n"
        "i = s.create()\n"
        "try:\n"
        "    s.run_string(i, 'import clika_runtime')\n"
        "except Exception as e:\n"
        "    print(type(e).__name__, e)\n"
    )
    done = run(script)
    assert done.returncode == 0
    assert "ImportError" in done.stdout
    assert "sub-interpreter" in done.stdout


def test_public_names_say_where_they_live():
    assert repr(nn.Linear) == "<class 'clika_runtime.nn.Linear'>"
    assert clika_runtime.Tensor.__module__ == "clika_runtime"
    assert clika_runtime.ClikaRTError.__module__ == "clika_runtime"
    assert issubclass(clika_runtime.ClikaRTError, RuntimeError)


# Stubs.


def test_the_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").exists()


def declared(stub):
    """name -> node of a stub's public top level."""
    found = {}
    for node in ast.parse((PACKAGE / stub).read_text()).body:
        names = []
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names = [node.name]
        elif isinstance(node, ast.AnnAssign):
            names = [node.target.id]
        found |= {name: node for name in names if not name.startswith("_") or name == "__version__"}
    return found


MODULES = {"__init__.pyi": clika_runtime, "nn.pyi": nn}


@pytest.mark.parametrize("stub", MODULES)
def test_stubs_declare_what_exists_and_all_that_is_public(stub):
    module = MODULES[stub]
    names = declared(stub)
    extra = {"WarmupItem", "LoadReport", "Layer", "LinearGroup", "ConvGroup"}  # met as results, not imported
    assert set(names) - extra - {"__version__"} <= set(dir(module))
    submodules = {"nn", "kernels", "checkpoints", "ActivationLike"}
    assert set(module.__all__) - submodules <= set(names)


def class_of(module, name):
    from clika_runtime import _core

    return getattr(module, name, None) or getattr(_core, name)


@pytest.mark.parametrize("stub", MODULES)
def test_stubs_declare_the_members_of_each_class(stub):
    for name, node in declared(stub).items():
        if not isinstance(node, ast.ClassDef):
            continue
        cls = class_of(MODULES[stub], name)
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                layers_own = name == "Layer" and member.name in ("activation", "has_bias", "weight", "bias")
                assert layers_own or hasattr(cls, member.name), f"{name}.{member.name}"
        bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
        known = {m.name for m in ast.walk(node) if isinstance(m, ast.FunctionDef)}
        stubs = declared(stub) | {
            n.name: n for n in ast.parse((PACKAGE / stub).read_text()).body if isinstance(n, ast.ClassDef)
        }
        while bases:
            base = stubs.get(bases.pop())
            if base is not None:
                known |= {m.name for m in ast.walk(base) if isinstance(m, ast.FunctionDef)}
                bases += [b.id for b in base.bases if isinstance(b, ast.Name)]
        if "Enum" in ast.dump(node):
            continue
        public = {m for m in vars(cls) if not m.startswith("_")}
        assert public <= known, f"{name} lacks {public - known}"


@pytest.mark.parametrize("stub", MODULES)
def test_stubs_have_the_real_parameters(stub):
    for name, node in declared(stub).items():
        real = class_of(MODULES[stub], name) if isinstance(node, ast.ClassDef) else getattr(MODULES[stub], name, None)
        function = node
        if isinstance(node, ast.ClassDef):
            function = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), None)
        if function is None or not isinstance(function, ast.FunctionDef):
            continue
        try:
            parameters = list(inspect.signature(real).parameters)
        except ValueError:  # compiled: its docstring says it
            continue
        arguments = function.args
        stubbed = [a.arg for a in arguments.args if a.arg != "self"]
        stubbed += [arguments.vararg.arg] if arguments.vararg else []
        stubbed += [a.arg for a in arguments.kwonlyargs]
        if parameters != ["args", "kwargs"]:
            assert stubbed == parameters, name
