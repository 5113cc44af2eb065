// What one thread's requests for kernels and packed weights came to: how a warm-up tells, layer by layer, what it made
// from what was there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clikart {

struct Kernel;

// Counts what is made on this thread while it lives; of several the innermost does.
class PrepareWatch {
 public:
  PrepareWatch();
  ~PrepareWatch();
  PrepareWatch(const PrepareWatch&) = delete;
  PrepareWatch& operator=(const PrepareWatch&) = delete;

  // Kernels that were not in memory yet.
  int64_t compiled = 0;
  int64_t loaded = 0;
  int64_t rejected = 0;                 // by every emitter of code
  std::vector<std::string> rejections;  // of all of them, also those that a later emitter served
  int64_t packed = 0;

  static void TellKernel(const Kernel& kernel);
  static void TellPacked();

 private:
  PrepareWatch* const outer_;
};

}  // namespace clikart
