#include "llvm_object.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace clikart::codegen {
namespace {

using ::testing::HasSubstr;

TEST(LlvmObject, SaysWhereItLooked) {
  const auto missing = LoadLlvmObject("libclikart_llvm_that_is_not_there.so");
  ASSERT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  const std::string message(missing.status().message());
  EXPECT_THAT(message, HasSubstr("/libclikart_llvm_that_is_not_there.so"));
  EXPECT_THAT(message, HasSubstr("No such file"));
}

TEST(LlvmObject, RefusesAnotherLibrary) {
  const auto other = LoadLlvmObject("libm.so.6");
  ASSERT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr(kLlvmApiFunction));
}

TEST(LlvmObject, IsOfThisBuild) {
  const auto& api = LoadLlvm();
  ASSERT_TRUE(api.ok()) << api.status();
  EXPECT_EQ((*api)->contract, LlvmContract());
}

}  // namespace
}  // namespace clikart::codegen
