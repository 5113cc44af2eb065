#include "executable_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "fork_testing.h"
#include "memory_policies.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

namespace clikart {
namespace {

// mov eax, value; ret
std::vector<uint8_t> Return(int value) {
  const uint32_t v = static_cast<uint32_t>(value);
  return {0xb8,
          static_cast<uint8_t>(v),
          static_cast<uint8_t>(v >> 8),
          static_cast<uint8_t>(v >> 16),
          static_cast<uint8_t>(v >> 24),
          0xc3};
}

int Call(const ExecutableBlock& block) { return reinterpret_cast<int (*)()>(const_cast<uint8_t*>(block.data()))(); }

struct Maps {
  int arenas = 0;
  bool writable_and_executable = false;
};

Maps ReadMaps() {
  Maps maps;
  std::ifstream file("/proc/self/maps");
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:clikart") != std::string::npos) ++maps.arenas;
    const size_t space = line.find(' ');
    maps.writable_and_executable |= line[space + 2] == 'w' && line[space + 3] == 'x';
  }
  return maps;
}

// Answers every mmap and mprotect that asks for PROT_EXEC with EACCES, as a policy would.
bool RefuseExecutablePages() {
  const uint32_t protection = static_cast<uint32_t>(offsetof(seccomp_data, args) + 2 * sizeof(uint64_t));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, protection),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(ExecutableMemoryTest, CodeRuns) {
  const auto first = *MakeExecutable(Return(7)), second = *MakeExecutable(Return(-3));
  EXPECT_EQ(Call(*first), 7);
  EXPECT_EQ(Call(*second), -3);
  EXPECT_EQ(first->size(), 6u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data()) % 64, 0u);
}

TEST(ExecutableMemoryTest, LargeCodeRuns) {
  std::vector<uint8_t> code(3 << 20, 0x90);  // nops, over many pages
  const std::vector<uint8_t> end = Return(11);
  code.insert(code.end(), end.begin(), end.end());
  EXPECT_EQ(Call(**MakeExecutable(code)), 11);
}

TEST(ExecutableMemoryTest, FewMappingsAndNoneWritable) {
  std::vector<std::shared_ptr<ExecutableBlock>> blocks;
  const int before = ReadMaps().arenas;
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint8_t> code = Return(i);
    code.resize(8192, 0xcc);
    blocks.push_back(*MakeExecutable(code));
    if (i % 100 == 0) {
      EXPECT_FALSE(ReadMaps().writable_and_executable);
    }
  }
  EXPECT_LT(ReadMaps().arenas - before, 64);  // some 32 kernels each
  EXPECT_FALSE(ReadMaps().writable_and_executable);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Call(*blocks[static_cast<size_t>(i)]), i);
  blocks.clear();
  EXPECT_LE(ReadMaps().arenas, before);  // all given back
}

TEST(ExecutableMemoryTest, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const auto block = MakeExecutable(Return(t * 1000 + i));
        ASSERT_TRUE(block.ok());
        ASSERT_EQ(Call(**block), t * 1000 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ExecutableMemoryTest, ParentAndChildDoNotWriteIntoEachOthersCode) {
  const auto old = *MakeExecutable(Return(1));
  EXPECT_EQ(ExitCodeOfChild([&] {
              const auto mine = *MakeExecutable(Return(2));
              return Call(*old) == 1 && Call(*mine) == 2 ? 0 : 1;
            }),
            0);
  const auto mine = *MakeExecutable(Return(3));
  EXPECT_EQ(Call(*old), 1);
  EXPECT_EQ(Call(*mine), 3);
}

TEST(ExecutableMemoryTest, RefusedByPolicy) {
  EXPECT_EQ(ExitCodeOfChild([] {
              if (!RefuseExecutablePages()) return 9;
              const auto block = MakeExecutable(Return(1));
              if (block.status().code() != absl::StatusCode::kPermissionDenied) return 1;
              const std::string message(block.status().message());
              const bool helps = message.find("in force: ") != std::string::npos &&
                                 message.find("a seccomp filter") != std::string::npos &&
                                 message.find("CLIKART_EMITTER=portable") != std::string::npos;
              return helps ? 0 : 2;
            }),
            0);
}

TEST(ExecutableMemoryTest, MemoryDenyWriteExecute) {
  EXPECT_EQ(ExitCodeOfChild([] {
              if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0) return 0;  // before Linux 6.3
              if (MemoryPoliciesInForce().find("PR_SET_MDWE") == std::string::npos) return 2;
              const auto block = MakeExecutable(Return(5));
              // Code that was never writable through its own mapping is allowed.
              return block.ok() && Call(**block) == 5 ? 0 : 1;
            }),
            0);
}

TEST(ExecutableMemoryTest, OutOfAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space of their own";
#endif
  EXPECT_EQ(ExitCodeOfChild([] {
              const rlimit limit{64 << 20, 64 << 20};
              if (setrlimit(RLIMIT_AS, &limit) != 0) return 9;
              const auto block = MakeExecutable(std::vector<uint8_t>(16 << 20, 0x90));
              const auto more = MakeExecutable(std::vector<uint8_t>(32 << 20, 0x90));
              const auto status = block.ok() ? more.status() : block.status();
              return status.code() == absl::StatusCode::kResourceExhausted ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace clikart
