// The words that kernels are written in, as LLVM IR: entries and their arguments, loops, and vectors of one
// register's width. Nothing here lets the optimizer change a rounding: no fast-math flag, no contraction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "clikart/ir/dtype.h"
#include "isa.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace clikart::codegen::llvm_module {

using llvm::Value;
using Values = std::vector<Value*>;

class KernelBuilder : public llvm::IRBuilder<> {
 public:
  KernelBuilder(llvm::Module& module, const Isa& isa);

  const Isa& isa() const { return isa_; }
  int lanes() const { return isa_.lanes; }  // of a full vector

  // Begins entry `number` of the kernel; the next instructions are its body.
  void BeginEntry(int number);
  // Begins a function that entries call, with the argument struct first.
  llvm::Function* BeginShared(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments);
  void EndEntry();
  Value* ArgumentStruct() { return entry_->getArg(0); }
  // A member of the argument struct.
  Value* Argument(size_t offset, llvm::Type* type);
  Value* PointerArgument(size_t offset) { return Argument(offset, getPtrTy()); }
  Value* IntArgument(size_t offset) { return Argument(offset, getInt64Ty()); }

  // What a turn of a loop hands to the next one, and whether there is one.
  struct Turn {
    Values next;
    Value* again;
  };
  // Runs `body` at least once, first with `initial`; answers the values of the last turn.
  Values Loop(const std::string& name, const Values& initial, const std::function<Turn(const Values&)>& body);
  // The values of `then` where the condition holds, else `otherwise`, which `then` is given too.
  Values When(Value* condition, const Values& otherwise, const std::function<Values(const Values&)>& then);
  Value* IsPositive(Value* number) { return CreateICmpSGT(number, getInt64(0)); }

  Value* At(Value* pointer, Value* bytes) { return CreateGEP(getInt8Ty(), pointer, bytes); }
  Value* At(Value* pointer, int64_t bytes) { return bytes == 0 ? pointer : At(pointer, getInt64(bytes)); }

  // Vector types. Elements of 16 bits are integers until they are widened.
  llvm::Type* Floats(int count) { return llvm::FixedVectorType::get(getFloatTy(), count); }
  llvm::Type* Ints(int count) { return llvm::FixedVectorType::get(getInt32Ty(), count); }
  llvm::Type* Elements(ir::DType dtype, int count);
  Value* Bits(uint32_t bits, int count) { return CreateVectorSplat(count, getInt32(bits)); }
  Value* FloatBits(uint32_t bits, int count) { return CreateBitCast(Bits(bits, count), Floats(count)); }
  static int LanesOf(Value* vector);

  Value* LoadVector(llvm::Type* type, Value* from) { return CreateAlignedLoad(type, from, llvm::Align(1)); }
  void StoreVector(Value* value, Value* to) { CreateAlignedStore(value, to, llvm::Align(1)); }
  // `count` elements as f32, and nothing behind them. count is a power of two.
  Value* LoadWidened(ir::DType dtype, Value* from, int count);
  // The first `count` of `width` elements as f32, the others unspecified.
  Value* LoadFirst(ir::DType dtype, Value* from, int count, int width);
  // The lanes of a panel, 32 bits each, as vectors of that type.
  Values LoadPanelLanes(llvm::Type* type, Value* from);
  void StorePanelLanes(const Values& vectors, Value* to);
  // Elements that lie as integers of their own size: as f32.
  Value* Widen(ir::DType dtype, Value* elements);
  // f32 lanes rounded once, as integers of the element's size (f32 stays).
  Value* Round(ir::DType dtype, Value* value);
  // Memory on the stack for as long as the entry runs.
  Value* Scratch(llvm::Type* type);
  // Numbers in memory behind the code.
  Value* Constants(std::span<const float> numbers);
  // Asks for the line of an address, which may be any.
  void Prefetch(Value* place);
  // Stores the first `count` lanes, at least one and fewer than all.
  void StoreFirst(Value* elements, Value* to, Value* count);

  // a * b + c with one rounding, on every instruction set.
  Value* Fma(Value* a, Value* b, Value* c);
  // The same, never by a call.
  Value* FmaInPlace(Value* a, Value* b, Value* c);
  // Round to nearest even; 0x80000000 where the integer does not fit.
  Value* ToInt(Value* value);
  // `vector` cut into pieces of `count` lanes, and put together again.
  Values Split(Value* vector, int count);
  Value* Join(const Values& pieces);

 private:
  Value* HalfToFloat(Value* bits);
  Value* FloatToHalf(Value* value);
  // Some forty instructions for four lanes.
  Value* EmulatedFma(Value* a, Value* b, Value* c);
  // A function of its own: below FMA the code of one would fill a page at each use.
  llvm::Function* FmaFunction();
  llvm::Function* Begin(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments,
                        llvm::GlobalValue::LinkageTypes linkage);

  llvm::Module& module_;
  const Isa isa_;
  llvm::Function* entry_ = nullptr;
  llvm::Function* fma_ = nullptr;
};

// The symbol of an entry in the object.
std::string EntrySymbol(int number);

}  // namespace clikart::codegen::llvm_module
