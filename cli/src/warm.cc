// warmup.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clikart/codegen/target.h"
#include "clikart/warmup.h"
#include "command.h"
#include "environment.h"
#include "json.h"

namespace clikart::cli {
namespace {

const char* Outcome(const WarmupItem& item) {
  if (!item.status.ok()) return "failed";
  return item.compiled > 0 ? "compiled" : item.loaded > 0 ? "loaded" : "rejected";
}

std::string Json(const Invocation& invocation, const std::string& target, const WarmupReport& report) {
  const auto nanoseconds = [](double seconds) { return std::llround(seconds * 1e9); };
  std::vector<std::string> items;
  for (const WarmupItem& item : report.items) {
    JsonObject object;
    object.Text("signature", item.kernel).Text("outcome", Outcome(item)).Seconds("seconds", nanoseconds(item.seconds));
    std::vector<std::string> rejections;
    for (const std::string& rejection : item.rejections) rejections.push_back(Quoted(rejection));
    object.Raw("rejections", JsonArray(rejections));
    if (!item.status.ok()) object.Text("problem", std::string(item.status.message()));
    items.push_back(object.ToString());
  }
  return JsonObject()
      .Text("folder", invocation.path)
      .Text("target", target)
      .Number("compiled", report.compiled)
      .Number("loaded", report.loaded)
      .Number("rejected", report.rejected)
      .Number("failed", report.failed)
      .Seconds("seconds", nanoseconds(report.seconds))
      .Raw("items", JsonArray(items))
      .ToString();
}

void Print(const Invocation& invocation, const std::string& target, const WarmupReport& report) {
  for (const WarmupItem& item : report.items) {
    if (!item.status.ok()) {
      *invocation.err << "clikart-cache: " << item.kernel << ": " << std::string(item.status.message()) << "\n";
    } else if (item.rejected > 0) {
      *invocation.err << "clikart-cache: no code for " << item.kernel;
      for (const std::string& rejection : item.rejections) *invocation.err << "; " << rejection;
      *invocation.err << "\n";
    }
  }
  *invocation.out << absl::StrFormat("compiled %d, there already %d, without code %d, failed %d, in %.2f s\n",
                                     report.compiled, report.loaded, report.rejected, report.failed, report.seconds)
                  << "for " << target << "\n";
}

// One line that is written over again.
class ProgressLine {
 public:
  explicit ProgressLine(std::ostream* out) : out_(out) {}
  ~ProgressLine() {
    if (out_ != nullptr) *out_ << "\r" << std::string(width_, ' ') << "\r" << std::flush;
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(int64_t done, int64_t total) {
    if (out_ == nullptr) return;
    const std::string text = absl::StrCat(done, " of ", total, " kernels");
    width_ = text.size();
    *out_ << "\r" << text << std::flush;
  }

 private:
  std::ostream* const out_;
  size_t width_ = 0;
};

absl::StatusOr<WarmupReport> Compile(const Invocation& invocation, const WarmupManifest& manifest,
                                     const std::string& target) {
  ProgressLine line(invocation.progress ? invocation.err : nullptr);
  return manifest.Compile({.target = target,
                           .folder = invocation.path,
                           .for_all_users = invocation.for_all_users,
                           .progress =
                               [&](int64_t done, int64_t total, const WarmupItem&) {
                                 line.Show(done, total);
                                 return true;
                               },
                           .jobs = invocation.jobs});
}

}  // namespace

int WarmUp(const Invocation& invocation) {
  if (invocation.arguments.size() != 1) {
    *invocation.err << "clikart-cache: warmup takes one manifest\n";
    return kUsage;
  }
  if (invocation.jobs < 0) {
    *invocation.err << "clikart-cache: --jobs takes a number of kernels to compile at a time, or 0\n";
    return kUsage;
  }
  codegen::Target target = HostTarget();
  if (!invocation.target.empty()) {
    const absl::StatusOr<codegen::Target> given = codegen::ParseTarget(invocation.target);
    if (!given.ok()) return Fail(invocation, given.status());
    target = *given;
  }
  const absl::StatusOr<WarmupManifest> manifest = WarmupManifest::Load(invocation.arguments[0]);
  if (!manifest.ok()) {
    Fail(invocation, manifest.status());
    return absl::IsInvalidArgument(manifest.status()) ? kBadEntries : kFailed;
  }
  const absl::StatusOr<WarmupReport> report = Compile(invocation, *manifest, target.ToString());
  if (!report.ok()) return Fail(invocation, report.status());
  if (invocation.json) {
    *invocation.out << Json(invocation, target.ToString(), *report) << "\n";
  } else {
    Print(invocation, target.ToString(), *report);
  }
  return report->failed == 0 ? kDone : kBadEntries;
}

}  // namespace clikart::cli
