#include "gate.h"

#include <algorithm>
#include <array>

#include "clikart/ir/program.h"
#include "parallel.h"
#include "tensor_copy.h"

namespace clikart {

void ApplyGate(ir::Activation activation, const float* x, int64_t rows, int64_t outputs, std::byte* y,
               ir::DType y_type) {
  constexpr int64_t kLanes = 256;
  const ir::Program& program = ir::ProgramOf(activation);
  const int64_t y_size = static_cast<int64_t>(ir::SizeOf(y_type));
  const int64_t chunks = (outputs + kLanes - 1) / kLanes;
  ParallelFor(rows * chunks, [&](int64_t task) {
    const int64_t row = task / chunks, first = task % chunks * kLanes;
    const int64_t count = std::min(kLanes, outputs - first);
    const float* const gate = x + row * 2 * outputs + first;
    const std::array<const float*, 2> inputs = {gate, gate + outputs};
    std::array<float, kLanes> results;
    ir::EvaluateLanes(program, inputs, count, results.data());
    ConvertFloats(reinterpret_cast<const std::byte*>(results.data()), ir::DType::kFloat32,
                  y + (row * outputs + first) * y_size, y_type, count);
  });
}

}  // namespace clikart
