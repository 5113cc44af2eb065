"""Field cases, area (f): threads, forks and interpreter locks, as Python programs meet them."""

import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import nn
from conftest import Make, same_bits

LIMIT = 120  # seconds, after which something hangs

IMPORTS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import gc, os, signal, threading, time
import numpy as np
import clika_runtime as cr
from clika_runtime import nn
from conftest import Make, same_bits
"""

PRELUDE = """
make = Make(np.random.default_rng(11))
x = make.array(64, 256)
layer = make.linear(256, 256)
cr.set_num_threads(2)

def child(body):
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid

def succeeds(pid):
    # A child that hangs is ended by its parent's limit: it dies with it.
    assert os.waitpid(pid, 0)[1] == 0

def check(reference):
    same_bits(np.asarray(layer(x)), reference)
"""


def run(code, *, check=True, **settings):
    """A program of its own: what forks or ends may not be the test's process. A hang is shown by its threads."""
    limit = f"import faulthandler; faulthandler.dump_traceback_later({LIMIT // 2}, exit=True)\n"
    # After conftest's own, which are of folders that go with the program.
    script = limit + IMPORTS + f"os.environ.update({settings!r})\n" + PRELUDE + code
    # In a group of its own, that no child outlives it.
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if check:
        assert process.returncode == 0, err
    return process.returncode, out, err


@pytest.fixture
def threads():
    """Restores the number of threads."""
    before = cr.get_num_threads()
    yield
    cr.set_num_threads(before)


def together(count, body):
    """body(i) on `count` threads that start at once; the first error is raised."""
    start = threading.Barrier(count)

    def work(i):
        start.wait()
        return body(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count), timeout=LIMIT))


# C066


def test_c066_a_child_runs_what_its_parent_ran():
    run("""
reference = np.asarray(layer(x))
def grandchild():
    check(reference)
    succeeds(child(lambda: check(reference)))
    make.linear(256, 64)(x)  # a kernel that the parent has not
for _ in range(5):
    succeeds(child(grandchild))
succeeds(child(lambda: None))  # uses nothing
check(reference)
""")


def test_c066_a_pool_of_processes():
    run("""
import multiprocessing
reference = np.asarray(layer(x))
def work(rows):
    return np.asarray(layer(x[:rows]))
with multiprocessing.get_context("fork").Pool(4) as pool:
    for rows, y in zip(range(1, 41), pool.map(work, range(1, 41)), strict=True):
        same_bits(y, reference[:rows])
check(reference)
""")


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_c066_forks_beside_a_busy_thread(tmp_path, cache):
    code = """
reference = np.asarray(layer(x))
stop = threading.Event()
def busy():  # calls, compiles, packs, loads, fuses
    i = 0
    while not stop.is_set():
        i += 1
        small = make.linear(8 + i % 50, 16)
        small(np.ones((2, 8 + i % 50), np.float32))
        group = nn.fuse_linears(make.linear(24, 8), make.linear(24, 16))
        group(np.ones((2, 24), np.float32))
        layer(x)
        if i % 20 == 0:
            cr.kernels.clear()
others = [threading.Thread(target=busy) for _ in range(2)]
for thread in others:
    thread.start()
def in_child():
    check(reference)
    small = Make(np.random.default_rng(1)).linear(9, 16)
    small(np.ones((2, 9), np.float32))
    small.bind(weight=np.ones((16, 9), np.float32), bias=None if False else np.ones(16, np.float32))
    small(np.ones((2, 9), np.float32))
for _ in range(20):
    succeeds(child(in_child))
stop.set()
for thread in others:
    thread.join()
check(reference)
"""
    run(code, CLIKART_CACHE=cache, CLIKART_CACHE_DIR=str(tmp_path))
    if cache == "disk":
        # Children took no file of their parent's away, nor left one half written.
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".tmp"]


def test_c066_the_first_use_is_in_the_child():
    run("""
pids = [child(lambda: layer(x)) for _ in range(4)]
for pid in pids:
    succeeds(pid)
layer(x)
""")


# C067


def test_c067_threads_follow_the_affinity():
    wanted = sorted(os.sched_getaffinity(0))[:1]
    code = f"""
os.sched_setaffinity(0, {wanted})
import subprocess
inner = "import clika_runtime as cr; print(cr.get_num_threads(), cr.cpu_info()['usable_cpus'])"
print(subprocess.run([sys.executable, "-c", inner], capture_output=True, text=True, check=True).stdout)
"""
    _, out, _ = run(code, CLIKART_NUM_THREADS="")
    assert out.split() == ["1", "1"]


def test_c067_settings_go_before_the_default():
    info = "print(cr.get_num_threads(), cr.cpu_info()['threads']); cr.set_num_threads(0); print(cr.get_num_threads())"
    _, out, _ = run("cr.set_num_threads(0)\n" + info, CLIKART_NUM_THREADS="3")
    assert out.split() == ["3", "3", "3"]
    _, out, _ = run("cr.set_num_threads(2)\n" + info, CLIKART_NUM_THREADS="3")
    assert out.split() == ["2", "2", "3"]


# C069


def test_c069_idle_workers_sleep():
    """Not how soon, which depends on the machine, but that they do, and stay asleep."""
    run("""
cr.set_num_threads(4)
large = make.linear(512, 512)
rows = make.array(256, 512)
def states():
    me, found = str(threading.get_native_id()), []
    for task in os.listdir("/proc/self/task"):
        if task == me:
            continue
        try:
            stat = open(f"/proc/self/task/{task}/stat").read()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found.append(stat.rsplit(")", 1)[1].split()[0])
    return found
for _ in range(3):
    for _ in range(20):
        large(rows)
    assert len(states()) >= 3
    asleep = 0
    while asleep < 50:  # looks in a row; the limit of the program is the end of patience
        asleep = asleep + 1 if set(states()) <= {"S"} else 0
        time.sleep(0.002)
""")


# C070


@pytest.mark.parametrize("count", [1, 64])
def test_c070_calls_from_a_callers_threads(make, threads, count):
    cr.set_num_threads(min(count, 4 * (os.cpu_count() or 1)))
    layer, x = make.linear(256, 512), make.array(64, 256)
    reference = np.asarray(layer(x))
    before = len(os.listdir("/proc/self/task"))
    most = 0

    def work(_):
        nonlocal most
        for _ in range(20):
            same_bits(np.asarray(layer(x)), reference)
        most = max(most, len(os.listdir("/proc/self/task")))

    together(8, work)
    # The callers' own, and not a pool for each.
    assert most <= before + 8 + cr.get_num_threads() + 2


def test_c070_calls_from_a_progress_callback(make, threads):
    cr.set_num_threads(2)
    model = nn.Sequential(make.linear(16, 24), make.linear(24, 8))
    other, x = make.linear(64, 64), make.array(33, 64)
    reference = np.asarray(other(x))
    seen = []

    def progress(*state):
        seen.append(state)
        same_bits(np.asarray(other(x)), reference)
        make.linear(8 + len(seen), 8)(make.array(2, 8 + len(seen)))  # a first call, which compiles and packs
        cr.warmup(make.linear(24, 40), [((1, 24), "float32")], progress=False)

    cr.warmup(model, [((1, 16), "float32"), ((4, 16), "float32")], progress=progress)
    assert seen


def test_c070_calls_from_a_finalizer(make):
    """The garbage collector may run anywhere that Python code does, inside of a conversion of an argument too."""
    layer, x = make.linear(32, 32), make.array(4, 32)
    reference = np.asarray(layer(x))
    calls = []

    class Last:
        def __del__(self):
            calls.append(np.asarray(layer(x)))

    class Source:
        def __array__(self, dtype=None, copy=None):
            Last()
            cycle = [Last()]
            cycle.append(cycle)
            del cycle
            gc.collect()
            return x

    same_bits(np.asarray(layer(np.asarray(Source()))), reference)
    assert len(calls) == 2
    for y in calls:
        same_bits(y, reference)


# C071


def served(name, make):
    """A layer of each kind, the width of its input's rows, and how a row count becomes a shape."""
    if name == "linear":
        return make.linear(48, 40, activation="gelu"), lambda m: (m, 48)
    if name == "per_call":
        return make.linear(48, 40, residency="per_call"), lambda m: (m, 48)
    if name == "group":
        return nn.fuse_linears(make.linear(48, 40), make.linear(48, 24)), lambda m: (m, 48)
    if name == "side by side":
        return nn.fuse_linears(make.linear(48, 40), make.woq(48, 24)), lambda m: (m, 48)
    if name == "conv":
        return make.conv(8, 24, padding=1, padding_mode="reflect"), lambda m: (1, 3 + m, 7, 8)
    scheme, _, compute = name.partition(" ")
    return make.woq(64, 40, scheme, **({"compute": compute} if compute else {})), lambda m: (m, 64)


@pytest.mark.parametrize(
    "name", ["linear", "per_call", "group", "side by side", "conv", "int8_g32", "int4_g32_asym", "int8_g32 int8"]
)
def test_c071_one_layer_on_sixteen_threads(make, threads, name):
    cr.set_num_threads(2)
    # Made, and called first, by a thread that has ended.
    with ThreadPoolExecutor(1) as maker:
        layer, shape = maker.submit(served, name, make).result()
        inputs = [make.array(*shape(m)) for m in range(1, 34)]
        expected = maker.submit(lambda: [np.asarray(layer(x)) for x in inputs]).result()
    again, _ = served(name, Make(np.random.default_rng(20240607)))

    def work(i):
        for turn in range(40):
            m = (7 * i + turn) % len(inputs)
            same_bits(np.asarray(layer(inputs[m])), expected[m])

    together(16, work)
    del again


@pytest.mark.parametrize("name", ["linear", "group", "conv", "int8_g32"])
def test_c071_the_first_call_on_sixteen_threads(threads, name):
    cr.set_num_threads(2)
    for seed in range(5):
        cr.kernels.clear()
        first, shape = served(name, Make(np.random.default_rng(seed)))
        second, _ = served(name, Make(np.random.default_rng(seed)))
        x = Make(np.random.default_rng(seed + 100)).array(*shape(5))
        expected = np.asarray(second(x))
        cr.kernels.clear()
        for y in together(16, lambda _, layer=first, x=x: np.asarray(layer(x))):
            same_bits(y, expected)


# C072


def test_c072_counts_change_between_calls(make, threads):
    cr.set_num_threads(2)
    layers = [make.linear(256, 512), make.linear(256, 512, residency="per_call"), make.woq(256, 128)]
    x = make.array(100, 256)
    expected = [np.asarray(layer(x)) for layer in layers]
    most = 4 * (os.cpu_count() or 1)
    for count in (16, 1, 0, 3, 64, 2, 2, 5):
        cr.set_num_threads(min(count, most))
        if count > 0:
            assert cr.get_num_threads() == min(count, most)
        else:
            assert cr.get_num_threads() >= 1
        for layer, y in zip(layers, expected, strict=True):
            same_bits(np.asarray(layer(x)), y)


def test_c072_counts_that_make_no_sense(threads, capfd):
    cr.set_num_threads(2)
    with pytest.raises(ValueError, match="-1"):
        cr.set_num_threads(-1)
    assert cr.get_num_threads() == 2
    cr.set_num_threads(10000)
    assert cr.get_num_threads() == 4 * cr.cpu_info()["logical_cpus"]
    out, err = capfd.readouterr()
    assert (out, err.count("clikart: warning: 10000 threads")) == ("", 1)
    code, _, err = run("layer(x)", check=False, CLIKART_NUM_THREADS="many")
    assert code == 1
    assert "ValueError: CLIKART_NUM_THREADS" in err


def test_c072_counts_change_during_calls(make, threads):
    layer, x = make.linear(256, 512), make.array(100, 256)
    expected = np.asarray(layer(x))
    stop = threading.Event()

    def turn():
        for i in range(100):
            cr.set_num_threads(1 + i % 6)
        stop.set()

    def call():
        while not stop.is_set():
            same_bits(np.asarray(layer(x)), expected)

    together(4, lambda i: turn() if i == 0 else call())


# C073


def test_c073_others_run_during_a_call():
    """The call ends only when another Python thread has done its part: with the lock held it never would."""
    run("""
large = make.linear(1024, 1024)
rows = make.array(1024, 1024)
turns = 0
done = threading.Event()
def count():
    global turns
    while not done.is_set():
        turns += 1
        time.sleep(0)
thread = threading.Thread(target=count)
thread.start()
sys.setswitchinterval(1000)  # nobody is asked to give the lock away
before = turns
calls = 0
while turns - before < 1000:
    large(rows)
    calls += 1
done.set()
thread.join()
""")


def test_c073_first_calls_race_with_python():
    """Compiling, packing, loading, fusing and looking, each with and without the interpreter's lock."""
    run("""
ticks = 0
def tick(*_):
    global ticks
    ticks += 1
    make.linear(4, 4)(np.ones((1, 4), np.float32))  # a call inside of a signal handler
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
def work(seed):
    mine = Make(np.random.default_rng(seed))
    for i in range(60):
        one = mine.linear(8 + i % 7, 16)
        one(np.ones((3, 8 + i % 7), np.float32))
        cr.kernels.stats(), cr.kernels.list()
        group = nn.fuse_linears(mine.linear(8, 16), mine.linear(8, 8))
        group(np.ones((3, 8), np.float32))
        group.explain(), one.state_dict()
        if i % 10 == 0:
            gc.collect()
            cr.kernels.clear()
workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
while ticks == 0:
    time.sleep(0.001)
signal.setitimer(signal.ITIMER_REAL, 0)
""")


@pytest.mark.parametrize("turn", range(3))
def test_the_interpreter_ends_beside_live_threads(tmp_path, turn):
    code, out, err = run(
        """
def forever():
    i = 0
    while True:
        i += 1
        layer(x)
        make.linear(8 + i % 100, 16)(np.ones((1, 8 + i % 100), np.float32))
for _ in range(4):
    threading.Thread(target=forever, daemon=True).start()
layer(x)
time.sleep(0.05)
print("end")
""",
        check=False,
        CLIKART_CACHE_DIR=str(tmp_path),
    )
    assert (code, out, err) == (0, "end\n", "")
