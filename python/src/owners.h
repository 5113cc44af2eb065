// Python references that C++ memory holds, and the GIL around C++ work.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace clikart::python {

namespace py = pybind11;

// Runs `release(context)` under the GIL when the last copy goes. Dropped without the GIL it waits for
// the next moment that has it, so a drop inside a C++ lock can neither block nor run Python code there.
// Never runs once the interpreter is gone.
std::shared_ptr<void> Owner(void (*release)(void*), void* context);
// Keeps a Python object alive.
std::shared_ptr<void> Owner(py::object object);

// Lets other Python threads run while it lives.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil();
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

 private:
  PyThreadState* state_;
};

// Lets C++ work that runs without the GIL call Python while it lives.
class HeldGil {
 public:
  HeldGil();
  ~HeldGil() { PyGILState_Release(state_); }
  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace clikart::python
