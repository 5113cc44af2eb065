#include "clikart/analysis/disassembly.h"

#include <algorithm>

#include "decoder.h"

namespace clikart::analysis {

absl::StatusOr<std::vector<Line>> Disassemble(std::span<const uint8_t> code) {
  const Decoder decoder("");
  const auto decoded = decoder.Decode(code);
  if (!decoded.ok()) return decoded.status();
  std::vector<Line> lines;
  lines.reserve(decoded->size());
  for (const Decoded& each : *decoded) {
    Line line{.offset = each.offset,
              .bytes = each.bytes,
              .text = decoder.Print(each),
              .returns = decoder.jumps().isReturn(each.instruction)};
    uint64_t target = 0;
    const bool jumps = decoder.jumps().isBranch(each.instruction) &&
                       decoder.jumps().evaluateBranch(each.instruction, static_cast<uint64_t>(each.offset),
                                                      static_cast<uint64_t>(each.bytes), target);
    if (jumps) line.jumps_to = static_cast<int64_t>(target);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<CodeRange> InnerLoops(std::span<const Line> lines) {
  std::vector<CodeRange> loops;
  int64_t last_return = Line::kNone;
  for (const Line& line : lines) {
    if (line.returns) last_return = line.offset;
    if (line.jumps_to == Line::kNone || line.jumps_to > line.offset) continue;
    const CodeRange loop{.begin = line.jumps_to, .end = line.offset + line.bytes};
    if (last_return >= loop.begin) continue;
    // A loop inside ends before the one around it does, so it is known by then.
    const bool holds_another =
        std::any_of(loops.begin(), loops.end(), [&](const CodeRange& known) { return known.begin >= loop.begin; });
    if (!holds_another) loops.push_back(loop);
  }
  return loops;
}

}  // namespace clikart::analysis
