// ORC's compiler makes an object of the module, and JITLink, ORC's linker, lays it out in a buffer of ours.
// What ORC has around the two (sessions, dylibs, lazily resolved symbols, memory that runs) is left out: a kernel
// is a value here, bytes that the runtime copies into its own executable memory and may keep on disk, the same
// as those of the other emitters. So nothing may be bound to an address: every fixup has to be relative, between
// two places of the same image.

#include "compile.h"

#include <algorithm>
#include <utility>

#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/x86_64.h"
#include "llvm/ExecutionEngine/Orc/CompileUtils.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/TargetSelect.h"

namespace clikart::codegen::llvm_module {
namespace {

namespace jitlink = llvm::jitlink;
using llvm::BitmaskEnumDetail::operator&;

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";
constexpr uint64_t kAlignment = 64;

// A link's memory: one buffer, instructions first.
class Buffer final : public jitlink::JITLinkMemoryManager {
 public:
  explicit Buffer(Image& image) : image_(image) {}

  void allocate(const jitlink::JITLinkDylib*, jitlink::LinkGraph& graph, OnAllocatedFunction done) override {
    jitlink::BasicLayout layout(graph);
    uint64_t size = 0;
    const auto each_segment = [&](const auto& visit) {
      for (const bool instructions : {true, false}) {
        for (auto& [group, segment] : layout.segments()) {
          const bool runs = (group.getMemProt() & llvm::orc::MemProt::Exec) != llvm::orc::MemProt::None;
          if (runs == instructions) visit(segment, instructions);
        }
      }
    };
    each_segment([&](auto& segment, bool instructions) {
      size = llvm::alignTo(size, std::max(kAlignment, segment.Alignment.value()));
      segment.Addr = llvm::orc::ExecutorAddr(size);
      size += segment.ContentSize + segment.ZeroFillSize;
      if (instructions) image_.instruction_bytes = size;
    });
    image_.bytes.assign(size, 0);
    each_segment([&](auto& segment, bool) {
      segment.WorkingMem = reinterpret_cast<char*>(image_.bytes.data()) + segment.Addr.getValue();
    });
    if (llvm::Error error = layout.apply()) return done(std::move(error));
    done(std::make_unique<Linked>());
  }

  void deallocate(std::vector<FinalizedAlloc> allocations, OnDeallocatedFunction done) override {
    for (FinalizedAlloc& allocation : allocations) allocation.release();
    done(llvm::Error::success());
  }

 private:
  class Linked final : public InFlightAlloc {
   public:
    void abandon(OnAbandonedFunction done) override { done(llvm::Error::success()); }
    void finalize(OnFinalizedFunction done) override { done(FinalizedAlloc(llvm::orc::ExecutorAddr(0))); }
  };

  Image& image_;
};

bool IsRelative(jitlink::Edge::Kind kind) {
  switch (kind) {
    case jitlink::x86_64::Delta32:
    case jitlink::x86_64::Delta64:
    case jitlink::x86_64::NegDelta32:
    case jitlink::x86_64::PCRel32:
    case jitlink::x86_64::BranchPCRel32:
      return true;
    default:
      return kind < jitlink::Edge::FirstRelocation;
  }
}

llvm::Error Complaint(const llvm::Twine& text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text.str());
}

llvm::Error CheckRelative(jitlink::LinkGraph& graph) {
  for (jitlink::Block* const block : graph.blocks()) {
    // What describes the code is not part of the image.
    if (block->getSection().getMemLifetime() == llvm::orc::MemLifetime::NoAlloc) continue;
    for (const jitlink::Edge& edge : block->edges()) {
      if (edge.getTarget().isDefined() && IsRelative(edge.getKind())) continue;
      const llvm::StringRef name = edge.getTarget().hasName() ? edge.getTarget().getName() : "a place of its own";
      return Complaint(llvm::Twine("the code refers to ") + name + " by " + graph.getEdgeKindName(edge.getKind()));
    }
  }
  return llvm::Error::success();
}

class LinkContext final : public jitlink::JITLinkContext {
 public:
  // What goes wrong is added to `complaint`.
  LinkContext(Image& image, std::string& complaint)
      : JITLinkContext(nullptr), image_(image), buffer_(image), complaint_(complaint) {}

  jitlink::JITLinkMemoryManager& getMemoryManager() override { return buffer_; }
  void notifyFailed(llvm::Error error) override { complaint_ += llvm::toString(std::move(error)); }
  void lookup(const LookupMap& symbols, std::unique_ptr<jitlink::JITLinkAsyncLookupContinuation> done) override {
    if (symbols.empty()) return done->run(jitlink::AsyncLookupResult());
    done->run(Complaint(llvm::Twine("the code calls ") + symbols.begin()->first));
  }
  llvm::Error notifyResolved(jitlink::LinkGraph& graph) override {
    for (jitlink::Symbol* const symbol : graph.defined_symbols()) {
      if (!symbol->hasName() || !symbol->isCallable()) continue;
      image_.symbols[symbol->getName().str()] = static_cast<int32_t>(symbol->getAddress().getValue());
    }
    return CheckRelative(graph);
  }
  void notifyFinalized(jitlink::JITLinkMemoryManager::FinalizedAlloc allocation) override { allocation.release(); }

 private:
  Image& image_;
  Buffer buffer_;
  std::string& complaint_;
};

// Where a conditional jump at the end of [begin, end) leads to, or -1.
int64_t JumpTarget(llvm::ArrayRef<uint8_t> code, int64_t end) {
  using llvm::support::endian::read32le;
  if (end >= 2 && (code[end - 2] & 0xf0) == 0x70) {
    const int64_t target = end + static_cast<int8_t>(code[end - 1]);
    if (target >= 0 && target < end) return target;
  }
  if (end >= 6 && code[end - 6] == 0x0f && (code[end - 5] & 0xf0) == 0x80) {
    return end + static_cast<int32_t>(read32le(&code[end - 4]));
  }
  return -1;
}

// LLVM says where blocks begin and end; the loops among them are those that jump to their own beginning.
llvm::Error FindLoops(llvm::MemoryBufferRef object, Image& image) {
  auto file = llvm::object::ObjectFile::createELFObjectFile(object);
  if (!file) return file.takeError();
  auto functions = llvm::cast<llvm::object::ELFObjectFileBase>(**file).readBBAddrMap();
  if (!functions) return functions.takeError();
  for (const llvm::object::BBAddrMap& function : *functions) {
    const auto name = std::find_if(image.symbols.begin(), image.symbols.end(), [&](const auto& symbol) {
      return symbol.second == static_cast<int64_t>(function.getFunctionAddress());
    });
    if (name == image.symbols.end()) continue;
    for (const llvm::object::BBAddrMap::BBRangeEntry& range : function.BBRanges) {
      for (const llvm::object::BBAddrMap::BBEntry& block : range.BBEntries) {
        const auto begin = static_cast<int64_t>(range.BaseAddress + block.Offset);
        const int64_t end = begin + block.Size;
        if (end > static_cast<int64_t>(image.instruction_bytes) || JumpTarget(image.bytes, end) != begin) continue;
        image.loops.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end), name->first});
      }
    }
  }
  return llvm::Error::success();
}

const llvm::Target& X86() {
  static const llvm::Target* const target = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    std::string error;
    return llvm::TargetRegistry::lookupTarget(kTriple, error);
  }();
  return *target;
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> MakeTargetMachine(const Isa& isa) {
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.BBAddrMap = true;  // for FindLoops
  return std::unique_ptr<llvm::TargetMachine>(X86().createTargetMachine(kTriple, "x86-64", isa.features, options,
                                                                        llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                        llvm::CodeGenOptLevel::Default, /*JIT=*/true));
}

llvm::Expected<Image> Compile(llvm::Module& module, llvm::TargetMachine& machine) {
  auto object = llvm::orc::SimpleCompiler(machine)(module);
  if (!object) return object.takeError();
  auto graph = jitlink::createLinkGraphFromObject((*object)->getMemBufferRef());
  if (!graph) return graph.takeError();
  Image image;
  std::string complaint;
  // All of it happens in this call: nothing is looked up outside, and the memory is at hand.
  jitlink::link(std::move(*graph), std::make_unique<LinkContext>(image, complaint));
  if (!complaint.empty()) return Complaint(complaint);
  if (llvm::Error error = FindLoops((*object)->getMemBufferRef(), image)) return error;
  return image;
}

}  // namespace clikart::codegen::llvm_module
