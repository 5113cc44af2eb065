"""What surrounds the layers: dispatch counts, the kernel cache's face, warm-up, threads, the GIL."""

import os
import subprocess
import sys
import threading
import time

import clika_runtime as cr
import numpy as np
import pytest
from clika_runtime import nn
from conftest import same_bits


def test_dispatch_counts_nest(make):
    layer = make.linear(8, 8)
    x = make.array(1, 8)
    with cr.count_dispatches() as outer:
        layer(x)
        with cr.count_dispatches() as inner:
            layer(x)
            layer(x)
        assert inner.total == 2
    assert outer.total == 3
    assert list(outer.by_kernel.values()) == [3]
    layer(x)
    assert (outer.total, inner.total) == (3, 2)


def test_an_empty_batch_dispatches_nothing(make):
    layer = make.linear(8, 3)
    with cr.count_dispatches() as count:
        y = layer(np.zeros((0, 8), np.float32))
    assert y.shape == (0, 3)
    assert count.total == 0
    assert count.by_kernel == {}


def test_counts_are_of_this_thread(make):
    layer = make.linear(8, 8)
    x = make.array(1, 8)
    layer(x)
    with cr.count_dispatches() as count:
        thread = threading.Thread(target=lambda: layer(x))
        thread.start()
        thread.join()
    assert count.total == 0


def test_counting_ends_with_an_exception(make):
    count = cr.count_dispatches()
    with pytest.raises(ZeroDivisionError), count:
        _ = 1 / 0
    make.linear(2, 2)(make.array(1, 2))
    assert count.total == 0


def test_the_kernel_cache(make):
    cr.kernels.clear()
    assert cr.kernels.list() == []
    layer = make.linear(24, 8, activation="mish")
    layer(make.array(1, 24))
    (entry,) = cr.kernels.list()
    assert {"signature", "emitter", "isa", "code_bytes", "jit_seconds", "hits"} <= set(entry)
    assert "mish" in entry["signature"]
    before = cr.kernels.stats()
    assert {"entries", "code_bytes", "compiled", "loaded", "hits", "rejections"} <= set(before)
    make_twin = nn.Linear(24, 8, activation="mish").bind(weight=layer.weight, bias=layer.bias)
    make_twin(make.array(5, 24))
    after = cr.kernels.stats()
    assert after["compiled"] == before["compiled"]
    assert after["hits"] == before["hits"] + 1
    cr.kernels.clear()
    layer(make.array(1, 24))


def test_warmup_leaves_nothing_to_compile(make):
    model = nn.Sequential(make.linear(40, 24), make.linear(24, 8))
    report = cr.warmup(model, [((1, 40), "float32")], progress=False)
    assert isinstance(report, cr.WarmupReport)
    assert all(item.error is None for item in report.items)
    assert {"0", "1"} <= {item.layer for item in report.items}
    assert model[0].state == "packed"
    before = cr.kernels.stats()["compiled"]
    model(make.array(3, 40))
    assert cr.kernels.stats()["compiled"] == before


def test_warmup_takes_tensors_and_pairs(make):
    x = make.array(2, 8)
    for inputs in (x, [x], ((2, 8), cr.float32), [((2, 8), np.float32), x], cr.Tensor.from_data(x)):
        assert cr.warmup(make.linear(8, 8), inputs).items


def test_warmup_reports_progress_and_goes_on_past_a_failure(make):
    model = nn.Sequential(make.linear(8, 8), nn.Linear(8, 8), make.linear(8, 4))
    seen = []
    report = cr.warmup(model, [((1, 8), "float32")], progress=lambda done, total, item: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(seen)
    failed = {item.layer for item in report.items if item.error is not None}
    assert failed == {"1", ""}  # the layer, and so the model's own forward
    assert model[2].state == "packed"


def test_what_progress_raises_ends_the_warmup(make):
    layers = 4 * cr.get_num_threads()  # no more of them than there are threads are ahead of what was told
    model = nn.Sequential(*[make.linear(8, 8) for _ in range(layers)])

    def stop(done, total, item):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cr.warmup(model, [((1, 8), "float32")], progress=stop)
    assert model[layers - 1].state == "bound"
    model(make.array(1, 8))


def test_threads(make):
    before = cr.get_num_threads()
    try:
        layer = make.linear(256, 512)
        x = make.array(64, 256)
        cr.set_num_threads(1)
        assert cr.get_num_threads() == 1
        one = np.array(layer(x))
        cr.set_num_threads(2)
        assert cr.get_num_threads() == 2
        same_bits(layer(x), one)
        with pytest.raises(ValueError):
            cr.set_num_threads(-1)
        with pytest.raises(TypeError):
            cr.set_num_threads("2")
        cr.set_num_threads(0)
        assert cr.get_num_threads() >= 1
    finally:
        cr.set_num_threads(before)


def test_cpu_info():
    info = cr.cpu_info()
    numbers = {"logical_cpus", "usable_cpus", "threads"}
    assert {"vendor", "brand", "isa", "max_isa", "features", "target"} | numbers <= set(info)
    assert info["target"].split(":")[0] == info["isa"]
    assert info["usable_cpus"] >= 1


def test_version():
    import re
    from pathlib import Path

    stated = re.search(r"project\(clikart VERSION (\S+)", (Path(__file__).parents[2] / "CMakeLists.txt").read_text())
    assert cr.__version__ == stated.group(1)


def test_other_threads_run_during_a_forward(make):
    """A forward long enough to notice does not stop a thread that counts."""
    layer = make.linear(2048, 2048)
    x = make.array(512, 2048)
    layer(x)
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    layer(x)
    during = counted[0]
    done.set()
    thread.join()
    assert during > 0


def test_many_threads_race_for_the_first_call(make):
    for _ in range(20):
        layer = make.linear(64, 48)
        x = make.array(4, 64)
        start, results = threading.Barrier(4), [None] * 4

        def call(i, layer=layer, x=x, start=start, results=results):
            start.wait()
            results[i] = layer(x).numpy()

        threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results[1:]:
            same_bits(result, results[0])


def test_loads_and_calls_at_once(make):
    """Each output is entirely of the old or entirely of the new weights."""
    layer = nn.Linear(32, 32, bias=False)
    states = [{"weight": np.full((32, 32), value, np.float32)} for value in (1, 2)]
    layer.load_state_dict(states[0])
    x = np.ones((2, 32), np.float32)
    stop = time.monotonic() + 1.0
    wrong = []

    def call():
        while time.monotonic() < stop:
            y = layer(x).numpy()
            if not (np.all(y == 32) or np.all(y == 64)):
                wrong.append(y)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    while time.monotonic() < stop:
        for state in states:
            layer.load_state_dict(state, assign=True)
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_bad_environment_variable_lists_the_good_values():
    script = (
        "import numpy as np\n"
        "from clika_runtime import nn\n"
        "nn.Linear(1, 1, False).bind(weight=np.ones((1, 1), np.float32))(np.ones((1, 1), np.float32))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], env={"CLIKART_EMITTER": "fast"}, capture_output=True, text=True, timeout=60
    )
    assert run.returncode != 0
    assert "CLIKART_EMITTER" in run.stderr
    assert "xbyak" in run.stderr


LEVELS = ["baseline", "sse4", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx"]


def under_max_isa(level: str) -> subprocess.CompletedProcess:
    script = (
        "import clika_runtime, numpy as np\n"
        "from clika_runtime import nn\n"
        "nn.Linear(1, 1, False).bind(weight=np.ones((1, 1), np.float32))(np.ones((1, 1), np.float32))\n"
        "info = clika_runtime.cpu_info()\n"
        "print(info['max_isa'], info['isa'], clika_runtime.kernels.list()[0]['isa'])\n"
    )
    environment = {**os.environ, "CLIKART_MAX_ISA": level, "CLIKART_CACHE": "memory"}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("level", LEVELS)
def test_no_kernel_is_above_max_isa(level):
    done = under_max_isa(level)
    assert done.returncode == 0, done.stderr
    cap, cpu, kernel = done.stdout.split()
    assert cap == level
    assert LEVELS.index(kernel) <= LEVELS.index(cpu) <= LEVELS.index(level)


def test_an_unknown_max_isa_lists_the_levels():
    done = under_max_isa("avx1024")
    assert done.returncode != 0
    assert "CLIKART_MAX_ISA" in done.stderr
    assert ", ".join(LEVELS) in done.stderr
