#include "kernel_runner.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <variant>

#include "clikart/codegen/driver.h"
#include "clikart/codegen/emitter.h"
#include "clikart/ir/code_layout.h"
#include "clikart/ir/panel_layout.h"
#include "layers.h"

namespace clikart::bench {
namespace {

constexpr size_t kLine = 64;

// The first line of memory that has one more than it needs.
size_t FirstLine(const std::vector<std::byte>& memory) {
  return (kLine - reinterpret_cast<uintptr_t>(memory.data()) % kLine) % kLine;
}

}  // namespace

int64_t PackedBytes(const ir::KernelSpec& spec) { return ir::LayoutOf(spec).Panels() * ir::PackedPanelBytes(spec); }

ZeroBytes::ZeroBytes(int64_t size) : memory_(static_cast<size_t>(size) + kLine) {}

std::span<const std::byte> ZeroBytes::span() const {
  return std::span(memory_).subspan(FirstLine(memory_), memory_.size() - kLine);
}

KernelRunner::KernelRunner(std::string_view emitter, codegen::IsaLevel level, const ir::KernelSpec& spec, int64_t rows)
    : rows_(rows), x_(static_cast<size_t>(rows * spec.k), 0.5f), y_(static_cast<size_t>(rows * spec.outputs())) {
  const auto emitted = codegen::FindEmitter(emitter)->Emit(spec, codegen::TargetOf(level));
  if (const auto* const rejection = std::get_if<codegen::Rejection>(&emitted)) {
    std::fprintf(stderr, "clikart-bench: %s\n", rejection->detail.c_str());
    std::exit(1);
  }
  const auto& kernel = std::get<codegen::EmittedKernel>(emitted);
  code_ = Must(MakeExecutable(kernel.code));
  image_.spec = spec;
  image_.schedule = kernel.schedule;
  image_.run = kernel.run;
  for (size_t i = 0; i < kernel.entry_offsets.size(); ++i) {
    if (kernel.entry_offsets[i] >= 0) image_.entries[i] = code_->data() + kernel.entry_offsets[i];
  }
  const int64_t scratch = codegen::ScratchBytes(spec, image_.schedule, std::min(rows, image_.schedule.tile_rows),
                                                image_.schedule.tile_panels);
  scratch_.resize(static_cast<size_t>(scratch) + kLine);
}

void KernelRunner::Run(std::span<const std::byte> weights) {
  const codegen::Schedule& schedule = image_.schedule;
  const int64_t panels = ir::LayoutOf(image_.spec).Panels();
  const codegen::CodeArgs codes;
  codegen::TileArgs args;
  args.x_stride = image_.spec.k * static_cast<int64_t>(sizeof(float));
  args.y_stride = image_.spec.outputs() * static_cast<int64_t>(sizeof(float));
  args.codes = &codes;
  args.scratch = scratch_.data() + FirstLine(scratch_);
  codegen::PrepareArgs prepare{.x = reinterpret_cast<const std::byte*>(x_.data()), .x_stride = args.x_stride};
  prepare.codes = &codes;
  prepare.rows = prepare.count = rows_;
  const int64_t prepared_bytes = codegen::PreparedBytes(image_, &codes, rows_);
  prepared_.resize(static_cast<size_t>(prepared_bytes) + kLine);
  prepare.out = prepared_.data() + FirstLine(prepared_);
  codegen::PrepareRows(image_, prepare);
  if (prepared_bytes > 0) args.prepared = {.data = prepare.out, .count = rows_};
  for (int64_t panel = 0; panel < panels; panel += schedule.tile_panels) {
    args.first_panel = panel;
    args.panels = std::min(schedule.tile_panels, panels - panel);
    args.weights = weights.data() + panel * ir::PackedPanelBytes(image_.spec);
    for (int64_t row = 0; row < rows_; row += schedule.tile_rows) {
      args.x = reinterpret_cast<const std::byte*>(x_.data()) + row * args.x_stride;
      args.y = reinterpret_cast<std::byte*>(y_.data()) + row * args.y_stride;
      args.rows = std::min(schedule.tile_rows, rows_ - row);
      args.prepared.first = row;
      image_.run(image_, args);
    }
  }
}

}  // namespace clikart::bench
