// For tests of emitters: memory between guard pages, code made executable, and a reference that
// follows spec/numerics.md word by word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "clikart/codegen/emitter.h"
#include "clikart/codegen/kernel.h"
#include "clikart/codegen/target.h"
#include "clikart/ir/kernel_spec.h"

namespace clikart::codegen {

// What this CPU and system can execute, cut off at each level in turn: lowest first, no two alike. So the
// same test covers more where there is more, in an emulator too. Where CLIKART_TEST_LEVELS names levels
// ("avx512,amx"), these alone; a program ends at once where the CPU lacks one, so none is skipped in silence.
std::span<const Target> RunnableTargets();

// `spec` with its weights packed in every way that it allows, and with every product that the target has for its
// types, whichever of them a layer would choose.
std::vector<ir::KernelSpec> Variants(const ir::KernelSpec& spec, const Target& target);

// Every different kernel that the emitter makes of `spec` for these targets, its weights packed in every way
// that its product allows; none where the targets are all too old for it. Any other rejection fails the current test.
std::vector<EmittedKernel> RunnableKernels(const Emitter& emitter, const ir::KernelSpec& spec);

// `bytes` of memory that touch a guard page at their end or at their start.
class GuardedBuffer {
 public:
  enum class Edge : uint8_t { kEnd, kStart };
  GuardedBuffer(size_t bytes, Edge edge);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* mapping_;
  size_t mapped_;
  std::byte* data_;
  size_t bytes_;
};

// A kernel that can be called: its code is copied to memory that is writable first, executable after.
class LoadedKernel {
 public:
  explicit LoadedKernel(const EmittedKernel& kernel);
  ~LoadedKernel();
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  const KernelImage& image() const { return image_; }
  void Run(const TileArgs& args) const { image_.run(image_, args); }

 private:
  KernelImage image_;
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
};

// One element, widened or rounded.
float LoadElement(ir::DType dtype, const std::byte* from);
void StoreElement(ir::DType dtype, float value, std::byte* to);

// One launch: inputs of some shape, in values rather than in memory.
struct Problem {
  ir::KernelSpec spec;
  int64_t rows = 0;
  std::vector<float> x;        // [pixels, spec.channels()], exact in spec.x; dense: pixels = rows
  std::vector<int64_t> taps;   // [rows, spec.taps]: a pixel, or -1 for a zero tap
  std::vector<float> weights;  // [n, depth], exact in spec.w
  std::vector<float> bias;     // [n], empty without one
};

// Values that try the arithmetic: mostly ordinary, some zero, subnormal, or not finite.
enum class Values : uint8_t { kOrdinary, kExtreme };
Problem RandomProblem(const ir::KernelSpec& spec, int64_t rows, Values values, uint64_t seed);

// Rule 1: [rows, n] sums, before bias and activation.
std::vector<float> Contract(const Problem& problem);
// Rule 4 and the one rounding: [rows, outputs] elements of spec.y for sums like Contract's.
std::vector<std::byte> Finish(const Problem& problem, std::span<const float> sums);
// Both.
std::vector<std::byte> Reference(const Problem& problem);
// Index of the first of such sums that is further from the exact one than rule 5 allows, or -1.
int64_t FirstBeyondBound(const Problem& problem, std::span<const float> sums);

// Says so in `stray_write`, or fails the current test where that is null.
void ReportStrayWrite(int64_t row, int64_t at, int64_t row_bytes, std::string* stray_write);

// What `kernel` must answer: rule 1's bits, and where it multiplies otherwise what follows from sums of its own,
// which fail the current test where they are beyond rule 5's bound.
std::vector<std::byte> Wanted(const EmittedKernel& kernel, const Problem& problem);

// Runs the problem in tiles with every buffer between guard pages and canaries in the gaps of y;
// answers what Reference does. A write outside y's columns goes to ReportStrayWrite.
std::vector<std::byte> RunGuarded(const LoadedKernel& kernel, const Problem& problem, GuardedBuffer::Edge edge,
                                  int64_t tile_rows, int64_t tile_panels, std::string* stray_write = nullptr);

// Index of the first element in which they differ, or -1. All NaNs are equal.
int64_t FirstDifference(ir::DType dtype, std::span<const std::byte> got, std::span<const std::byte> wanted);

}  // namespace clikart::codegen
