#include "clikart/analysis/extensions.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace clikart::analysis {
namespace {

using codegen::Feature;

enum class Encoding : uint8_t { kLegacy, kVex, kEvex, kXop };

// In 64-bit mode C4, C5 and 62 begin nothing else; 8F begins XOP unless it is `pop`, whose next byte has
// zeros where XOP's map numbers (8 and up) are.
Encoding EncodingOf(std::span<const uint8_t> bytes) {
  size_t at = 0;
  constexpr uint8_t kPrefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
  while (at < bytes.size() && std::find(std::begin(kPrefixes), std::end(kPrefixes), bytes[at]) != std::end(kPrefixes)) {
    ++at;
  }
  if (at == bytes.size()) return Encoding::kLegacy;
  switch (bytes[at]) {
    case 0x62:
      return Encoding::kEvex;
    case 0xc4:
    case 0xc5:
      return Encoding::kVex;
    case 0x8f:
      return at + 1 < bytes.size() && (bytes[at + 1] & 0x1f) >= 8 ? Encoding::kXop : Encoding::kLegacy;
    default:
      return Encoding::kLegacy;
  }
}

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view b) { return text.starts_with(b); });
}
bool EndsWithAny(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return text.ends_with(e); });
}
bool IsAny(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}
bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Extension OfTile(std::string_view name) {
  if (StartsWithAny(name, {"tdpbss", "tdpbsu", "tdpbus", "tdpbuu"})) return Extension::kAmxInt8;
  if (name == "tdpbf16ps") return Extension::kAmxBf16;
  if (name == "tdpfp16ps") return Extension::kAmxFp16;
  return StartsWithAny(name, {"tile", "ldtilecfg", "sttilecfg"}) ? Extension::kAmxTile : Extension::kOther;
}

bool IsTile(std::string_view name) { return StartsWithAny(name, {"tdp", "tile", "ldtilecfg", "sttilecfg", "tcmm"}); }

// Operations on mask registers, which are Vex encoded. AT&T syntax may append nothing to these.
bool IsMask(std::string_view name) {
  return StartsWithAny(name, {"kmov", "kand", "kor", "kxor", "kxnor", "knot", "kadd", "ktest", "kshift", "kunpck"});
}

Extension OfMask(std::string_view name) {
  if (name == "kunpckbw") return Extension::kAvx512F;
  if (name.starts_with("kunpck") || EndsWithAny(name, {"d", "q"})) return Extension::kAvx512Bw;
  if (name.ends_with('b') || IsAny(name, {"kaddw", "ktestw"})) return Extension::kAvx512Dq;
  return Extension::kAvx512F;
}

bool IsBmi(std::string_view name) {
  return StartsWithAny(name, {"andn", "bextr", "blsi", "blsmsk", "blsr", "bzhi", "mulx", "pdep", "pext", "rorx", "sarx",
                              "shlx", "shrx"}) &&
         !IsAny(name, {"andnps", "andnpd"});
}

bool IsFusedMultiply(std::string_view name) {
  return StartsWithAny(name, {"vfmadd", "vfmsub", "vfnmadd", "vfnmsub"}) &&
         (Contains(name, "132") || Contains(name, "213") || Contains(name, "231"));
}

// Families of Vex and Evex forms that no Target has: IFMA, VBMI and VBMI2, BITALG, VPOPCNTDQ, CD, GFNI, VAES,
// VPCLMULQDQ, VP2INTERSECT, SHA512, SM3, SM4, NE-CONVERT, VNNI-INT8 and -INT16, FMA4, CMPccXADD. VPCONFLICT,
// VPSHUFBITQMB and the masked byte permutations among them are also those that emulators get wrong.
bool IsForeign(std::string_view name) {
  return StartsWithAny(
             name, {"vpmadd52",   "vpmultishift", "vpcompressb",  "vpcompressw", "vpexpandb", "vpexpandw",    "vpshld",
                    "vpshrd",     "vpshufbit",    "vpopcnt",      "vpconflict",  "vplzcnt",   "vpbroadcastm", "vgf2p8",
                    "vaes",       "vpclmul",      "vp2intersect", "vsha512",     "vsm3",      "vsm4",         "vbcstne",
                    "vcvtnee",    "vcvtneo",      "vpdpbss",      "vpdpbsu",     "vpdpbuu",   "vpdpwsu",      "vpdpwus",
                    "vpdpwuu",    "cmp",          "vexp2",        "vrcp28",      "vrsqrt28",  "v4f",          "vp4dp",
                    "vscatterpf", "vgatherpf",    "vpermil2"}) ||
         (StartsWithAny(name, {"vfm", "vfnm"}) && !IsFusedMultiply(name) && !EndsWithAny(name, {"cph", "csh"})) ||
         IsAny(name, {"vpermb", "vpermi2b", "vpermt2b", "urdmsr", "uwrmsr"}) ||
         (Contains(name, "bf16") && !IsAny(name, {"vdpbf16ps", "vcvtneps2bf16", "vcvtne2ps2bf16"}));
}

// Vex forms of AVX2 that have no 256-bit integer operand to tell them by.
bool IsAvx2Only(std::string_view name) {
  return StartsWithAny(
      name, {"vpbroadcast", "vbroadcasti", "vinserti", "vextracti", "vperm2i", "vpermd", "vpermq", "vpermps", "vpermpd",
             "vpblendd", "vpmaskmov", "vpsllv", "vpsrlv", "vpsrav", "vgather", "vpgather"});
}

Extension OfVex(std::string_view name, std::string_view operands) {
  if (IsMask(name)) return OfMask(name);
  if (IsTile(name)) return OfTile(name);
  if (IsFusedMultiply(name)) return Extension::kFma;
  if (StartsWithAny(name, {"vpdpbusd", "vpdpwssd"})) return Extension::kAvxVnni;
  if (IsForeign(name) || Contains(name, "bf16")) return Extension::kOther;
  if (IsBmi(name)) return Extension::kBmi;
  if (IsAny(name, {"vcvtph2ps", "vcvtps2ph"})) return Extension::kF16c;
  if (IsAvx2Only(name)) return Extension::kAvx2;
  const bool wide = Contains(operands, "ymm");
  if (StartsWithAny(name, {"vp", "vmpsadbw", "vmovntdqa"}) && wide && !StartsWithAny(name, {"vpermil", "vptest"})) {
    return Extension::kAvx2;
  }
  // A broadcast from a register came with AVX2, from memory with AVX.
  if (name.starts_with("vbroadcasts") && !Contains(operands, "[") && !Contains(operands, "(")) return Extension::kAvx2;
  return Extension::kAvx;
}

bool IsHalfPrecision(std::string_view name) {
  if (IsAny(name, {"vcvtph2ps", "vcvtps2ph"})) return false;
  return name == "vmovw" || EndsWithAny(name, {"ph", "sh"}) || Contains(name, "ph2") || Contains(name, "2phx") ||
         Contains(name, "sh2");
}

bool IsByteOrWord(std::string_view name) {
  if (StartsWithAny(name,
                    {"vmovdqu8",   "vmovdqu16",  "vpshufb",    "vpshufhw",   "vpshuflw",   "vpslldq",  "vpsrldq",
                     "vpalignr",   "vpsadbw",    "vdbpsadbw",  "vpmaddwd",   "vpmaddubsw", "vpacks",   "vpacku",
                     "vpunpckhbw", "vpunpckhwd", "vpunpcklbw", "vpunpcklwd", "vpmovwb",    "vpmovswb", "vpmovuswb",
                     "vpmovsxbw",  "vpmovzxbw",  "vpmovm2b",   "vpmovm2w",   "vpmovb2m",   "vpmovw2m"})) {
    return true;
  }
  // The others end in the width of their elements; conversions between wider ones end so too and are not meant.
  return StartsWithAny(
             name, {"vpadd", "vpsub", "vpabs", "vpavg", "vpmax", "vpmin", "vpmull", "vpmulh", "vpsll", "vpsrl", "vpsra",
                    "vpcmp", "vptestm", "vptestnm", "vpblendm", "vpbroadcast", "vperm", "vpextr", "vpinsr"}) &&
         EndsWithAny(name, {"b", "w"});
}

bool IsDoublewordOrQuadword(std::string_view name) {
  if (StartsWithAny(name, {"vandp", "vandnp", "vorp", "vxorp", "vpmullq", "vfpclass", "vrange", "vreduce", "vpmovm2d",
                           "vpmovm2q", "vpmovd2m", "vpmovq2m", "vpextrd", "vpextrq", "vpinsrd", "vpinsrq"})) {
    return true;
  }
  if (StartsWithAny(name, {"vbroadcast", "vextract", "vinsert"})) {
    return Contains(name, "32x2") || Contains(name, "64x2") || Contains(name, "32x8");
  }
  return name.starts_with("vcvt") && Contains(name, "qq");
}

// The length of an Evex vector is in bits 5 and 6 of its fourth byte; where the broadcast bit of a form on
// registers is set they round, and the vector is a whole one.
bool IsShort(std::span<const uint8_t> bytes) {
  const auto evex = std::find(bytes.begin(), bytes.end(), 0x62) - bytes.begin();
  const uint8_t third = bytes[evex + 3];
  const bool registers = bytes[evex + 5] >= 0xc0;
  return (third & 0x60) < 0x40 && !(registers && (third & 0x10) != 0);
}

bool IsScalar(std::string_view name) {
  return EndsWithAny(name, {"ss", "sd", "sh"}) || Contains(name, "2si") || Contains(name, "2usi") ||
         StartsWithAny(name, {"vcvtsi2", "vcvtusi2", "vpextr", "vpinsr", "vextractps", "vinsertps"}) ||
         IsAny(name, {"vmovd", "vmovq", "vmovw", "vmovlps", "vmovhps", "vmovlpd", "vmovhpd", "vmovlhps", "vmovhlps"});
}

ExtensionSet OfEvex(std::span<const uint8_t> bytes, std::string_view name) {
  ExtensionSet set;
  // What is no vector instruction and has this encoding is APX.
  if (IsForeign(name) || !name.starts_with('v')) {
    set.Add(Extension::kOther);
    return set;
  }
  if (StartsWithAny(name, {"vpdpbusd", "vpdpwssd"})) {
    set.Add(Extension::kAvx512Vnni);
  } else if (Contains(name, "bf16")) {
    set.Add(Extension::kAvx512Bf16);
  } else if (IsHalfPrecision(name)) {
    set.Add(Extension::kAvx512Fp16);
  } else if (IsByteOrWord(name)) {
    set.Add(Extension::kAvx512Bw);
  } else if (IsDoublewordOrQuadword(name)) {
    set.Add(Extension::kAvx512Dq);
  } else {
    set.Add(Extension::kAvx512F);
  }
  if (!IsScalar(name) && IsShort(bytes)) set.Add(Extension::kAvx512Vl);
  return set;
}

Extension OfLegacy(std::string_view name) {
  // SSE3, SSSE3, SSE4.1, SSE4.2 and POPCNT. What AT&T syntax appends to a name does not matter here.
  if (StartsWithAny(
          name,
          {"addsub",    "haddp",    "hsubp",     "lddqu",    "movddup",  "movshdup", "movsldup", "pabs",      "palignr",
           "phadd",     "phsub",    "pmaddubsw", "pmulhrsw", "pshufb",   "psign",    "blendp",   "blendvp",   "dpp",
           "extractps", "insertps", "movntdqa",  "mpsadbw",  "packusdw", "pblend",   "pcmpeqq",  "pcmpgtq",   "pextrb",
           "pextrd",    "pextrq",   "phminpos",  "pinsrb",   "pinsrd",   "pinsrq",   "pmaxsb",   "pmaxsd",    "pmaxud",
           "pmaxuw",    "pminsb",   "pminsd",    "pminud",   "pminuw",   "pmovsx",   "pmovzx",   "pmuldq",    "pmulld",
           "ptest",     "roundp",   "rounds",    "pcmpestr", "pcmpistr", "crc32",    "popcnt",   "cmpxchg16b"})) {
    return Extension::kSse42;
  }
  if (name.starts_with("tzcnt")) return Extension::kBmi;
  if (name == "prefetch") return Extension::kOther;  // 3DNow
  if (StartsWithAny(name, {"lzcnt",     "movbe",      "adcx",      "adox",      "aes",     "pclmul",    "sha1",
                           "sha256",    "gf2p8",      "rdrand",    "rdseed",    "rdpid",   "xsave",     "xrstor",
                           "xgetbv",    "clflushopt", "clwb",      "movdir",    "enqcmd",  "prefetchw", "prefetchit",
                           "insertq",   "extrq",      "movntss",   "movntsd",   "monitor", "mwait",     "umonitor",
                           "umwait",    "tpause",     "wrfs",      "wrgs",      "rdfs",    "rdgs",      "aadd",
                           "aand",      "aor",        "axor",      "xbegin",    "xend",    "xabort",    "xtest",
                           "serialize", "cldemote",   "encodekey", "loadiwkey", "femms",   "wrss",      "wruss"})) {
    return Extension::kOther;
  }
  return Extension::kBase;
}

}  // namespace

std::string_view Name(Extension extension) {
  constexpr std::array<std::string_view, kExtensionCount> kNames = {
      "x86-64",      "SSE3-4.2", "AVX",      "AVX2",     "FMA",      "F16C",        "BMI",
      "AVX-VNNI",    "AVX512F",  "AVX512BW", "AVX512DQ", "AVX512VL", "AVX512-VNNI", "AVX512-BF16",
      "AVX512-FP16", "AMX-TILE", "AMX-INT8", "AMX-BF16", "AMX-FP16", "other"};
  return kNames[static_cast<size_t>(extension)];
}

ExtensionSet ExtensionsOf(std::span<const uint8_t> bytes, std::string_view text) {
  // LLVM marks the rarer encoding of what has two: "{vex} vpdpbusd".
  if (text.starts_with('{')) text.remove_prefix(std::min(text.find('}') + 1, text.size()));
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return {};
  const size_t end = std::min(text.find_first_of(" \t", start), text.size());
  const std::string_view name = text.substr(start, end - start);
  const std::string_view operands = text.substr(end);
  ExtensionSet set;
  switch (EncodingOf(bytes)) {
    case Encoding::kEvex:
      return OfEvex(bytes, name);
    case Encoding::kVex:
      set.Add(OfVex(name, operands));
      break;
    case Encoding::kXop:
      set.Add(Extension::kOther);
      break;
    case Encoding::kLegacy:
      set.Add(OfLegacy(name));
      break;
  }
  return set;
}

bool Allows(const codegen::Target& target, ExtensionSet extensions) {
  struct Rule {
    Extension extension;
    Feature feature;
  };
  constexpr Rule kRules[] = {
      {Extension::kSse42, Feature::kSse42},
      {Extension::kAvx, Feature::kAvx2},
      {Extension::kAvx2, Feature::kAvx2},
      {Extension::kFma, Feature::kAvx2},
      {Extension::kF16c, Feature::kAvx2},
      {Extension::kBmi, Feature::kAvx2},
      {Extension::kAvxVnni, Feature::kAvxVnni},
      {Extension::kAvx512F, Feature::kAvx512},
      {Extension::kAvx512Bw, Feature::kAvx512},
      {Extension::kAvx512Dq, Feature::kAvx512},
      {Extension::kAvx512Vl, Feature::kAvx512},
      {Extension::kAvx512Vnni, Feature::kAvx512Vnni},
      {Extension::kAvx512Bf16, Feature::kAvx512Bf16},
      {Extension::kAvx512Fp16, Feature::kAvx512Fp16},
      {Extension::kAmxInt8, Feature::kAmxInt8},
      {Extension::kAmxBf16, Feature::kAmxBf16},
      {Extension::kAmxFp16, Feature::kAmxFp16},
  };
  if (extensions.Has(Extension::kOther)) return false;
  const bool tiles = target.Has(Feature::kAmxInt8) || target.Has(Feature::kAmxBf16) || target.Has(Feature::kAmxFp16);
  if (extensions.Has(Extension::kAmxTile) && !tiles) return false;
  return std::all_of(std::begin(kRules), std::end(kRules),
                     [&](const Rule& rule) { return !extensions.Has(rule.extension) || target.Has(rule.feature); });
}

}  // namespace clikart::analysis
