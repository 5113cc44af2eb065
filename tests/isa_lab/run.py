"""Runs the kernel tests on emulated CPUs: `./dev test --isa-lab [CPU...]`. docs/isa-lab.md tells more."""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED_RUNNER = ROOT.parent / "shared/isa-lab/isa-run"
DEFAULT_TEMPLATE = (
    f"{SHARED_RUNNER} --cpu {{cpu}} --features '{{features}}' --env CLIKART_TEST_LEVELS --timeout 1500 --"
)
NO_RUNNER = f"""\
isa-lab: no emulator. CLIKART_ISA_RUNNER is not set, and {SHARED_RUNNER} does not exist.
Set it to a command that runs a program on the CPU {{cpu}} (skx, icl, spr, gnr, arl, hsw), for instance
    CLIKART_ISA_RUNNER='sde64 -{{cpu}} --' ./dev test --isa-lab
docs/isa-lab.md says what else the command may hold."""

# Tests of what is compiled rather than generated run natively, LLVM's kernels use nothing that is not there natively,
# and random specs are the fuzzer's; emulated all these only take long. Of the many schemes of quantized weights some
# short tests run, and those of matrix tiles; the rest of their emulation is traced and random kernels.
KERNEL_TESTS = (
    "-Fuzz.*:*Portable*:*Llvm*:*RandomSpecs*:SameBits.*"
    ":*/WeightOnlyTest.E*:*/WeightOnlyTest.DepthBlocks*:*/WeightOnlyTest.ActOrder*"
    ":*/RowInt8Test.Every*:*/RowInt8Test.Types*:*/RowInt8Test.ActOrder*:*/RowInt8Test.Rows*:*/RowInt8Test.Gated*"
    ":*/RowInt8Test.Follows*:*/RowInt8Test.Within*:*/RowInt8Test.C034*"
)
JOB_SECONDS = 1800


@dataclass(frozen=True)
class Cpu:
    name: str
    base: str  # where the runner adds features to another CPU
    features: str
    levels: str
    # What must have been executed there.
    extensions: frozenset[str]
    title: str
    # GoogleTest's filter of the kernel tests; where there is none, random kernels and those that are traced do.
    tests: str = ""


CPUS = [
    Cpu(
        "spr",
        "spr",
        "",
        "avx512_bf16,avx512_fp16,amx",
        frozenset({"AVX512-BF16", "AMX-TILE", "AMX-BF16", "AMX-INT8"}),
        "Sapphire Rapids",
        KERNEL_TESTS,
    ),
    Cpu("gnr", "spr", "amx_fp16", "amx", frozenset({"AMX-FP16"}), "Granite Rapids", "Products/AmxTest*"),
    Cpu("icl", "icl", "", "avx512_vnni", frozenset({"AVX512-VNNI"}), "Ice Lake", KERNEL_TESTS),
    Cpu(
        "skx",
        "skx",
        "",
        "avx512",
        frozenset({"AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL"}),
        "Skylake-X",
        KERNEL_TESTS,
    ),
    Cpu("arl", "arl", "", "avx_vnni", frozenset({"AVX-VNNI"}), "Arrow Lake"),
    Cpu("hsw", "hsw", "", "avx2", frozenset({"AVX2", "FMA", "F16C"}), "Haswell"),
]


@dataclass
class Outcome:
    """What one program gave on one CPU."""

    seconds: float = 0
    output: str = ""
    problems: list[str] = field(default_factory=list)


def template() -> str | None:
    chosen = os.environ.get("CLIKART_ISA_RUNNER")
    return chosen or (DEFAULT_TEMPLATE if SHARED_RUNNER.exists() else None)


def command_for(cpu: Cpu, runner: str) -> list[str]:
    """The words of the template, with the CPU's name in place. Only a runner that takes features gets a base."""
    adds = "{features}" in runner
    words = {"{cpu}": cpu.base if adds else cpu.name, "{features}": cpu.features}
    command = []
    for word in shlex.split(runner):
        for placeholder, value in words.items():
            word = word.replace(placeholder, value)
        command.append(word)
    return command


def run(command: list[str], levels: str | None) -> Outcome:
    environment = {name: value for name, value in os.environ.items() if name != "CLIKART_TEST_LEVELS"}
    if levels:
        environment["CLIKART_TEST_LEVELS"] = levels
    outcome = Outcome()
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=JOB_SECONDS)
        outcome.output = done.stdout
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            outcome.problems.append(f"exit status {done.returncode}:\n{tail}")
    except subprocess.TimeoutExpired:
        outcome.problems.append(f"not done after {JOB_SECONDS} s")
    except OSError as error:
        outcome.problems.append(f"cannot run {command[0]}: {error}")
    outcome.seconds = time.monotonic() - start
    return outcome


def tests_of(output: str) -> tuple[set[str], set[str]]:
    """Names of the GoogleTest tests that passed, and of those that skipped themselves (not of how many did)."""
    passed = set(re.findall(r"^\[       OK \] (\S+)", output, re.M))
    skipped = set(re.findall(r"^\[  SKIPPED \] (\S+\.\S+)", output, re.M))
    return passed, skipped - passed


def fuzz_cases(output: str) -> dict[str, int]:
    """Cases by level, of the emitters that write code."""
    cases: dict[str, int] = {}
    for emitter, level, count in re.findall(r"^(\w+) +(\w+) +\d+ +\d+ +(\d+)$", output, re.M):
        if emitter != "portable":
            cases[level] = cases.get(level, 0) + int(count)
    return cases


def executed_extensions(table: str) -> set[str]:
    rows = re.findall(r"^(\S+) +\d+ +(\d+) +\d+  \d+$", table, re.M)
    return {name for name, executed in rows if int(executed) > 0}


class Lab:
    def __init__(self, build: Path, runner: str, cases: int, seed: int):
        self.build = build
        self.programs = {
            "tests": [f"{build}/bin/codegen_test"],
            "fuzz": [
                f"{build}/bin/clikart-fuzz", "--cases", f"{cases}", "--seed", f"{seed}",
                "--products", "20000", "--emitters", "xbyak",
            ],
            "trace": [f"{build}/bin/clikart-fuzz", "--trace", "--emitters", "xbyak"],
        }  # fmt: skip
        self.runner = runner
        self.ran: set[str] = set()
        self.skipped: set[str] = set()
        self.failed = False

    def fail(self, where: str, problem: str) -> None:
        self.failed = True
        print(f"FAILED: {where}: {problem}", flush=True)

    def emulate(self, cpu: Cpu, program: str) -> Outcome:
        command = [*command_for(cpu, self.runner), *self.programs[program]]
        if program == "tests":
            command.append(f"--gtest_filter={cpu.tests}")
        outcome = run(command, cpu.levels)
        state = "failed" if outcome.problems else "done"
        print(f"  {cpu.title}, {program}: {state} in {outcome.seconds:.0f} s", flush=True)
        return outcome

    def judge_tests(self, where: str, outcome: Outcome) -> str:
        passed, skipped = tests_of(outcome.output)
        self.ran |= passed
        self.skipped |= skipped
        if not passed and not outcome.problems:
            self.fail(where, "no test ran")
        return f"{len(passed)} tests passed, {len(skipped)} skipped"

    def judge_cpu(self, cpu: Cpu, outcomes: dict[str, Outcome]) -> None:
        for program, outcome in outcomes.items():
            for problem in outcome.problems:
                self.fail(f"{cpu.title}, {program}", problem)
        tests = self.judge_tests(cpu.title, outcomes["tests"]) if cpu.tests else "kernel tests elsewhere"
        cases = fuzz_cases(outcomes["fuzz"].output)
        for level in cpu.levels.split(","):
            if cases.get(level, 0) == 0:
                self.fail(cpu.title, f"nothing was fuzzed at level {level}")
        print(f"\n{cpu.title} ({cpu.levels}): {tests}; {sum(cases.values())} random cases; instructions executed:")
        done = subprocess.run(
            [f"{self.build}/bin/clikart-coverage"], input=outcomes["trace"].output, capture_output=True, text=True
        )
        print(done.stdout, end="", flush=True)
        if done.returncode != 0:
            self.fail(f"{cpu.title}, coverage", done.stderr)
        if missing := cpu.extensions - executed_extensions(done.stdout):
            self.fail(cpu.title, f"nothing executed of {', '.join(sorted(missing))}")

    def run_natively(self) -> None:
        levels = run([f"{self.build}/bin/clikart-fuzz", "--targets"], None).output.splitlines()
        outcome = run([f"{self.build}/bin/codegen_test"], None)
        for problem in outcome.problems:
            self.fail("natively", problem)
        tests = self.judge_tests("natively", outcome)
        print(f"natively ({','.join(line.split(':')[0] for line in levels)}): {tests}", flush=True)

    def run_all(self, cpus: list[Cpu], jobs: int) -> None:
        self.run_natively()
        with ThreadPoolExecutor(jobs) as pool:
            futures = {
                cpu: {
                    program: pool.submit(self.emulate, cpu, program)
                    for program in self.programs
                    if cpu.tests or program != "tests"
                }
                for cpu in cpus
            }
        for cpu, programs in futures.items():
            self.judge_cpu(cpu, {program: future.result() for program, future in programs.items()})
        # A test that skips itself here is fine where it ran there. Some CPUs alone cannot tell.
        never = self.skipped - self.ran
        if never and len(cpus) == len(CPUS):
            self.fail("all CPUs", f"skipped everywhere: {', '.join(sorted(never))}")


def main() -> int:
    names = [cpu.name for cpu in CPUS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=f"of {', '.join(names)}; all unless told")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="emulators side by side")
    parser.add_argument("--cases", type=int, default=300, help="random cases a CPU")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.cpus) - set(names):
        parser.error(f"unknown CPU {', '.join(sorted(unknown))}; one of {', '.join(names)}")
    runner = template()
    if runner is None:
        print(NO_RUNNER, file=sys.stderr)
        return 2
    start = time.monotonic()
    chosen = [cpu for cpu in CPUS if cpu.name in (options.cpus or names)]
    print(f"kernels on {', '.join(cpu.title for cpu in chosen)}, by: {runner}", flush=True)
    lab = Lab(options.build, runner, options.cases, options.seed)
    lab.run_all(chosen, options.jobs)
    print(f"\nisa-lab: {'FAILED' if lab.failed else 'passed'} in {(time.monotonic() - start) / 60:.1f} min")
    return 1 if lab.failed else 0


if __name__ == "__main__":
    sys.exit(main())
