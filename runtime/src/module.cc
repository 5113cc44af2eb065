// The tree of modules: children, names, and forwards through containers.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "clikart/nn.h"
#include "status_macros.h"
#include "text.h"

namespace clikart {
namespace {

using Children = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

std::string JoinPath(std::string_view prefix, std::string_view name) {
  if (prefix.empty()) return std::string(name);
  return absl::StrCat(Text(prefix), ".", Text(name));
}

void Collect(const std::shared_ptr<Module>& module, const std::string& path, std::set<const Module*>& seen,
             Children& out) {
  if (!seen.insert(module.get()).second) return;
  out.emplace_back(path, module);
  for (const auto& [name, child] : module->children()) Collect(child, JoinPath(path, name), seen, out);
}

}  // namespace

absl::StatusOr<Tensor> Module::Forward(const Tensor&) {
  return absl::UnimplementedError(absl::StrCat(TypeName(), " defines no forward"));
}

std::string Module::ToString() const {
  if (children_.empty()) return absl::StrCat(TypeName(), "()");
  std::string text = absl::StrCat(TypeName(), "(\n");
  for (const auto& [name, child] : children_) {
    absl::StrAppend(&text, "  (", name, "): ", absl::StrReplaceAll(child->ToString(), {{"\n", "\n  "}}), "\n");
  }
  return text + ")";
}

absl::Status Module::RegisterChild(std::string_view name, std::shared_ptr<Module> child) {
  if (name.empty() || name.find('.') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Text(name), "' does not name a child module: a name is not empty and has no dot"));
  }
  if (child == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("child module '", Text(name), "' is null"));
  }
  for (auto& [known, module] : children_) {
    if (known != name) continue;
    module = std::move(child);
    return absl::OkStatus();
  }
  children_.emplace_back(std::string(name), std::move(child));
  return absl::OkStatus();
}

bool Module::RemoveChild(std::string_view name) {
  return std::erase_if(children_, [&](const auto& entry) { return entry.first == name; }) > 0;
}

Children Module::NamedModules(std::string_view prefix) {
  Children out;
  std::set<const Module*> seen;
  Collect(shared_from_this(), std::string(prefix), seen, out);
  return out;
}

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules) {
  for (auto& module : modules) {
    const absl::Status status = RegisterChild(absl::StrCat(children().size()), std::move(module));
    status.IgnoreError();  // only a null module is refused, and it has no place here
  }
}

absl::StatusOr<Tensor> Sequential::Forward(const Tensor& x) {
  Tensor value = x;
  for (const auto& [name, module] : children()) {
    CLIKART_ASSIGN_OR_RETURN(value, module->Forward(value));
  }
  return value;
}

ModuleList::ModuleList(std::vector<std::shared_ptr<Module>> modules) {
  for (auto& module : modules) Append(std::move(module)).IgnoreError();
}

absl::Status ModuleList::Append(std::shared_ptr<Module> module) {
  return RegisterChild(absl::StrCat(children().size()), std::move(module));
}

}  // namespace clikart
