"""Field cases, area (h): what the library tells, what it needs, and which way a layer took."""

import os
import re
import subprocess
import sys
from pathlib import Path

import clika_runtime as cr
import pytest
from clika_runtime import nn

generates = cr.cpu_info()["isa"] not in ("baseline", "sse4")

PROGRAM = """
import os, threading
import numpy as np
import clika_runtime as cr
from clika_runtime import nn

def layer(n):
    return nn.Linear(8, n).bind(weight=np.ones((n, 8), np.float32), bias=np.zeros(n, np.float32))

x = np.ones((3, 8), np.float32)
first = layer(16)
for _ in range(2):
    first(x)
layer(16)(x)
"""

LINE = re.compile(
    r"clikart: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (?P<pid>\d+) (?P<thread>\d+) (?P<event>\w+)"
    r"(?P<rest> kind=.*@(?P<isa>\w+)/\w+(: .* in \d+\.\d{3} ms)?|.*)"
)


def run(tmp_path, code=PROGRAM, shell="", **settings):
    """The finished process of a program that runs in `tmp_path`; `shell` redirects its standard streams."""
    env = {**os.environ, "CLIKART_EMITTER": "", "CLIKART_CACHE_DIR": str(tmp_path / "cache"), **settings}
    env = {name: value for name, value in env.items() if value}
    program = tmp_path / "program.py"
    program.write_text(code)
    command = ["bash", "-c", f'exec "$0" "$1" {shell}', sys.executable, str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path)


def lines(text):
    """Each a match: a line that is not whole fails."""
    matches = [LINE.fullmatch(line) for line in text.splitlines()]
    assert None not in matches, text
    return matches


def events(text):
    return [line["event"] for line in lines(text)]


@pytest.mark.skipif(not generates, reason="no code is generated for this CPU")
def test_c088_levels(tmp_path):
    quiet = run(tmp_path, CLIKART_VERBOSE="", CLIKART_CACHE="memory")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    expected = {
        "0": [],
        "1": ["compiled"],
        "2": ["compiled", "hit"],
        "3": ["compiled", "ran", "ran", "hit", "ran"],
    }
    for level, wanted in expected.items():
        done = run(tmp_path, CLIKART_VERBOSE=level, CLIKART_CACHE="memory")
        assert (done.returncode, done.stdout) == (0, "")
        assert events(done.stderr) == wanted
        for line in lines(done.stderr):
            assert line["isa"] == cr.cpu_info()["isa"] or line["isa"] in ("avx2", "avx512")
            assert (" ms" in line["rest"]) == (line["event"] != "hit")
    run(tmp_path)  # on disk
    assert events(run(tmp_path, CLIKART_VERBOSE="2").stderr) == ["loaded", "hit"]
    assert events(run(tmp_path, CLIKART_VERBOSE="1").stderr) == []


def test_c088_a_bad_level_lists_the_good_ones(tmp_path):
    done = run(tmp_path, CLIKART_VERBOSE="debug")
    assert done.returncode == 1
    assert 'ValueError: CLIKART_VERBOSE is "debug", but it takes one of 0, 1, 2, 3' in done.stderr


def test_c088_to_a_file(tmp_path):
    # A relative name means the folder of the first use, not the one that the program goes to.
    code = PROGRAM + "os.chdir('/')\nlayer(17)(x)\n"
    done = run(tmp_path, code, CLIKART_VERBOSE="3", CLIKART_VERBOSE_FILE="told.log")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    log = tmp_path / "told.log"
    assert events(log.read_text()).count("ran") == 4
    assert log.stat().st_mode & 0o777 == 0o600
    before = len(lines(log.read_text()))
    run(tmp_path, code, CLIKART_VERBOSE="3", CLIKART_VERBOSE_FILE="told.log")
    assert len(lines(log.read_text())) > before  # appended


def test_c088_warnings_go_to_both(tmp_path):
    code = PROGRAM + "cr.set_num_threads(100000)\n"
    done = run(tmp_path, code, CLIKART_VERBOSE_FILE="told.log")
    assert re.fullmatch(r"clikart: warning: 100000 threads .*\n", done.stderr)
    assert events((tmp_path / "told.log").read_text()) == ["warning"]


def test_c088_a_file_that_cannot_be_opened_is_one_warning(tmp_path):
    done = run(tmp_path, CLIKART_VERBOSE="3", CLIKART_VERBOSE_FILE=str(tmp_path / "missing/told.log"))
    assert (done.returncode, done.stdout) == (0, "")
    warning, *rest = done.stderr.splitlines()
    assert "warning: CLIKART_VERBOSE_FILE" in warning
    assert "No such file or directory" in warning
    assert events("\n".join(rest)).count("ran") == 3


@pytest.mark.parametrize(
    "shell", [">&-", "2>&-", ">&- 2>&-", "2> /dev/full", "2> >(exec 0<&-; exit)", "2> >(head -c1 > /dev/null)"]
)
def test_c088_streams_that_take_nothing(tmp_path, shell):
    code = PROGRAM + "for _ in range(200): first(x)\nopen('done', 'w')\n"
    done = run(tmp_path, code, shell, CLIKART_VERBOSE="3")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "done").exists()


def test_c088_a_full_disk(tmp_path):
    done = run(tmp_path, CLIKART_VERBOSE="3", CLIKART_VERBOSE_FILE="/dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_c088_a_closed_standard_error_is_nobodys_file(tmp_path):
    """A file that the program opens gets the number 2."""
    code = "import os\n" + PROGRAM.replace("first = ", "file = open('own', 'w')\nassert file.fileno() == 2\nfirst = ")
    done = run(tmp_path, code, "2>&-", CLIKART_VERBOSE="3")
    assert done.returncode == 0
    assert (tmp_path / "own").read_text() == ""


def test_c088_lines_stay_whole(tmp_path):
    code = PROGRAM + (
        "cr.set_num_threads(2)\n"
        "def work():\n    for _ in range(50): first(x)\n"
        "threads = [threading.Thread(target=work) for _ in range(32)]\n"
        "[t.start() for t in threads]\n"
        "children = []\n"
        "for _ in range(3):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        work()\n"
        "        os._exit(0)\n"
        "    children.append(child)\n"
        "[t.join() for t in threads]\n"
        "print(*children, *(os.waitpid(child, 0)[1] for child in children))\n"
    )
    for settings in ({"CLIKART_VERBOSE_FILE": "told.log"}, {"CLIKART_VERBOSE_FILE": ""}):
        done = run(tmp_path, code, CLIKART_VERBOSE="3", **settings)
        assert done.returncode == 0, done.stderr
        told = lines((tmp_path / "told.log").read_text() if settings["CLIKART_VERBOSE_FILE"] else done.stderr)
        ran = [line for line in told if line["event"] == "ran"]
        assert len(ran) == 35 * 50 + 3
        *children, _, _, _ = (ids := done.stdout.split())
        assert ids[3:] == ["0", "0", "0"]
        assert len({line["pid"] for line in ran}) == 4
        for child in children:
            assert sum(line["pid"] == child for line in ran) == 50
        assert len({line["thread"] for line in ran}) == 36


# Functions that a check of CPUID stands before, by what their names tell.
GUARDED = re.compile("avx|fma|ssse3|sse41|shaext", re.I)
# What x86-64 alone does not have, as far as compilers and hand-written code use it.
WIDE = re.compile(
    r"\t(v[a-z]|pshufb|palignr|pmulhrsw|pmaddubsw|phadd|phsub|pabs|psign|pblend|blend|ptest|pmov[sz]x|pmin(sb|sd|uw|ud)"
    r"|pmax(sb|sd|uw|ud)|pextr[bdq]|pinsr[bdq]|round[sp]|dpp|insertps|extractps|mpsadbw|pcmpeqq|pcmpgtq|pcmp[ei]str"
    r"|crc32|popcnt|lzcnt|andn |bextr|bls[ri]|pdep|pext |mulx|[sr]arx|sh[lr]x|rorx|ad[co]x|movbe|aes|pclmul|sha(1|256)"
    r"|lddqu|haddp|addsub|movddup|movs[hl]dup|fisttp|packusdw|pmuldq|pmulld|tile|tdp|ldtilecfg|k(mov|ortest)[bwdq])"
)


@pytest.mark.parametrize("name", ["_core*.so", "libclikart_llvm.so"])
def test_c092_nothing_wide_before_the_cpu_is_asked(name):
    """The library needs x86-64 and no more: whatever needs more lies in functions that are chosen by CPUID."""
    found = list(Path(cr.__file__).parent.glob(name))
    if not found and name.startswith("lib"):
        pytest.skip("this build has no LLVM emitter")
    command = ["objdump", "-d", "--no-show-raw-insn", str(found[0].resolve())]
    function, instructions, wide = "", 0, set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as objdump:
        for line in objdump.stdout:
            if line.endswith(">:\n"):
                function = line
            elif line.startswith(" "):
                instructions += 1
                if WIDE.search(line):
                    wide.add(function)
    assert objdump.returncode == 0
    assert instructions > 10000
    assert wide, "the pattern finds nothing, although some functions are wide"
    assert [function for function in wide if not GUARDED.search(function)] == []


MIXED = """
import numpy as np
from clika_runtime import nn

rng = np.random.default_rng(1)
def part(inputs, activation=None):
    layer = nn.Linear(inputs, 8, activation=activation)
    return layer.bind(weight=rng.standard_normal((8, inputs)).astype(np.float32), bias=np.zeros(8, np.float32))

for _ in range(3):
    group = nn.fuse_linears(part(16), part(24), name="pair")
print(group.explain())
"""


def test_c093_one_line_for_each_reason(tmp_path):
    done = run(tmp_path, MIXED, CLIKART_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    assert "side by side: " in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "side by side" in line]
    assert "pair" in line
    again = run(tmp_path, MIXED, CLIKART_VERBOSE="2")
    assert sum("side by side" in line for line in again.stderr.splitlines()) == 3


def test_c093_strict_makes_a_fallback_an_error(tmp_path):
    done = run(tmp_path, MIXED, CLIKART_STRICT="1")
    assert done.returncode == 1
    assert "CLIKART_STRICT=1 forbids" in done.stderr


def test_c093_counters_and_explain_name_the_reason(make):
    before = cr.kernels.stats()["rejections"]
    group = nn.fuse_linears(make.linear(16, 8), make.linear(24, 8))
    after = cr.kernels.stats()["rejections"]
    assert not group.fused
    (reason,) = re.findall(r"side by side: (\w+) \(", group.explain())
    assert after[reason] == before.get(reason, 0) + 1


@pytest.mark.skipif(not generates, reason="no code is generated for this CPU")
@pytest.mark.parametrize("make_layer", ["make.linear(16, 8)", "make.conv(4, 8)", "make.woq(32, 8)"])
def test_c093_portable_kernels_say_so(tmp_path, make_layer):
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import numpy as np\nfrom conftest import Make\nimport clika_runtime as cr\n"
        f"make = Make(np.random.default_rng(0))\nprint({make_layer}.explain())\n"
        "print(cr.kernels.stats()['rejections'])\n"
    )
    done = run(tmp_path, code, CLIKART_EMITTER="portable")
    assert done.returncode == 0, done.stderr
    assert "portable" in done.stdout
    assert "CLIKART_EMITTER is portable" in done.stdout
