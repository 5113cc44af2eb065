#include "log.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "environment.h"
#include "text.h"

namespace clikart {
namespace {

// A program that closed its standard error may have opened a file of its own in its place.
const bool g_has_stderr = fcntl(STDERR_FILENO, F_GETFD) != -1;

// A write to a pipe that nobody reads, or beyond the limit of a file's size, sends a signal that would end the
// process. Such a signal is this thread's own: it is held back and taken away.
class WriteSignals {
 public:
  WriteSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGPIPE);
    sigaddset(&signals_, SIGXFSZ);
    sigpending(&pending_);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WriteSignals() {
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending_, signal) != 0) sigdelset(&signals_, signal);  // not of our making
    }
    const timespec now{0, 0};
    while (sigtimedwait(&signals_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WriteSignals(const WriteSignals&) = delete;
  WriteSignals& operator=(const WriteSignals&) = delete;

 private:
  sigset_t signals_, pending_, before_;
};

// Short enough for a pipe to take it whole.
std::string Line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  if (text.size() >= PIPE_BUF) text.replace(PIPE_BUF - 4, std::string::npos, "...");
  return text + "\n";
}

// "2026-05-04T03:02:01.123456Z 4711 4712": the time, the process, the thread. Abseil's UTC needs no lock, which
// a child of a fork might find taken.
std::string Stamp() {
  return absl::StrCat(absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()), " ", getpid(), " ",
                      gettid());
}

void Write(int file, const std::string& line) {
  const WriteSignals signals;
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
}

void WriteToStderr(const std::string& line) {
  if (g_has_stderr) Write(STDERR_FILENO, line);
}

// Opened for each line: nothing is held that a fork would share, a rotation of logs would move, or a daemon
// that closes all files would leave to another one.
bool WriteToFile(const std::string& path, const std::string& line) {
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  if (file < 0) return false;
  Write(file, line);
  close(file);
  return true;
}

void Tell(int level, std::string_view message) {
  const auto& environment = Environment::Get();
  const std::string path = environment.ok() ? environment->verbose_file : std::string();
  const std::string stamped = Line(absl::StrCat("clikart: ", Stamp(), " ", Text(message)));
  if (level == kLogWarning) WriteToStderr(Line(absl::StrCat("clikart: ", Text(message))));
  if (!path.empty()) {
    if (WriteToFile(path, stamped)) return;
    const int error = errno;
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      WriteToStderr(Line(absl::StrCat("clikart: warning: CLIKART_VERBOSE_FILE ", path, " cannot be opened (",
                                      strerror(error), "); its lines go to standard error")));
    }
  }
  if (level != kLogWarning) WriteToStderr(stamped);
}

}  // namespace

void Log(int level, std::string_view message) {
  const int saved = errno;
  (void)Environment::Get();  // sets the level
  if (Logs(level)) Tell(level, message);
  errno = saved;
}

}  // namespace clikart
