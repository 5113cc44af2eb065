#include "kernel_record.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "text.h"

namespace clikart {
namespace {

using codegen::EmittedKernel;
using codegen::Schedule;

// "few_rows=48 row_block=6": every field, in their order.
std::string ToText(const Schedule& schedule) {
  std::string text;
  for (const codegen::ScheduleField& field : codegen::kScheduleFields) {
    absl::StrAppend(&text, text.empty() ? "" : " ", Text(field.name), "=", schedule.*field.value);
  }
  return text;
}

std::optional<Schedule> ParseSchedule(const std::string& text) {
  Schedule schedule;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  if (words.size() != std::size(codegen::kScheduleFields)) return std::nullopt;
  for (size_t i = 0; i < words.size(); ++i) {
    const codegen::ScheduleField& field = codegen::kScheduleFields[i];
    const std::string name = std::string(field.name) + "=";
    if (!words[i].starts_with(name) || !absl::SimpleAtoi(words[i].substr(name.size()), &(schedule.*field.value))) {
      return std::nullopt;
    }
  }
  return schedule;
}

}  // namespace

cache::Key KeyOf(const ir::KernelSpec& spec, const codegen::Target& target, std::string_view emitter,
                 std::string_view build) {
  return {spec.ToString(), target.ToString(), std::string(emitter), std::string(build)};
}

std::optional<cache::Entry> ToEntry(const EmittedKernel& kernel, cache::Key key,
                                    std::span<const codegen::Driver> drivers, double jit_seconds) {
  const auto driver = std::find_if(drivers.begin(), drivers.end(),
                                   [&](const codegen::Driver& candidate) { return candidate.run == kernel.run; });
  if (kernel.code.empty() || driver == drivers.end()) return std::nullopt;
  cache::Entry entry;
  entry.key = std::move(key);
  entry.isa = codegen::Name(kernel.isa);
  entry.driver = driver->name;
  entry.schedule = ToText(kernel.schedule);
  for (size_t i = 0; i < kernel.entry_offsets.size(); ++i) {
    if (kernel.entry_offsets[i] >= 0) entry.entry_points.push_back({static_cast<int>(i), kernel.entry_offsets[i]});
  }
  for (const codegen::Loop& loop : kernel.loops)
    entry.loops.push_back({loop.name, loop.begin, loop.end, loop.multiplies});
  entry.jit_nanoseconds = std::llround(jit_seconds * 1e9);
  entry.instruction_bytes = kernel.instruction_bytes;
  entry.code = kernel.code;
  return entry;
}

std::optional<EmittedKernel> FromEntry(cache::Entry entry, const ir::KernelSpec& spec,
                                       std::span<const codegen::Driver> drivers) {
  const auto driver = std::find_if(drivers.begin(), drivers.end(),
                                   [&](const codegen::Driver& candidate) { return candidate.name == entry.driver; });
  const std::optional<Schedule> schedule = ParseSchedule(entry.schedule);
  const absl::StatusOr<codegen::IsaLevel> isa = codegen::ParseIsaLevel(entry.isa);
  if (driver == drivers.end() || !schedule || !isa.ok()) return std::nullopt;
  EmittedKernel kernel;
  kernel.spec = spec;
  kernel.schedule = *schedule;
  kernel.emitter = std::move(entry.key.emitter);
  kernel.isa = *isa;
  kernel.code = std::move(entry.code);
  kernel.instruction_bytes = entry.instruction_bytes;
  kernel.entry_offsets.fill(-1);
  for (const cache::EntryPoint& entry_point : entry.entry_points) {
    if (entry_point.number >= codegen::kMaxEntries) return std::nullopt;
    kernel.entry_offsets[static_cast<size_t>(entry_point.number)] = static_cast<int32_t>(entry_point.offset);
  }
  for (cache::Loop& loop : entry.loops) {
    kernel.loops.push_back(
        {std::move(loop.name), static_cast<int32_t>(loop.begin), static_cast<int32_t>(loop.end), loop.multiplies});
  }
  kernel.run = driver->run;
  return kernel;
}

}  // namespace clikart
