"""A process with several LLVMs: ours, the system's shared library with all of its symbols global, and PyTorch.

    python llvm_in_process.py WHO...

Each of WHO (clikart, system, torch) does its work when it is its turn, then all do it once more, and every result is
checked. `test_llvm.py` runs it in every order.
"""

import ctypes
import os
import sys

import numpy as np

os.environ["CLIKART_EMITTER"] = "llvm"
os.environ["CLIKART_STRICT"] = "1"

FUNCTION = b"""
define double @scaled(double %x) {
  %y = fmul double %x, 3.0
  %z = fadd double %y, 1.0
  ret double %z
}
"""


def clikart() -> None:
    import clika_runtime
    from clika_runtime import nn

    rng = np.random.default_rng(1)
    # Small whole numbers: exact in any order.
    x, weight = (rng.integers(-8, 9, shape).astype(np.float32) for shape in [(33, 40), (24, 40)])
    for dtype in ["float32", "bfloat16"]:
        layer = nn.Linear(40, 24, bias=False, activation="relu", dtype=dtype).bind(weight=weight)
        wanted = np.maximum(x @ weight.T, 0)
        assert np.array_equal(layer(x).numpy().astype(np.float32), wanted)
    assert {kernel["emitter"] for kernel in clika_runtime.kernels.list()} == {"llvm"}


def system() -> None:
    """Compiles and calls a function with the shared libLLVM, whose symbols are offered to whoever comes later."""
    llvm = ctypes.CDLL("libLLVM.so.19.1", mode=ctypes.RTLD_GLOBAL)
    for name in ["LLVMContextCreate", "LLVMCreateMemoryBufferWithMemoryRangeCopy"]:
        getattr(llvm, name).restype = ctypes.c_void_p
    llvm.LLVMGetFunctionAddress.restype = ctypes.c_uint64
    llvm.LLVMInitializeX86TargetInfo()
    llvm.LLVMInitializeX86Target()
    llvm.LLVMInitializeX86TargetMC()
    llvm.LLVMInitializeX86AsmPrinter()
    llvm.LLVMLinkInMCJIT()
    context = ctypes.c_void_p(llvm.LLVMContextCreate())
    text = ctypes.c_void_p(llvm.LLVMCreateMemoryBufferWithMemoryRangeCopy(FUNCTION, len(FUNCTION), b"text"))
    module, engine, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_char_p()
    assert llvm.LLVMParseIRInContext(context, text, ctypes.byref(module), ctypes.byref(error)) == 0, error.value
    assert llvm.LLVMCreateExecutionEngineForModule(ctypes.byref(engine), module, ctypes.byref(error)) == 0, error.value
    address = llvm.LLVMGetFunctionAddress(engine, b"scaled")
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(2.0) == 7.0
    llvm.LLVMDisposeExecutionEngine(engine)


def torch() -> None:
    """PyTorch's fusers: TorchScript's, and where a compiler is at hand the one of torch.compile."""
    import torch

    def function(x, y):
        return torch.relu(x * y + x) * 2

    x, y = (torch.arange(256, dtype=torch.float32).reshape(16, 16) - shift for shift in (100, 7))
    wanted = function(x, y)
    scripted = torch.jit.script(function)
    for _ in range(3):  # the fuser looks at two runs before it compiles
        assert torch.equal(scripted(x, y), wanted)
    assert torch.equal(torch.compile(function)(x, y), wanted)


if __name__ == "__main__":
    turns = [{"clikart": clikart, "system": system, "torch": torch}[who] for who in sys.argv[1:]]
    for turn in turns + turns:
        turn()
    print("ok")
