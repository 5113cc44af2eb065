#include "prepare_watch.h"

#include "absl/strings/str_cat.h"
#include "kernel_cache.h"
#include "text.h"

namespace clikart {
namespace {

thread_local PrepareWatch* watching = nullptr;

}  // namespace

PrepareWatch::PrepareWatch() : outer_(watching) { watching = this; }

PrepareWatch::~PrepareWatch() { watching = outer_; }

void PrepareWatch::TellKernel(const Kernel& kernel) {
  if (watching == nullptr) return;
  ++(kernel.code == nullptr ? watching->rejected : kernel.loaded ? watching->loaded : watching->compiled);
  for (const codegen::Rejection& rejection : kernel.rejections) {
    watching->rejections.push_back(absl::StrCat(Text(codegen::Name(rejection.reason)), ": ", rejection.detail));
  }
}

void PrepareWatch::TellPacked() {
  if (watching != nullptr) ++watching->packed;
}

}  // namespace clikart
