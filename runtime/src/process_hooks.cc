#include "process_hooks.h"

#include <dlfcn.h>
#include <pthread.h>

#include <mutex>
#include <new>
#include <shared_mutex>

#include "clikart/codegen/emitter.h"
#include "clikart/ir/activation.h"
#include "conv_grid.h"
#include "executable_memory.h"
#include "first_use.h"
#include "gdb_listing.h"
#include "jitdump.h"
#include "kernel_cache.h"
#include "layer_body.h"

namespace clikart {
namespace {

// What the floors below make on first use, whichever thread that is: made before a fork, not half made in the child.
void MakeConstants() {
  (void)codegen::Emitters();
  (void)ir::AllActivations();
  (void)ir::ProgramOf(Activation::kNone);
}

// A fork waits for all locks and holds them, so that the child finds nothing half done. In the order in which a
// thread that holds one may ask for another.
void BeforeFork() {
  MakeConstants();
  StructureMutex().lock();
  FirstUseMutex().lock();
  ConvTablesMutex().lock();
  KernelCache::BeforeFork();
  ExecutableMemoryMutex().lock();
  Jitdump::Instance().mutex().lock();
  GdbListMutex().lock();
}

void AfterForkInParent() {
  GdbListMutex().unlock();
  Jitdump::Instance().mutex().unlock();
  ExecutableMemoryMutex().unlock();
  KernelCache::AfterForkInParent();
  ConvTablesMutex().unlock();
  FirstUseMutex().unlock();
  StructureMutex().unlock();
}

void AfterForkInChild() {
  ++g_process_number;
  GdbListMutex().unlock();
  Jitdump::Instance().mutex().unlock();
  LeaveParentsExecutableMemory();
  ExecutableMemoryMutex().unlock();
  KernelCache::AfterForkInChild();
  ConvTablesMutex().unlock();
  // The owner of these is a thread that the child does not have: they start anew.
  new (&FirstUseMutex()) std::recursive_mutex;
  new (&StructureMutex()) std::shared_mutex;
}

}  // namespace

std::recursive_mutex& FirstUseMutex() {
  static std::recursive_mutex* const mutex = new std::recursive_mutex;
  return *mutex;
}

int InstallProcessHooks() {
  // The locks exist from now on, so that a handler makes none.
  (void)StructureMutex();
  (void)FirstUseMutex();
  (void)ConvTablesMutex();
  (void)ExecutableMemoryMutex();
  (void)Jitdump::Instance();
  (void)GdbListMutex();
  pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild);
  // A program itself is not found, and need not be.
  if (Dl_info self{}; dladdr(reinterpret_cast<const void*>(&BeforeFork), &self) != 0) {
    (void)dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    (void)dlerror();  // nobody asks for it
  }
  return 0;
}

}  // namespace clikart
