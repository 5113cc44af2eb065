// QuantScheme, with the spellings of its fields.
#include <pybind11/stl.h>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "clikart/ir/quant_scheme.h"
#include "errors.h"
#include "modules.h"
#include "values.h"

namespace clikart::python {
namespace {

using ir::Codebook;
using ir::ScaleType;

constexpr std::pair<ScaleType, std::string_view> kScaleTypes[] = {{ScaleType::kFloat32, "float32"},
                                                                  {ScaleType::kFloat16, "float16"},
                                                                  {ScaleType::kBFloat16, "bfloat16"},
                                                                  {ScaleType::kE8m0, "e8m0"},
                                                                  {ScaleType::kE4m3, "e4m3"}};
constexpr std::pair<Codebook, std::string_view> kCodebooks[] = {
    {Codebook::kNf4, "nf4"}, {Codebook::kE2m1, "e2m1"}, {Codebook::kE4m3, "e4m3"}, {Codebook::kE5m2, "e5m2"}};

template <typename T, size_t N>
T Find(const std::pair<T, std::string_view> (&table)[N], std::string_view text, std::string_view field) {
  std::string known;
  for (const auto& [value, name] : table) {
    if (name == text) return value;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(name));
  }
  throw py::value_error(
      absl::StrCat("QuantScheme: ", std::string(field), " \"", std::string(text), "\" is not one of ", known));
}

template <typename T, size_t N>
std::string_view NameIn(const std::pair<T, std::string_view> (&table)[N], T wanted) {
  for (const auto& [value, name] : table) {
    if (value == wanted) return name;
  }
  return {};
}

py::object ScaleObject(ScaleType type) {
  const std::string_view name = NameIn(kScaleTypes, type);
  if (const auto dtype = ir::ParseDType(name); dtype && ir::IsFloat(*dtype)) return DTypeObject(*dtype);
  return py::str(name.data(), name.size());
}

py::object CodebookObject(Codebook codebook) {
  const std::string_view name = NameIn(kCodebooks, codebook);
  if (name.empty()) return py::none();
  return py::str(name.data(), name.size());
}

std::string Repr(const QuantScheme& s) {
  return absl::StrCat("QuantScheme(bits=", s.bits, ", symmetric=", s.symmetric ? "True" : "False",
                      ", group_size=", s.group_size, ", scale_dtype=", std::string(py::repr(ScaleObject(s.scale_type))),
                      ", codebook=", std::string(py::repr(CodebookObject(s.codebook))),
                      s.minimum ? ", minimum=True)" : ")");
}

}  // namespace

void BindQuantScheme(py::module_& m) {
  py::class_<QuantScheme>(m, "QuantScheme")
      .def(py::init([](int bits, bool symmetric, int64_t group_size, const std::string& scale_type,
                       const std::optional<std::string>& codebook, bool minimum) {
        QuantScheme scheme{.bits = bits,
                           .symmetric = symmetric,
                           .group_size = group_size,
                           .scale_type = Find(kScaleTypes, scale_type, "scale_dtype"),
                           .codebook = codebook ? Find(kCodebooks, *codebook, "codebook") : Codebook::kInteger,
                           .minimum = minimum};
        Check(scheme.Validate());
        return scheme;
      }))
      .def_static(
          "parse", [](const std::string& text) { return Unwrap(QuantScheme::Parse(text)); }, py::arg("text"),
          "The scheme that prints as `text`: \"int4_g128_asym\", \"mxfp4\". ValueError otherwise.")
      .def_readonly("bits", &QuantScheme::bits)
      .def_readonly("symmetric", &QuantScheme::symmetric)
      .def_readonly("group_size", &QuantScheme::group_size, "Inputs that share a scale; -1: the whole row.")
      .def_property_readonly("scale_dtype", [](const QuantScheme& s) { return ScaleObject(s.scale_type); })
      .def_property_readonly("codebook", [](const QuantScheme& s) { return CodebookObject(s.codebook); })
      .def_readonly("minimum", &QuantScheme::minimum, "Whether a group is code * scale + minimum.")
      .def("__str__", &QuantScheme::ToString)
      .def("__repr__", &Repr)
      .def("__eq__",
           [](const QuantScheme& a, const py::object& b) {
             return py::isinstance<QuantScheme>(b) && a == py::cast<const QuantScheme&>(b);
           })
      .def("__hash__", [](const QuantScheme& s) { return static_cast<py::ssize_t>(absl::HashOf(s)); })
      .def("__reduce__", [](const QuantScheme& s) {
        return py::make_tuple(py::module_::import("clika_runtime._copying").attr("parse_scheme"),
                              py::make_tuple(s.ToString()));
      });
}

}  // namespace clikart::python
