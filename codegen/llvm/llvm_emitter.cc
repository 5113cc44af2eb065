// The library's side: which specs are taken, and the call into the shared object that generates their code.

#include "llvm_emitter.h"

#include <pthread.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "code_driver.h"
#include "code_refusal.h"
#include "llvm_object.h"
#include "row_int8_driver.h"

namespace clikart::codegen {
namespace {

// LLVM keeps locks of its own. Forks wait for compilations, so that no child finds one locked for ever.
pthread_rwlock_t g_compilations = PTHREAD_RWLOCK_INITIALIZER;
// Registered before main: handlers that a thread registers while another one forks do not run in that fork.
[[maybe_unused]] const int g_fork_handlers =
    pthread_atfork([] { pthread_rwlock_wrlock(&g_compilations); }, [] { pthread_rwlock_unlock(&g_compilations); },
                   // Its owner is a thread that the child does not have: the lock starts anew.
                   [] { pthread_rwlock_init(&g_compilations, nullptr); });

class Compilation {
 public:
  Compilation() { pthread_rwlock_rdlock(&g_compilations); }
  ~Compilation() { pthread_rwlock_unlock(&g_compilations); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;
};

// What comes back through the sink.
struct Answer {
  EmittedKernel kernel;
  std::string refusal;

  static Answer& Of(void* context) { return *static_cast<Answer*>(context); }
  static void TakeEntry(void* context, int32_t number, int32_t offset) {
    Of(context).kernel.entry_offsets[static_cast<size_t>(number)] = offset;
  }
  static void TakeLoop(void* context, const char* name, int32_t begin, int32_t end, int64_t multiplies) {
    Of(context).kernel.loops.push_back({name, begin, end, multiplies});
  }
  static void TakeCode(void* context, const uint8_t* bytes, size_t size, size_t instruction_bytes) {
    Of(context).kernel.code.assign(bytes, bytes + size);
    Of(context).kernel.instruction_bytes = static_cast<int64_t>(instruction_bytes);
  }
  static void TakeRefusal(void* context, const char* detail) { Of(context).refusal = detail; }
};

class Llvm final : public Emitter {
 public:
  std::string_view name() const override { return "llvm"; }
  bool needs_executable_memory() const override { return true; }
  std::variant<EmittedKernel, Rejection> Emit(const ir::KernelSpec& spec, const Target& target) const override;
};

// Decided before the object is loaded: a process that only has other specs never pays for it.
std::optional<Rejection> Refuse(const ir::KernelSpec& spec) {
  if (spec.contraction == ir::Contraction::kInteger) return std::nullopt;
  if (spec.quantized_weights()) return RefuseCodes(spec);
  for (const ir::DType dtype : {spec.x, spec.w, spec.y}) {
    if (!ir::IsFloat(dtype)) {
      return Rejection{RejectReason::kDataType,
                       absl::StrCat(std::string(ir::Name(dtype)), ", and this emitter takes float types")};
    }
  }
  return std::nullopt;
}

bool MultipliesCodes(const ir::KernelSpec& spec) {
  return spec.contraction == ir::Contraction::kInteger || spec.contraction == ir::Contraction::kRowInt8;
}

// What code may be made of. More would not change a float kernel: dot products and tiles round differently, and
// conversions of FP16 are in F16C. Sums of codes are exact, so integer kernels take the dot product of their width.
Target UsedOf(const ir::KernelSpec& spec, const Target& target) {
  Target used;
  const auto use = [&](Feature feature) {
    if (target.Has(feature)) used.features.Add(feature);
  };
  for (const Feature feature : {Feature::kSse42, Feature::kAvx2, Feature::kAvx512}) use(feature);
  if (MultipliesCodes(spec)) {
    use(target.Has(Feature::kAvx512) ? Feature::kAvx512Vnni : Feature::kAvxVnni);
  }
  return used;
}

// Twelve chains of a register's lanes, as many as two fma units need. 16-bit weights have entries for their widened
// form too: with half the panels their kernels compile in the same time, some 50 ms, and reach four fifths of that.
// The widened form of quantized ones is f32; beside it, codes are decoded in registers for few rows.
RegisterTile TileOf(const ir::KernelSpec& spec, const Target& used) {
  if (MultipliesCodes(spec)) {
    const bool dot = used.Has(Feature::kAvxVnni) || used.Has(Feature::kAvx512Vnni);
    // Products of short codes fit 16 bits in pairs, which SSSE3 and what came after it add without a dot product. With
    // their products on the way, sixteen registers hold the sums of four rows.
    const bool pairs = !dot && spec.scheme.has_value() && spec.scheme->bits < 8 && used.Has(Feature::kSse42);
    const bool few = pairs && !used.Has(Feature::kAvx512);
    return {.rows = few ? 4 : 6, .panels = 1, .depth = dot || pairs ? 4 : 2};
  }
  const bool one_form = spec.w == ir::DType::kFloat32 || spec.contraction == ir::Contraction::kWeightOnly;
  const bool wide = used.Has(Feature::kAvx512) && one_form;
  // An emulated fma takes ten times what decoding does: there panels are decoded once for all rows.
  const int64_t decoded_rows = wide ? 6 : used.Has(Feature::kAvx2) ? 4 : 0;
  return {.rows = 6, .panels = wide ? 2 : 1, .depth = 1, .decoded_rows = decoded_rows};
}

uint32_t FeatureBits(const Target& target) {
  uint32_t bits = 0;
  for (int i = 0; i < kFeatureCount; ++i) {
    if (target.Has(static_cast<Feature>(i))) bits |= uint32_t{1} << i;
  }
  return bits;
}

// A contraction's driver, and the register kernels that it calls.
struct Nest {
  TileFunction run;
  std::vector<MicroKind> kinds;
};

Nest NestOf(const ir::KernelSpec& spec, const Schedule& schedule) {
  switch (spec.contraction) {
    case ir::Contraction::kDepthwise:
      return {&RunDepthwise, {}};
    case ir::Contraction::kWeightOnly:
      return {&RunCodes, CodeMicroKinds(schedule)};
    case ir::Contraction::kRowInt8:
      return {&RunRowInt8, RowInt8Kinds(spec, schedule)};
    default:
      return {&RunPanels, MicroKinds(spec, schedule)};
  }
}

std::variant<EmittedKernel, Rejection> Llvm::Emit(const ir::KernelSpec& spec, const Target& target) const {
  if (std::optional<Rejection> rejection = Refuse(spec)) return *std::move(rejection);
  const Compilation compilation;
  const absl::StatusOr<const LlvmApi*>& api = LoadLlvm();
  if (!api.ok()) return Rejection{RejectReason::kNoLlvm, std::string(api.status().message())};

  const Target used = UsedOf(spec, target);
  Answer answer;
  answer.kernel.spec = spec;
  answer.kernel.schedule = MakeSchedule(spec, TileOf(spec, used));
  answer.kernel.emitter = std::string(name());
  answer.kernel.isa = used.level();
  answer.kernel.entry_offsets.fill(-1);
  const auto [run, kinds] = NestOf(spec, answer.kernel.schedule);
  answer.kernel.run = run;
  const std::string text = spec.ToString();
  const LlvmRequest request{text.data(),       text.size(),
                            FeatureBits(used), static_cast<int32_t>(answer.kernel.schedule.step),
                            kinds.data(),      kinds.size()};
  const LlvmSink sink{&answer, &Answer::TakeEntry, &Answer::TakeLoop, &Answer::TakeCode, &Answer::TakeRefusal};
  (*api)->emit(&request, &sink);
  if (!answer.refusal.empty()) return Rejection{RejectReason::kLlvmFailed, std::move(answer.refusal)};
  return std::move(answer.kernel);
}

}  // namespace

const Emitter& LlvmEmitter() {
  static const Llvm emitter;
  return emitter;
}

}  // namespace clikart::codegen
