"""The demo's promises on real networks, against stored results, and the readers under it."""

import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "python" / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402
from clika_runtime import nn  # noqa: E402
from realmodels import checkpoints, inputs, mtcnn, quantized, reference, report, wordpiece  # noqa: E402


@pytest.mark.parametrize("network", demo.NETWORKS)
def test_demo_passes_every_check(network):
    rows, checks = demo.NETWORKS[network](repeats=1, live=False)
    assert [f"{check.name}: {check.detail}" for check in checks if not check.passed] == []
    for row in rows:
        if row.kernel:
            assert row.dispatches_after == 1
            assert row.code_bytes is not None
            assert row.jit_seconds is not None
        else:
            assert row.dispatches_after < row.dispatches_before


def test_demo_leaves_with_one_when_a_check_fails(monkeypatch, capsys):
    row = demo.Row("net", "group", "2 (1+1)", 2, 1, 2e-6, 1e-6, "xbyak/avx2", 1234, 1e-4)
    failing = {"net": lambda repeats, live: ([row], [report.Check("promise", False, "broken")])}
    monkeypatch.setattr(demo, "NETWORKS", failing)
    assert demo.main(["--stored"]) == 1
    output = capsys.readouterr().out
    assert "FAIL  promise: broken" in output
    assert "0 of 1 checks passed" in output
    assert "2 -> 1" in output
    assert "2.00x" in output
    assert "1,234 B" in output


def test_table_without_rich(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    row = demo.Row("net", "group", "2 (1+1)", 2, 1, 2e-3, 1e-3, "xbyak/avx2", 1234, 1e-4)
    report.print_table("title", [row])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "title"
    assert lines[1].split()[:3] == ["network", "group", "parts"]
    assert "2.0 ms" in lines[3]
    assert "100.0 us" in lines[3]


class _Pair(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.up, self.down = nn.Linear(48, 64, activation="relu"), nn.Linear(64, 32, bias=False)
        self.up.bind(weight=rng.standard_normal((64, 48), np.float32), bias=rng.standard_normal(64, np.float32))
        self.down.bind(weight=rng.standard_normal((32, 64), np.float32))

    def forward(self, x):
        return np.asarray(self.down(self.up(x)))


@pytest.mark.parametrize(
    ("scheme", "bytes_a_group"), [("int4_g16", 2), ("int4_g16_asym_f32", 5), ("int8_g16_min_bf16", 4), ("mxfp4", 1)]
)
def test_quantize_linears(rng, scheme, bytes_a_group):
    model = _Pair(rng)
    x = rng.standard_normal((50, 48), np.float32)
    wanted = model(x)
    with pytest.raises(RuntimeError, match="no sample"):
        quantized.quantize_linears(model, scheme, lambda: None)
    assert np.array_equal(model(x), wanted)
    quantized.quantize_linears(model, scheme, lambda: model(x))
    assert [type(child) for child in model.children()] == [nn.QLinearWoQ, nn.QLinearWoQ]
    assert model.up.activation is nn.Activation.relu
    y = model(x)
    assert np.linalg.norm(y - wanted) < 0.3 * np.linalg.norm(wanted)
    size = 32 if scheme == "mxfp4" else 16
    groups = 64 * -(-48 // size) + 32 * (64 // size)
    codes = (48 * 64 + 64 * 32) * model.up.scheme.bits // 8
    assert quantized.expected_bytes(model) == codes + groups * bytes_a_group + 2 * 4 * 64
    if 48 % size == 0:
        assert model.resident_bytes == quantized.expected_bytes(model)


# Ids of the original tokenizer.
TOKENIZED = {
    "": [101, 102],
    "A man is playing the guitar.": [101, 1037, 2158, 2003, 2652, 1996, 2858, 1012, 102],
    "Le caf\xe9 \xe0 c\xf4t\xe9": [101, 3393, 7668, 1037, 17155, 102],
    "don't \u2014 stop\u2026 \u201cquotes\u201d": [101, 2123, 1005, 1056, 1517, 2644, 1529, 1523, 16614, 1524, 102],
    "\xdcn\xefc\xf6d\xe9\u200bzero\x00 x\ufffd": [101, 27260, 6290, 2080, 1060, 102],
    "\u4e2d\u6587 mixed\u6f22\u5b57text": [101, 1746, 1861, 3816, 1904, 100, 3793, 102],
    "tab\there\nnew\xa0line": [101, 21628, 2182, 2047, 2240, 102],
    "\u0130stanbul \xdf \ud55c\uad6d\uc5b4": [
        101,
        9960,
        1096,
        1469,
        30006,
        30021,
        29991,
        30014,
        30020,
        29999,
        30008,
        102,
    ],
    "\uff11\uff12\uff13 \ufb01 ~`|^$": [101, 100, 1984, 1066, 1036, 1064, 1034, 1002, 102],
    "a\u0301e \U0001f600": [101, 29347, 100, 102],
    "unbelievably antidisestablishmentarianism": [
        101,
        4895,
        8671,
        2666,
        3567,
        6321,
        3424,
        10521,
        4355,
        7875,
        13602,
        3672,
        12199,
        2964,
        102,
    ],
    "a" * 101: [101, 100, 102],
}


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece.WordPiece(reference.encoder_folder() / "vocab.txt")


@pytest.mark.parametrize("text", TOKENIZED)
def test_tokenizer_gives_the_original_ids(tokenizer, text):
    assert tokenizer.encode(text) == TOKENIZED[text]


def test_tokenizer_cuts_and_pads(tokenizer):
    long = tokenizer.encode("word " * 400)
    assert len(long) == 256
    assert long[-1] == tokenizer.last
    ids, mask = tokenizer.batch(["one two three", "one"])
    assert ids.shape == mask.shape == (2, 5)
    assert ids[1].tolist()[3:] == [tokenizer.padding] * 2
    assert mask.sum(axis=1).tolist() == [5, 3]


def test_pictures_are_the_same_everywhere():
    # The stored results hold for these pixels only; reference.py refuses others.
    picture = inputs.picture(24, 24, seed=11)
    assert picture.dtype == np.uint8
    assert picture.shape == (24, 24, 3)
    changed = {name: x + np.float32(0.5) for name, x in inputs.net_inputs().items()}
    with pytest.raises(ValueError, match="make_expectations"):
        reference.mtcnn_reference(changed, live=False)
    with pytest.raises(ValueError, match="make_expectations"):
        reference.encoder_reference(["another sentence"], live=False)


@pytest.mark.parametrize(
    ("extent", "size", "stride", "expected"), [(10, 2, 2, 5), (11, 2, 2, 6), (10, 3, 2, 5), (4, 3, 3, 2)]
)
def test_max_pool_counts_the_hanging_window(extent, size, stride, expected):
    x = -1 - np.random.default_rng(0).random((2, extent, extent, 3), np.float32)
    y = mtcnn.max_pool(x, size, stride)
    assert y.shape == (2, expected, expected, 3)
    for i in range(expected):
        window = x[:, i * stride : i * stride + size, :size]
        assert np.array_equal(y[:, i, 0], window.max(axis=(1, 2)))


def _torch_file(state: bytes) -> bytes:
    head = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}]
    return b"".join(pickle.dumps(part, protocol=2) for part in head) + state


class _Call:
    def __reduce__(self):
        return print, ("called",)


def test_read_torch_calls_nothing(tmp_path, capsys):
    path = tmp_path / "weights.pt"
    path.write_bytes(_torch_file(pickle.dumps({"weight": _Call()}, protocol=2)))
    with pytest.raises(pickle.UnpicklingError, match="no business with"):
        checkpoints.read_torch(path)
    assert capsys.readouterr().out == ""


def test_read_torch_refuses_short_files(tmp_path):
    original = (reference.mtcnn_folder() / "pnet.pt").read_bytes()
    path = tmp_path / "pnet.pt"
    path.write_bytes(original[:-1])
    with pytest.raises(ValueError, match="ends early"):
        checkpoints.read_torch(path)
    path.write_bytes(pickle.dumps(1, protocol=2))
    with pytest.raises(ValueError, match="not a file of"):
        checkpoints.read_torch(path)


def test_read_torch_keeps_the_strides():
    weights = checkpoints.read_torch(reference.mtcnn_folder() / "pnet.pt")
    assert weights["conv1.weight"].shape == (10, 3, 3, 3)
    assert weights["conv1.weight"].flags.c_contiguous
    assert weights["conv1.weight"].dtype == np.float32


@pytest.mark.parametrize(
    "header",
    [
        b'{"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 12]}}',
        b'{"w": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}}',
        b'{"w": {"dtype": "X9", "shape": [4], "data_offsets": [0, 16]}}',
    ],
)
def test_read_safetensors_refuses_what_does_not_fit(tmp_path, header):
    file = io.BytesIO()
    file.write(len(header).to_bytes(8, "little") + header + bytes(16))
    path = tmp_path / "w.safetensors"
    path.write_bytes(file.getvalue())
    with pytest.raises(ValueError, match=": w "):
        checkpoints.read_safetensors(path)
    path.write_bytes(file.getvalue()[:30])
    with pytest.raises(ValueError, match="header claims"):
        checkpoints.read_safetensors(path)


def test_quickstart(capsys):
    import quickstart

    quickstart.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["dispatches: 3 side by side, 1 fused", "same bits: True", "state dict unchanged: True"]
    assert len(lines) > 3
