#include "gdb_listing.h"

#include <utility>
#include <vector>

#include "build_identity.h"
#include "clikart/cache/object_file.h"
#include "environment.h"
#include "kernel_record.h"

// Names and layout are gdb's ("JIT Compilation Interface" in its manual). Protected: gdb finds them in each
// object's table of dynamic symbols, and each object uses its own. Weak: LLVM brings the same ones.
extern "C" {
struct jit_code_entry {
  jit_code_entry *next, *previous;
  const char* symfile;
  uint64_t symfile_bytes;
};

struct jit_descriptor {
  uint32_t version, action;
  jit_code_entry *relevant, *first;
};

[[gnu::weak, gnu::used, gnu::visibility("protected")]] jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};

// gdb stops here and reads the descriptor.
[[gnu::weak, gnu::used, gnu::noinline, gnu::visibility("protected")]] void __jit_debug_register_code() {
  asm volatile("" ::: "memory");
}
}

namespace clikart {
namespace {

enum Action : uint32_t { kNothing, kRegister, kUnregister };

// Under the lock.
void Tell(Action action, jit_code_entry& entry) {
  __jit_debug_descriptor.action = action;
  __jit_debug_descriptor.relevant = &entry;
  __jit_debug_register_code();
  __jit_debug_descriptor.action = kNothing;
  __jit_debug_descriptor.relevant = nullptr;
}

class Listed {
 public:
  explicit Listed(std::vector<uint8_t> object) : object_(std::move(object)) {
    entry_.symfile = reinterpret_cast<const char*>(object_.data());
    entry_.symfile_bytes = object_.size();
    const std::lock_guard lock(GdbListMutex());
    entry_.next = __jit_debug_descriptor.first;
    if (entry_.next != nullptr) entry_.next->previous = &entry_;
    __jit_debug_descriptor.first = &entry_;
    Tell(kRegister, entry_);
  }

  ~Listed() {
    const std::lock_guard lock(GdbListMutex());
    (entry_.previous != nullptr ? entry_.previous->next : __jit_debug_descriptor.first) = entry_.next;
    if (entry_.next != nullptr) entry_.next->previous = entry_.previous;
    Tell(kUnregister, entry_);
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  const std::vector<uint8_t> object_;
  jit_code_entry entry_{};
};

}  // namespace

std::mutex& GdbListMutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

std::shared_ptr<void> ListForGdb(const std::string& signature, const codegen::EmittedKernel& kernel,
                                 const uint8_t* code) {
  const std::optional<cache::Entry> entry =
      ToEntry(kernel, KeyOf(kernel.spec, HostTarget(), kernel.emitter, BuildIdentity()), codegen::Drivers(), 0);
  if (!entry) return nullptr;
  absl::StatusOr<std::vector<uint8_t>> object =
      cache::SerializeLoaded(*entry, {reinterpret_cast<uintptr_t>(code), signature + ":"});
  if (!object.ok()) return nullptr;
  return std::make_shared<Listed>(*std::move(object));
}

}  // namespace clikart
