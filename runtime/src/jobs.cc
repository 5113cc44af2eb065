#include "jobs.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

namespace clikart {
namespace {

class Crew {
 public:
  Crew(int64_t count, int64_t threads, const std::stop_token& stop, const std::function<void(int64_t)>& job)
      : count_(count), most_(threads), stop_(stop), job_(job) {}

  // As many threads as the system gives.
  void Start() {
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int64_t i = 0; i < most_; ++i) {
      {
        const std::lock_guard lock(mutex_);
        ++working_;
      }
      pthread_t thread;
      if (pthread_create(&thread, nullptr, &Crew::Main, this) == 0) {
        threads_.push_back(thread);
        continue;
      }
      const std::lock_guard lock(mutex_);
      --working_;
      break;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  bool empty() const { return threads_.empty(); }

  // Tells of each job that ended until the last thread has gone. Whether all jobs ended uncancelled.
  bool LookOn(const std::function<bool(int64_t)>& finished) {
    int64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !ended_.empty() || working_ == 0; });
      if (ended_.empty()) break;
      const int64_t index = ended_.front();
      ended_.pop_front();
      if (cancelled_) continue;
      lock.unlock();
      const bool go_on = finished(index);
      lock.lock();
      ++seen;
      --untold_;
      cancelled_ = !go_on;
      may_begin_.notify_all();
    }
    lock.unlock();
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
    return seen == count_ && !cancelled_;
  }

 private:
  static void* Main(void* crew) {
    static_cast<Crew*>(crew)->Work();
    return nullptr;
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      may_begin_.wait(lock, [&] { return untold_ < most_ || AtEnd(); });
      if (AtEnd()) break;
      const int64_t index = next_++;
      ++untold_;
      lock.unlock();
      job_(index);
      lock.lock();
      ended_.push_back(index);
      changed_.notify_one();
    }
    --working_;
    changed_.notify_one();
  }

  bool AtEnd() const { return next_ == count_ || cancelled_ || stop_.stop_requested(); }

  const int64_t count_, most_;
  const std::stop_token& stop_;
  const std::function<void(int64_t)>& job_;
  std::vector<pthread_t> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;    // a job has ended, or a thread
  std::condition_variable may_begin_;  // a job was told of
  std::deque<int64_t> ended_;
  int64_t next_ = 0, untold_ = 0, working_ = 0;
  bool cancelled_ = false;
};

}  // namespace

bool RunJobs(int64_t count, int threads, const std::stop_token& stop, const std::function<void(int64_t)>& job,
             const std::function<bool(int64_t)>& finished) {
  if (threads > 1 && count > 1) {
    Crew crew(count, std::min<int64_t>(threads, count), stop, job);
    crew.Start();
    if (!crew.empty()) return crew.LookOn(finished);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (stop.stop_requested()) return false;
    job(i);
    if (!finished(i)) return false;
  }
  return true;
}

}  // namespace clikart
