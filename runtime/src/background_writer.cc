#include "background_writer.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace clikart {
namespace {

constexpr size_t kBatch = 16;  // files made durable together
constexpr size_t kMostWaiting = 1024;
// A fork waits so long for a file to be finished, so that a child seldom inherits it open.
constexpr std::chrono::milliseconds kForkPatience{50};

}  // namespace

struct BackgroundWriter::State {
  explicit State(Write given) : write(std::move(given)) {}

  // Writes until nothing waits; with the lock held at begin and end.
  void Drain(std::unique_lock<std::mutex>& lock) {
    while (!waiting.empty()) {
      const auto end = waiting.begin() + static_cast<ptrdiff_t>(std::min(kBatch, waiting.size()));
      const std::vector<cache::Entry> batch(std::make_move_iterator(waiting.begin()), std::make_move_iterator(end));
      waiting.erase(waiting.begin(), end);
      writing = true;
      lock.unlock();
      write(batch);
      lock.lock();
      writing = false;
      changed.notify_all();
    }
  }

  const Write write;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<cache::Entry> waiting;
  bool running = false;  // a thread will look at `waiting` again
  bool writing = false;
};

void* BackgroundWriter::Run(void* argument) {
  const std::unique_ptr<std::shared_ptr<State>> holder(static_cast<std::shared_ptr<State>*>(argument));
  State& state = **holder;
  std::unique_lock lock(state.mutex);
  state.Drain(lock);
  state.running = false;
  state.changed.notify_all();
  return nullptr;
}

BackgroundWriter::BackgroundWriter(Write write) : state_(std::make_shared<State>(std::move(write))) {}

BackgroundWriter::~BackgroundWriter() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return !state.running; });
}

void BackgroundWriter::Add(cache::Entry entry) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.waiting.size() >= kMostWaiting) return;
  state.waiting.push_back(std::move(entry));
  if (state.running) return;
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto* holder = new std::shared_ptr<State>(state_);
  pthread_t thread;
  state.running = pthread_create(&thread, nullptr, &Run, holder) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (state.running) {
    pthread_detach(thread);
  } else {
    delete holder;
    state.Drain(lock);
  }
}

bool BackgroundWriter::Flush(std::chrono::milliseconds patience) const {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  return state.changed.wait_for(lock, patience, [&] { return !state.running && !state.writing; });
}

void BackgroundWriter::BeforeFork() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  (void)state.changed.wait_for(lock, kForkPatience, [&] { return !state.writing; });
  lock.release();  // it stays locked
}

void BackgroundWriter::AfterForkInParent() { state_->mutex.unlock(); }

void BackgroundWriter::AfterForkInChild() {
  // The thread is not here, and a condition variable with waiters must not be used or destroyed: the old
  // state is left as it is.
  const auto* old = new std::shared_ptr<State>(state_);
  state_ = std::make_shared<State>((*old)->write);
}

}  // namespace clikart
