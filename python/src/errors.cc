#include "errors.h"

namespace clikart::python {
namespace {

PyObject* g_error = nullptr;  // ClikaRTError, alive as long as the process

[[noreturn]] void RaiseAs(PyObject* type, std::string_view message) {
  PyObject* text = PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace");
  if (text != nullptr) {
    PyErr_SetObject(type, text);
    Py_DECREF(text);
  }
  throw py::error_already_set();
}

}  // namespace

void Raise(const absl::Status& status) {
  RaiseAs(absl::IsInvalidArgument(status) ? PyExc_ValueError : g_error,
          {status.message().data(), status.message().size()});
}

void RaiseTypeError(const std::string& message) { RaiseAs(PyExc_TypeError, message); }
void RaiseBufferError(const std::string& message) { RaiseAs(PyExc_BufferError, message); }
void RaiseRuntime(const std::string& message) { RaiseAs(g_error, message); }

std::string TypeNameOf(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

void BindErrors(py::module_& m) {
  g_error = PyErr_NewExceptionWithDoc(
      "clika_runtime.ClikaRTError",
      "What the runtime refuses to do; the message names the layer, what was found and what was expected.",
      PyExc_RuntimeError, nullptr);
  if (g_error == nullptr) throw py::error_already_set();
  m.add_object("ClikaRTError", py::handle(g_error));
}

}  // namespace clikart::python
