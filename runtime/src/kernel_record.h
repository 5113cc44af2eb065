// A generated kernel as the cache folder's entry, and back.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "clikart/cache/entry.h"
#include "clikart/codegen/driver.h"
#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"

namespace clikart {

// What the kernel for `spec` by `emitter` is kept under.
cache::Key KeyOf(const ir::KernelSpec& spec, const codegen::Target& target, std::string_view emitter,
                 std::string_view build);

// Nothing where the kernel has no code, or a driver that has no name.
std::optional<cache::Entry> ToEntry(const codegen::EmittedKernel& kernel, cache::Key key,
                                    std::span<const codegen::Driver> drivers, double jit_seconds);

// Nothing where the entry says what this build does not know. `entry` is what was found under the key of `spec`.
std::optional<codegen::EmittedKernel> FromEntry(cache::Entry entry, const ir::KernelSpec& spec,
                                                std::span<const codegen::Driver> drivers);

}  // namespace clikart
