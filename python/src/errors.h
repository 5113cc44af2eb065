// Statuses as Python exceptions: the one place that maps them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace clikart::python {

namespace py = pybind11;

// InvalidArgument: ValueError; everything else: ClikaRTError.
[[noreturn]] void Raise(const absl::Status& status);
[[noreturn]] void RaiseTypeError(const std::string& message);
[[noreturn]] void RaiseBufferError(const std::string& message);
[[noreturn]] void RaiseRuntime(const std::string& message);  // ClikaRTError

inline void Check(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}

template <typename T>
T Unwrap(absl::StatusOr<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

// "list", "numpy.ndarray": the type of an object, for messages.
std::string TypeNameOf(py::handle object);

void BindErrors(py::module_& m);

}  // namespace clikart::python
