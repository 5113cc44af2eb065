// A shared object with a library of its own, for the test that unloads it.
#include <thread>

#include "clikart/clikart.h"

namespace {

bool Forward(int64_t outputs) {
  const auto layer = clikart::Linear::Create(8, outputs, {.bias = false});
  const auto weight = clikart::Tensor::Empty(clikart::Shape{outputs, 8}, clikart::DType::kFloat32);
  const auto x = clikart::Tensor::Empty(clikart::Shape{1, 8}, clikart::DType::kFloat32);
  return layer.ok() && weight.ok() && x.ok() && (*layer)->Bind({{"weight", *weight}}).ok() &&
         (*layer)->Forward(*x).ok();
}

}  // namespace

// Whether forwards were served, each with a kernel that a thread of the library is then writing to disk. They run on
// a thread that ends: what is kept for a thread would keep the object loaded as long.
extern "C" [[gnu::visibility("default")]] bool LeaveAThreadAtWork() {
  bool served = clikart::SetNumThreads(1).ok();
  std::thread([&] {
    for (int64_t outputs = 1; outputs <= 64; ++outputs) served = served && Forward(outputs);
  }).join();
  return served;
}
