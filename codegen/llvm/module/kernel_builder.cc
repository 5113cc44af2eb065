#include "kernel_builder.h"

#include "llvm/IR/Function.h"

namespace clikart::codegen::llvm_module {

KernelBuilder::KernelBuilder(llvm::Module& module, const Isa& isa)
    : llvm::IRBuilder<>(module.getContext()), module_(module), isa_(isa) {}

std::string EntrySymbol(int number) { return "entry" + std::to_string(number); }

llvm::Function* KernelBuilder::Begin(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments,
                                     llvm::GlobalValue::LinkageTypes linkage) {
  auto* const type = llvm::FunctionType::get(getVoidTy(), arguments, false);
  entry_ = llvm::Function::Create(type, linkage, name, module_);
  entry_->setDSOLocal(true);
  entry_->setDoesNotThrow();
  entry_->addFnAttr("min-legal-vector-width", std::to_string(32 * lanes()));
  entry_->setAlignment(llvm::Align(64));
  SetInsertPoint(llvm::BasicBlock::Create(getContext(), "start", entry_));
  return entry_;
}

void KernelBuilder::BeginEntry(int number) {
  Begin(EntrySymbol(number), {getPtrTy()}, llvm::GlobalValue::ExternalLinkage)
      ->setVisibility(llvm::GlobalValue::HiddenVisibility);
}

llvm::Function* KernelBuilder::BeginShared(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments) {
  return Begin(name, arguments, llvm::GlobalValue::InternalLinkage);
}

Value* KernelBuilder::Scratch(llvm::Type* type) {
  llvm::BasicBlock& start = entry_->getEntryBlock();
  return IRBuilder<>(&start, start.begin()).CreateAlloca(type);
}

Value* KernelBuilder::Constants(std::span<const float> numbers) {
  llvm::Constant* const data =
      llvm::ConstantDataArray::get(getContext(), llvm::ArrayRef<float>(numbers.data(), numbers.size()));
  return new llvm::GlobalVariable(module_, data->getType(), /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                  data);
}

void KernelBuilder::Prefetch(Value* place) {
  Value* const read = getInt32(0);
  Value* const every_level = getInt32(3);
  Value* const data = getInt32(1);
  CreateIntrinsic(llvm::Intrinsic::prefetch, {getPtrTy()}, {place, read, every_level, data});
}

void KernelBuilder::EndEntry() { CreateRetVoid(); }

Value* KernelBuilder::Argument(size_t offset, llvm::Type* type) {
  llvm::LoadInst* const value = CreateLoad(type, At(ArgumentStruct(), static_cast<int64_t>(offset)));
  // The struct outlives the call unchanged: what is read once may be read again instead of being kept.
  value->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(getContext(), {}));
  return value;
}

Values KernelBuilder::Loop(const std::string& name, const Values& initial,
                           const std::function<Turn(const Values&)>& body) {
  llvm::BasicBlock* const before = GetInsertBlock();
  llvm::Function* const function = before->getParent();
  llvm::BasicBlock* const head = llvm::BasicBlock::Create(getContext(), name, function);
  CreateBr(head);
  SetInsertPoint(head);
  std::vector<llvm::PHINode*> phis;
  Values carried;
  for (Value* const value : initial) {
    phis.push_back(CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(value, before);
    carried.push_back(phis.back());
  }
  const Turn turn = body(carried);
  llvm::BasicBlock* const tail = GetInsertBlock();
  llvm::BasicBlock* const after = llvm::BasicBlock::Create(getContext(), name + ".end", function);
  CreateCondBr(turn.again, head, after);
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(turn.next[i], tail);
  SetInsertPoint(after);
  return turn.next;
}

Values KernelBuilder::When(Value* condition, const Values& otherwise,
                           const std::function<Values(const Values&)>& then) {
  llvm::BasicBlock* const before = GetInsertBlock();
  llvm::Function* const function = before->getParent();
  llvm::BasicBlock* const yes = llvm::BasicBlock::Create(getContext(), "then", function);
  llvm::BasicBlock* const after = llvm::BasicBlock::Create(getContext(), "join", function);
  CreateCondBr(condition, yes, after);
  SetInsertPoint(yes);
  const Values changed = then(otherwise);
  llvm::BasicBlock* const yes_end = GetInsertBlock();
  CreateBr(after);
  SetInsertPoint(after);
  Values result;
  for (size_t i = 0; i < otherwise.size(); ++i) {
    llvm::PHINode* const phi = CreatePHI(otherwise[i]->getType(), 2);
    phi->addIncoming(changed[i], yes_end);
    phi->addIncoming(otherwise[i], before);
    result.push_back(phi);
  }
  return result;
}

int KernelBuilder::LanesOf(Value* vector) {
  return static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
}

llvm::Type* KernelBuilder::Elements(ir::DType dtype, int count) {
  if (dtype == ir::DType::kFloat32) return Floats(count);
  return llvm::FixedVectorType::get(getIntNTy(8 * static_cast<unsigned>(ir::SizeOf(dtype))), count);
}

Values KernelBuilder::Split(Value* vector, int count) {
  const int lanes = LanesOf(vector);
  if (lanes == count) return {vector};
  Values pieces;
  for (int first = 0; first < lanes; first += count) {
    std::vector<int> mask;
    for (int lane = 0; lane < count; ++lane) mask.push_back(first + lane);
    pieces.push_back(CreateShuffleVector(vector, mask));
  }
  return pieces;
}

Value* KernelBuilder::Join(const Values& pieces) {
  Values joined = pieces;
  while (joined.size() > 1) {
    Values next;
    for (size_t i = 0; i < joined.size(); i += 2) {
      std::vector<int> mask;
      for (int lane = 0; lane < 2 * LanesOf(joined[i]); ++lane) mask.push_back(lane);
      next.push_back(CreateShuffleVector(joined[i], joined[i + 1], mask));
    }
    joined = next;
  }
  return joined.front();
}

}  // namespace clikart::codegen::llvm_module
