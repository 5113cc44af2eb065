// Manifests as text and as files.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "clikart/codegen/emitter.h"
#include "clikart/codegen/target.h"
#include "clikart/warmup.h"
#include "environment.h"
#include "kernel_cache.h"
#include "kernel_intent.h"
#include "status_macros.h"

namespace clikart {
namespace {

constexpr char kTitle[] = "clikart warm-up manifest";
constexpr int kVersion = 1;

std::string FirstLine() { return absl::StrCat(kTitle, " ", kVersion); }

const char* NameOf(codegen::MathMode math) { return math == codegen::MathMode::kExact ? "exact" : "native"; }

absl::Status ReadTitle(const std::string& line) {
  if (line == FirstLine()) return absl::OkStatus();
  const std::string title = absl::StrCat(kTitle, " ");
  if (line.starts_with(title)) {
    return absl::InvalidArgumentError(absl::StrCat("this manifest has version ", line.substr(title.size()),
                                                   ", and this library reads version ", kVersion,
                                                   ": record it again with this one"));
  }
  return absl::InvalidArgumentError(absl::StrCat("found \"", line, "\", expected \"", FirstLine(), "\""));
}

absl::Status ReadMath(const std::string& value, WarmupManifest& manifest) {
  for (const codegen::MathMode math : {codegen::MathMode::kNative, codegen::MathMode::kExact}) {
    if (value != NameOf(math)) continue;
    manifest.math = math;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("math: found \"", value, "\", expected native or exact"));
}

absl::Status ReadEmitter(const std::string& value, WarmupManifest& manifest) {
  std::string names = "auto";
  for (const codegen::Emitter* emitter : codegen::Emitters())
    absl::StrAppend(&names, ", ", std::string(emitter->name()));
  if (value != "auto" && codegen::FindEmitter(value) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("emitter: found \"", value, "\", expected one of ", names));
  }
  manifest.emitter = value;
  return absl::OkStatus();
}

absl::Status ReadLine(const std::string& line, WarmupManifest& manifest) {
  const size_t space = line.find_first_of(" \t");
  const std::string word = line.substr(0, space);
  const std::string value(absl::StripAsciiWhitespace(space == std::string::npos ? std::string() : line.substr(space)));
  if (word == "kernel") {
    CLIKART_ASSIGN_OR_RETURN(const ir::KernelSpec intent, ParseIntent(value));
    manifest.Add(intent);
    return absl::OkStatus();
  }
  if (word == "math") return ReadMath(value, manifest);
  if (word == "emitter") return ReadEmitter(value, manifest);
  if (word == "target") {
    CLIKART_RETURN_IF_ERROR(codegen::ParseTarget(value).status());
    manifest.target = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("found \"", word, "\", expected kernel, math, emitter, target or a comment after #"));
}

// What the system said of `path`.
absl::Status FileError(const char* what, const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot ", what, " the manifest \"", path, "\": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return FileError("read", path, errno);
  std::string text;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), count);
  }
  if (std::ferror(file.get()) != 0) return FileError("read", path, errno);
  return text;
}

// To `temporary`, which is gone again where it fails; errors name `path`.
absl::Status WriteFile(const std::string& temporary, const std::string& path, const std::string& text) {
  File file(std::fopen(temporary.c_str(), "we"));
  if (file == nullptr) return FileError("write", path, errno);
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) == 0 && written) return absl::OkStatus();
  const absl::Status status = FileError("write", path, errno);
  std::remove(temporary.c_str());
  return status;
}

}  // namespace

absl::StatusOr<WarmupManifest> WarmupManifest::Record() {
  CLIKART_ASSIGN_OR_RETURN(const Environment environment, Environment::Get());
  WarmupManifest manifest;
  manifest.math = environment.math;
  manifest.emitter = environment.emitter;
  manifest.target = HostTarget().ToString();
  for (const ir::KernelSpec& spec : KernelCache::Instance().Made()) manifest.Add(spec);
  return manifest;
}

void WarmupManifest::Add(const ir::KernelSpec& spec) {
  const ir::KernelSpec intent = IntentOf(spec);
  if (std::find(kernels_.begin(), kernels_.end(), intent) == kernels_.end()) kernels_.push_back(intent);
}

absl::Status WarmupManifest::Add(std::string_view signature) {
  // Less "@avx2/xbyak", which no value of the last word can hold.
  const size_t last_word = signature.rfind(' ') + 1;
  const std::string_view words = signature.substr(0, signature.find('@', last_word));
  CLIKART_ASSIGN_OR_RETURN(const ir::KernelSpec intent, ParseIntent(words));
  Add(intent);
  return absl::OkStatus();
}

std::string WarmupManifest::ToString() const {
  std::string text = absl::StrCat(FirstLine(), "\nmath ", NameOf(math), "\nemitter ", emitter, "\n");
  if (!target.empty()) absl::StrAppend(&text, "target ", target, "\n");
  for (const ir::KernelSpec& intent : kernels_) absl::StrAppend(&text, "kernel ", IntentText(intent), "\n");
  return text;
}

absl::StatusOr<WarmupManifest> WarmupManifest::Parse(std::string_view text) {
  const std::vector<std::string> lines = absl::StrSplit(std::string(text), '\n');
  WarmupManifest manifest;
  bool titled = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string line(absl::StripAsciiWhitespace(lines[i]));
    if (line.empty() || line[0] == '#') continue;
    const absl::Status status = std::exchange(titled, true) ? ReadLine(line, manifest) : ReadTitle(line);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", i + 1, ": ", status.message()));
    }
  }
  if (!titled) return absl::InvalidArgumentError(absl::StrCat("line 1: it is empty, expected \"", FirstLine(), "\""));
  return manifest;
}

absl::StatusOr<WarmupManifest> WarmupManifest::Load(const std::string& path) {
  CLIKART_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<WarmupManifest> manifest = Parse(text);
  if (manifest.ok()) return manifest;
  return absl::InvalidArgumentError(absl::StrCat("manifest \"", path, "\", ", manifest.status().message()));
}

absl::Status WarmupManifest::Save(const std::string& path) const {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  CLIKART_RETURN_IF_ERROR(WriteFile(temporary, path, ToString()));
  if (std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status status = FileError("write", path, errno);
  std::remove(temporary.c_str());
  return status;
}

}  // namespace clikart
