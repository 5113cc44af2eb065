// The layers: their arguments as plain values (nn.py turns what a user writes into those), their
// properties, and the short way from a call in Python to the forward in C++.
#include <pybind11/stl.h>

#include "clikart/nn.h"
#include "errors.h"
#include "modules.h"
#include "owners.h"
#include "values.h"

namespace clikart::python {

StateDict ToStateDict(const py::object& mapping);  // nn.cc

namespace {

PyObject* g_layer_forward = nullptr;  // what a class finds under "forward" when no Python class redefines it
PyObject* g_forward = nullptr;        // "forward"

Tensor Forward(Layer& layer, const Tensor& x) {
  absl::StatusOr<Tensor> y;
  {
    ReleasedGil released;
    y = layer.Forward(x);
  }
  return Unwrap(std::move(y));
}

py::object CallLayer(const py::object& self, const py::object& x) {
  if (_PyType_Lookup(Py_TYPE(self.ptr()), g_forward) != g_layer_forward) return self.attr("forward")(x);
  return py::cast(Forward(py::cast<Layer&>(self), ToTensor(x)));
}

// A parameter by name; None where the layer has none of it.
template <typename L>
void BindParameter(L& type, const char* name, const char* doc) {
  type.def_property_readonly(
      name,
      [name](const Layer& layer) -> py::object {
        absl::StatusOr<Tensor> tensor;
        {
          ReleasedGil released;
          tensor = layer.Parameter(name);
        }
        if (absl::IsNotFound(tensor.status())) return py::none();
        return py::cast(Unwrap(std::move(tensor)));
      },
      doc);
}

py::object NameOrNone(std::string_view name) {
  if (name.empty()) return py::none();
  return py::str(name.data(), name.size());
}

std::string ActivationName(Activation activation) { return std::string(ir::Name(activation)); }
Activation ToActivation(const std::string& name) {
  return name == ir::Name(Activation::kNone) ? Activation::kNone : Unwrap(ir::ParseActivation(name));
}

void BindLayerBase(py::module_& m) {
  py::class_<Layer, Module, std::shared_ptr<Layer>> layer(m, "Layer", "A module with parameters of its own.",
                                                          Collected());
  layer
      .def(
          "forward", [](Layer& self, const TensorArgument& x) { return Forward(self, x.tensor); }, py::arg("x"),
          "The layer's output for `x`: a Tensor of the input's dtype.\n"
          "ClikaRTError: unbound, or part of a group. ValueError: rank or width does not fit.")
      .def("__call__", &CallLayer, py::arg("x"))
      .def_property_readonly(
          "name", [](const Layer& self) { return NameOrNone(self.name()); },
          "The label given at construction, or None.")
      .def_property_readonly(
          "state", [](const Layer& self) { return std::string(Name(self.state())); },
          "\"unbound\", \"bound\", \"packed\" or \"fused\".")
      .def(
          "_bind",
          [](Layer& self, const py::dict& tensors, bool assign) {
            const StateDict state = ToStateDict(tensors);
            absl::Status status;
            {
              ReleasedGil released;
              status = self.Bind(state, {.strict = true, .assign = assign});
            }
            Check(status);
          },
          py::arg("tensors"), py::arg("assign"))
      .def(
          "explain",
          [](const Layer& self) {
            ReleasedGil released;
            return self.Explain();
          },
          "What is fused and which kernel serves it, or the reason that specialization was rejected.");
  g_forward = PyUnicode_InternFromString("forward");
  g_layer_forward = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(layer.ptr()), g_forward);
}

constexpr char kWeightDoc[] =
    "The weight as in the checkpoint; rebuilt from the pack, bit for bit, where a pack holds it.";
constexpr char kBiasDoc[] = "The bias, or None.";

void BindLinear(py::module_& m) {
  py::class_<Linear, Layer, std::shared_ptr<Linear>> linear(m, "Linear", Collected());
  linear
      .def(py::init([](int64_t in, int64_t out, bool bias, DType dtype, const std::string& activation,
                       const std::string& residency, const std::string& name) {
        return Unwrap(Linear::Create(in, out,
                                     {.bias = bias,
                                      .dtype = dtype,
                                      .activation = ToActivation(activation),
                                      .residency = Unwrap(ParseResidency(residency)),
                                      .name = name}));
      }))
      .def_property_readonly("in_features", &Linear::in_features)
      .def_property_readonly("out_features", &Linear::out_features,
                             "Rows of the weight; for a group, of all its parts.")
      .def_property_readonly("has_bias", &Linear::has_bias)
      .def_property_readonly("dtype", &Linear::dtype, "Of the weight.")
      .def_property_readonly("_activation", [](const Linear& self) { return ActivationName(self.activation()); })
      .def_property_readonly("residency", [](const Linear& self) { return std::string(Name(self.residency())); });
  BindParameter(linear, "weight", kWeightDoc);
  BindParameter(linear, "bias", kBiasDoc);
}

std::shared_ptr<QLinearWoQ> Quantize(const Linear& linear, const QuantScheme& scheme, const std::string& scales,
                                     const std::string& compute, const std::optional<std::string>& residency,
                                     std::optional<std::string> name, const py::object& importance) {
  QuantizeOptions options{.scheme = scheme,
                          .scales = Unwrap(ParseScaleSearch(scales)),
                          .compute = Unwrap(ParseCompute(compute)),
                          .name = std::move(name)};
  if (residency.has_value()) options.residency = Unwrap(ParseResidency(*residency));
  if (!importance.is_none()) options.importance = ToTensor(importance);
  absl::StatusOr<std::shared_ptr<QLinearWoQ>> layer;
  {
    ReleasedGil released;
    layer = QLinearWoQ::Quantize(linear, options);
  }
  return Unwrap(std::move(layer));
}

void BindQLinearWoQ(py::module_& m) {
  py::class_<QLinearWoQ, Layer, std::shared_ptr<QLinearWoQ>> layer(m, "QLinearWoQ", Collected());
  layer
      .def(py::init([](int64_t in, int64_t out, bool bias, const QuantScheme& scheme, const std::string& activation,
                       const std::string& residency, const std::string& compute, const std::string& name) {
        return Unwrap(QLinearWoQ::Create(in, out,
                                         {.bias = bias,
                                          .scheme = scheme,
                                          .activation = ToActivation(activation),
                                          .residency = Unwrap(ParseResidency(residency)),
                                          .compute = Unwrap(ParseCompute(compute)),
                                          .name = name}));
      }))
      .def_static("_quantize", &Quantize)
      .def_property_readonly("in_features", &QLinearWoQ::in_features)
      .def_property_readonly("out_features", &QLinearWoQ::out_features)
      .def_property_readonly("has_bias", &QLinearWoQ::has_bias)
      .def_property_readonly("scheme", &QLinearWoQ::scheme)
      .def_property_readonly(
          "compute", [](const QLinearWoQ& self) { return std::string(Name(self.compute())); }, "\"float\" or \"int8\".")
      .def_property_readonly("_activation", [](const QLinearWoQ& self) { return ActivationName(self.activation()); })
      .def_property_readonly("residency", [](const QLinearWoQ& self) { return std::string(Name(self.residency())); });
  BindParameter(layer, "weight", "The codes, packed as in the checkpoint.");
  BindParameter(layer, "bias", kBiasDoc);
  BindParameter(layer, "weight_scale", "[out, groups]");
  BindParameter(layer, "weight_zero_point", "[out, groups], or None where the scheme has none.");
  BindParameter(layer, "weight_minimum", "[out, groups] of the scales' dtype, or None where the scheme has none.");
  BindParameter(layer, "weight_g_idx", "The group of each input, or None.");
  BindParameter(layer, "weight_global_scale", "The scale of the scales (nvfp4), or None.");
}

void BindQLinear(py::module_& m) {
  py::class_<QLinear, Layer, std::shared_ptr<QLinear>> layer(m, "QLinear", Collected());
  layer
      .def(py::init([](int64_t in, int64_t out, bool bias, const std::string& activation, const std::string& name) {
        return Unwrap(QLinear::Create(in, out, {.bias = bias, .activation = ToActivation(activation), .name = name}));
      }))
      .def_property_readonly("in_features", &QLinear::in_features)
      .def_property_readonly("out_features", &QLinear::out_features)
      .def_property_readonly("has_bias", &QLinear::has_bias)
      .def_property_readonly("_activation", [](const QLinear& self) { return ActivationName(self.activation()); });
  BindParameter(layer, "weight", "int8 [out, in]");
  BindParameter(layer, "bias", kBiasDoc);
  BindParameter(layer, "weight_scale", "float32 [out]");
  BindParameter(layer, "input_scale", "One value.");
  BindParameter(layer, "input_zero_point", "One value.");
  BindParameter(layer, "output_scale", "One value, or None: the output is float32.");
  BindParameter(layer, "output_zero_point", "One value, or None.");
}

std::string_view PaddingKind(ConvOptions::Padding kind) {
  switch (kind) {
    case ConvOptions::Padding::kExplicit:
      return "explicit";
    case ConvOptions::Padding::kValid:
      return "valid";
    case ConvOptions::Padding::kSame:
      return "same";
  }
  return "";
}

ConvOptions::Padding ToPaddingKind(std::string_view text) {
  using Padding = ConvOptions::Padding;
  for (const Padding kind : {Padding::kExplicit, Padding::kValid, Padding::kSame}) {
    if (text == PaddingKind(kind)) return kind;
  }
  throw py::value_error("padding \"" + std::string(text) + "\" is not known; the words are \"valid\" and \"same\"");
}

void BindConv(py::module_& m) {
  py::class_<Conv, Layer, std::shared_ptr<Conv>> conv(m, "Conv", Collected());
  conv.def(py::init([](int64_t in, int64_t out, const py::object& kernel, const py::object& stride,
                       const std::string& padding_kind, std::vector<std::pair<int64_t, int64_t>> padding,
                       const py::object& dilation, int64_t groups, bool bias, const std::string& padding_mode,
                       DType dtype, const std::string& activation, const std::string& name) {
        return Unwrap(Conv::Create(in, out,
                                   {.kernel_size = ToShape(kernel),
                                    .stride = ToShape(stride),
                                    .dilation = ToShape(dilation),
                                    .padding_kind = ToPaddingKind(padding_kind),
                                    .padding = std::move(padding),
                                    .padding_mode = Unwrap(ParsePaddingMode(padding_mode)),
                                    .groups = groups,
                                    .bias = bias,
                                    .dtype = dtype,
                                    .activation = ToActivation(activation),
                                    .name = name}));
      }))
      .def_property_readonly("in_channels", &Conv::in_channels)
      .def_property_readonly("out_channels", &Conv::out_channels)
      .def_property_readonly("kernel_size", [](const Conv& self) { return ToTuple(self.options().kernel_size); })
      .def_property_readonly("stride", [](const Conv& self) { return ToTuple(self.options().stride); })
      .def_property_readonly("dilation", [](const Conv& self) { return ToTuple(self.options().dilation); })
      .def_property_readonly("_padding_kind",
                             [](const Conv& self) { return std::string(PaddingKind(self.options().padding_kind)); })
      .def_property_readonly("_padding",
                             [](const Conv& self) {
                               py::list pairs;
                               for (const auto& [before, after] : self.options().padding)
                                 pairs.append(py::make_tuple(before, after));
                               return py::tuple(pairs);
                             })
      .def_property_readonly("padding_mode",
                             [](const Conv& self) { return std::string(Name(self.options().padding_mode)); })
      .def_property_readonly("groups", [](const Conv& self) { return self.options().groups; })
      .def_property_readonly("has_bias", [](const Conv& self) { return self.options().bias; })
      .def_property_readonly(
          "dtype", [](const Conv& self) { return self.options().dtype; }, "Of the weight.")
      .def_property_readonly("_activation", [](const Conv& self) { return ActivationName(self.options().activation); });
  BindParameter(conv, "weight", kWeightDoc);
  BindParameter(conv, "bias", kBiasDoc);
}

template <typename G, typename Base>
void BindGroup(py::module_& m, const char* name, const char* doc) {
  py::class_<G, Base, std::shared_ptr<G>>(m, name, doc, Collected())
      .def_property_readonly(
          "parts",
          [](const G& self) {
            py::list parts;
            for (const auto& part : self.parts()) parts.append(py::cast(part));
            return py::tuple(parts);
          },
          "The fused layers, in order.")
      .def_property_readonly(
          "split_sizes", [](const G& self) { return self.split_sizes(); },
          "Width of each part in the output, for split_with_sizes.")
      .def_property_readonly(
          "fused", [](const G& self) { return self.fused(); }, "Whether one kernel serves the group now.")
      .def_property_readonly("residency", [](const G& self) { return std::string(Name(self.residency())); });
}

template <typename L>
std::vector<std::shared_ptr<L>> ToLayers(const py::tuple& objects) {
  std::vector<std::shared_ptr<L>> layers;
  for (const py::handle object : objects) layers.push_back(py::cast<std::shared_ptr<L>>(object));
  return layers;
}

template <auto Fuse, typename L>
auto FuseBound(const py::tuple& objects, std::optional<std::string> name, const std::string& activation) {
  const std::vector<std::shared_ptr<L>> layers = ToLayers<L>(objects);
  const FuseOptions options{.name = std::move(name), .activation = ToActivation(activation)};
  decltype(Fuse(layers, options)) group;
  {
    ReleasedGil released;
    group = Fuse(layers, options);
  }
  return Unwrap(std::move(group));
}

}  // namespace

void BindLayers(py::module_& m) {
  BindLayerBase(m);
  BindLinear(m);
  BindQLinearWoQ(m);
  BindQLinear(m);
  BindConv(m);
}

void BindGroups(py::module_& m) {
  BindGroup<LinearGroup, Linear>(m, "LinearGroup", "What fuse_linears returns.");
  BindGroup<ConvGroup, Conv>(m, "ConvGroup", "What fuse_convs returns.");
  m.def("fuse_linears", &FuseBound<&FuseLinears, Layer>);
  m.def("fuse_convs", &FuseBound<&FuseConvs, Conv>);
  m.def("activation_names", [] {
    py::list names;
    for (const Activation activation : ir::AllActivations()) {
      if (activation != Activation::kNone) names.append(ActivationName(activation));
    }
    return names;
  });
  m.def("parse_activation", [](const std::string& text) { return ActivationName(Unwrap(ir::ParseActivation(text))); });
}

}  // namespace clikart::python
