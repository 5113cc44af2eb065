// Does slow work behind the back of the caller: making one file durable takes longer than generating the
// kernel in it, and nobody who waits for a result should wait for that.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "clikart/cache/entry.h"

namespace clikart {

// Its thread lives while there is something to write.
class BackgroundWriter {
 public:
  using Write = std::function<void(std::span<const cache::Entry>)>;
  explicit BackgroundWriter(Write write);
  ~BackgroundWriter();  // waits for what was added
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Returns at once. Where there is no thread to be had the caller writes; where very much waits already,
  // the entry is dropped.
  void Add(cache::Entry entry);
  // Whether everything that was added is written, after waiting for it at most so long.
  bool Flush(std::chrono::milliseconds patience) const;

  // For pthread_atfork. What waits to be written is the parent's.
  void BeforeFork();
  void AfterForkInParent();
  void AfterForkInChild();

 private:
  struct State;
  static void* Run(void* state);
  std::shared_ptr<State> state_;
};

}  // namespace clikart
