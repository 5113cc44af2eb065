"""Tensors: what from_data takes, what views and exports share, what is refused."""

import copy
import gc
import pickle
import sys
import threading
import weakref

import clika_runtime as cr
import ml_dtypes
import numpy as np
import pytest
from clika_runtime import ClikaRTError, Tensor
from conftest import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

NUMPY = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "uint8": np.uint8,
    "int32": np.int32,
}


@pytest.mark.parametrize("name", NUMPY)
def test_every_dtype_goes_in_and_out(name):
    array = np.arange(6).reshape(2, 3).astype(NUMPY[name])
    tensor = Tensor.from_data(array)
    assert tensor.dtype is getattr(cr, name)
    assert (tensor.shape, tensor.strides, tensor.ndim) == ((2, 3), (3, 1), 2)
    assert tensor.nbytes == array.nbytes
    assert tensor.has_storage
    assert len(tensor) == 2
    same_bits(tensor.numpy(), array)
    same_bits(np.asarray(tensor), array)
    assert np.shares_memory(tensor.numpy(), array)


def test_dtype_objects():
    assert repr(cr.float32) == "clika_runtime.float32"
    assert len({cr.float32, cr.float16, cr.bfloat16, cr.int8, cr.uint8, cr.int32}) == 6
    assert pickle.loads(pickle.dumps(cr.bfloat16)) is cr.bfloat16
    assert copy.deepcopy(cr.int8) is cr.int8
    assert (cr.bfloat16.itemsize, cr.bfloat16.name) == (2, "bfloat16")


@pytest.mark.parametrize("spelling", ["bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), cr.bfloat16])
def test_dtype_spellings(spelling):
    assert cr.nn.Linear(1, 1, dtype=spelling).dtype is cr.bfloat16


@pytest.mark.parametrize("wrong", ["float64", np.int64, 3, None])
def test_a_wrong_dtype_lists_the_served(wrong):
    with pytest.raises(TypeError, match="bfloat16"):
        cr.nn.Linear(1, 1, dtype=wrong)


LAYOUTS = {
    "transposed": lambda a: a.T,
    "fortran": np.asfortranarray,
    "reversed": lambda a: a[::-1],
    "columns reversed": lambda a: a[:, ::-1],
    "every other": lambda a: a[:, ::2],
    "broadcast": lambda a: np.broadcast_to(a[0], (5, a.shape[1])),
    "overlapping": lambda a: np.lib.stride_tricks.as_strided(a, (4, 3), (4, 4)),
    "one row": lambda a: a[1:2],
    "a column": lambda a: a[:, 1],
    "scalar": lambda a: a[1, 2],
    "0-d": lambda a: a[1, 2, ...],
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_keeps_its_values(name):
    array = LAYOUTS[name](np.arange(24, dtype=np.float32).reshape(4, 6))
    kept = np.array(array)
    tensor = Tensor.from_data(array)
    same_bits(tensor.numpy(), kept)
    same_bits(tensor.contiguous().numpy(), kept)
    same_bits(array, kept)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_misaligned_elements_are_copied(offset):
    raw = np.arange(64, dtype=np.uint8)
    array = np.frombuffer(raw.tobytes()[: offset + 40], np.float32, 10, offset)
    tensor = Tensor.from_data(array)
    same_bits(tensor.numpy(), np.array(array))
    assert not np.shares_memory(tensor.numpy(), array)


def test_strides_between_elements_are_copied():
    array = np.zeros(4, np.dtype([("tag", np.uint8), ("value", np.float32)], align=False))["value"]
    array[:] = [1, 2, 3, 4]
    same_bits(Tensor.from_data(array).numpy(), np.array(array))


def test_the_source_lives_as_long_as_the_tensor():
    class Array(np.ndarray):
        pass

    array = np.arange(4, dtype=np.float32).view(Array)
    gone = weakref.ref(array)
    tensor = Tensor.from_data(array)
    piece = tensor[1:]
    exported = piece.numpy()
    del array, tensor, piece
    gc.collect()
    assert gone() is not None
    same_bits(exported, np.array([1, 2, 3], np.float32))
    assert exported.base is not None
    del exported
    assert gone() is None


def test_the_reference_count_goes_back():
    array = np.zeros(4, np.float32)
    before = sys.getrefcount(array)
    tensor = Tensor.from_data(array)
    assert sys.getrefcount(array) == before + 1
    del tensor
    assert sys.getrefcount(array) == before


def test_a_source_dropped_by_another_thread():
    array = np.zeros(4, np.float32)
    before = sys.getrefcount(array)
    held = [Tensor.from_data(array)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("source", ["flag", "bytes", "mmap"])
def test_read_only_memory_comes_out_read_only(source, tmp_path):
    array = np.arange(4, dtype=np.float32)
    if source == "flag":
        array.flags.writeable = False
    elif source == "bytes":
        array = np.frombuffer(array.tobytes(), np.float32)
    else:
        np.save(tmp_path / "a.npy", array)
        array = np.load(tmp_path / "a.npy", mmap_mode="r")
    out = Tensor.from_data(array).numpy()
    assert np.shares_memory(out, array)
    assert not out.flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        Tensor.from_data(array).__dlpack__()


def test_writable_memory_is_shared_both_ways():
    array = np.zeros(3, np.float32)
    tensor = Tensor.from_data(array)
    tensor.numpy()[1] = 7
    assert array[1] == 7


# Other sources.


def test_buffers():
    same_bits(Tensor.from_data(b"\x01\x02").numpy(), np.array([1, 2], np.uint8))
    same_bits(Tensor.from_data(memoryview(np.ones(2, np.float32))).numpy(), np.ones(2, np.float32))


@pytest.mark.parametrize("value", [1.5, [1.0, 2.5], [[1.0], [2]], ((0.5, 1), (2, 3))])
def test_lists_of_floats_become_float32(value):
    same_bits(Tensor.from_data(value).numpy(), np.asarray(value, np.float32))


def test_a_tensor_is_taken_as_it_is():
    tensor = Tensor.from_data(np.zeros(3, np.float32))
    assert np.shares_memory(Tensor.from_data(tensor).numpy(), tensor.numpy())


class Arrayish:
    def __array__(self, dtype=None, copy=None):
        return np.ones((2, 2), np.float32)


def test_anything_with_the_array_protocol():
    same_bits(Tensor.from_data(Arrayish()).numpy(), np.ones((2, 2), np.float32))


def test_subclasses_count_as_plain_arrays():
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1, 2]], np.float32)
    out = Tensor.from_data(matrix).numpy()
    assert type(out) is np.ndarray
    assert out.shape == (1, 2)


def test_masks():
    clear = np.ma.array([1, 2], mask=[False, False], dtype=np.float32)
    same_bits(Tensor.from_data(clear).numpy(), np.array([1, 2], np.float32))
    with pytest.raises(TypeError, match="mask"):
        Tensor.from_data(np.ma.array([1, 2], mask=[False, True], dtype=np.float32))


REFUSED = {
    "float64": np.zeros(2),
    "int64": np.zeros(2, np.int64),
    "bool": np.zeros(2, bool),
    "complex64": np.zeros(2, np.complex64),
    "object": np.array([1.0, 2.0], object),
    "str": np.array(["a"]),
    "structured": np.zeros(2, [("a", np.float32)]),
    ">f4": np.zeros(2, ">f4"),
    ">i4": np.zeros(2, ">i4"),
    "None": None,
    "text": "1.0",
    "dict": {},
    "integers": [1, 2],
    "words": ["a"],
    "int": 3,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_a_type_error(name):
    with pytest.raises(TypeError, match=r"served|tensor"):
        Tensor.from_data(REFUSED[name])


def test_the_message_names_the_dtype():
    with pytest.raises(TypeError, match=r"float64.*float32"):
        Tensor.from_data(np.zeros(2))
    with pytest.raises(TypeError, match="big-endian"):
        Tensor.from_data(np.zeros(2, ">f4"))


# Views.

KEYS = [
    *[0, -1, slice(None), slice(1, 3), slice(None, None, -1), slice(3, None, -2), slice(5, 2), ..., None],
    *[(1, 2), (slice(None), 0), (..., -1), (0, ...), (None, ..., None), (1, None, slice(None, None, 2)), (0, 1, 2), ()],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slices_are_numpys(key):
    array = np.arange(24, dtype=np.int32).reshape(4, 3, 2)[:, :, ::-1]
    array = np.ascontiguousarray(array.transpose(2, 0, 1)).transpose(1, 2, 0)
    if key == (0, 1, 2):
        key = (0, 1, 1)
    view = Tensor.from_data(array)[key]
    same_bits(view.numpy(), array[key])
    assert np.shares_memory(view.numpy(), array) or view.numpy().size == 0


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_slices_are_numpys_whatever_they_are(data):
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    bound = st.one_of(st.none(), st.integers(-6, 6))
    step = st.one_of(st.none(), st.integers(-3, 3).filter(bool))
    index = st.one_of(st.integers(-5, 5), st.builds(slice, bound, bound, step), st.none(), st.just(...))
    key = tuple(data.draw(st.lists(index, max_size=5)))
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            Tensor.from_data(array)[key]
        return
    same_bits(Tensor.from_data(array)[key].numpy(), np.asarray(expected))


@pytest.mark.parametrize("key", [True, [0], 1.0, "a", np.array([True, False])])
def test_other_indices_are_type_errors(key):
    with pytest.raises(TypeError, match="numpy"):
        Tensor.from_data(np.zeros(2, np.float32))[key]


def test_iteration_and_length():
    tensor = Tensor.from_data(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert [row.tolist() for row in tensor] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError):
        len(Tensor.from_data(np.float32(1)))
    assert Tensor.from_data(np.float32(1.5)).item() == 1.5


def test_contiguous_is_itself_or_a_copy():
    tensor = Tensor.from_data(np.zeros((2, 3), np.float32))
    assert np.shares_memory(tensor.contiguous().numpy(), tensor.numpy())
    other = tensor[:, ::2].contiguous()
    assert other.strides == (2, 1)
    assert not np.shares_memory(other.numpy(), tensor.numpy())


def test_array_protocol_arguments():
    tensor = Tensor.from_data(np.arange(3, dtype=np.float32))
    assert np.array(tensor, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(tensor), tensor.numpy())
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert np.shares_memory(np.array(tensor, copy=False), tensor.numpy())
    with pytest.raises(ValueError):
        np.array(tensor, dtype=np.float64, copy=False)


def test_repr():
    text = repr(Tensor.from_data(np.array([[1, 2.5]], np.float32)))
    assert text == "Tensor([[1. , 2.5]], float32[1, 2])"
    assert len(repr(Tensor.from_data(np.zeros((500, 500), np.float32)))) < 1000


def test_copies_and_pickles():
    tensor = Tensor.from_data(np.arange(3).astype(ml_dtypes.bfloat16))
    for other in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        same_bits(other.numpy(), tensor.numpy())
        assert not np.shares_memory(other.numpy(), tensor.numpy())
    assert np.shares_memory(copy.copy(tensor).numpy(), tensor.numpy())


# Split and concat.


def test_split_with_sizes_makes_views():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    pieces = cr.split_with_sizes(array, [1, 3])
    assert isinstance(pieces, list)
    same_bits(pieces[0].numpy(), array[..., :1])
    same_bits(pieces[1].numpy(), array[..., 1:])
    assert np.shares_memory(pieces[1].numpy(), array)
    same_bits(cr.split_with_sizes(array, (2, 1), dim=1)[0].numpy(), array[:, :2])


@pytest.mark.parametrize(("sizes", "dim"), [([1, 2], -1), ([5], -1), ([-1, 5], -1), ([4], 3), ([4], -4), ([], -1)])
def test_sizes_that_do_not_add_up(sizes, dim):
    with pytest.raises(ValueError):
        cr.split_with_sizes(np.zeros((2, 3, 4), np.float32), sizes, dim)


def test_concat_makes_a_new_tensor():
    a, b = np.ones((2, 3), np.float32), np.zeros((2, 1), np.float32)
    same_bits(cr.concat([a, b]).numpy(), np.concatenate([a, b], -1))
    same_bits(cr.concat((a, a[:1]), dim=0).numpy(), np.concatenate([a, a[:1]]))
    for wrong in ([a, b.astype(np.float16)], [a, a[:1]], []):
        with pytest.raises(ValueError):
            cr.concat(wrong)


def test_a_tensor_is_made_by_from_data_only():
    with pytest.raises(TypeError):
        Tensor()


def test_storage_free_errors_name_the_remedy():
    layer = cr.nn.Linear(2, 2, bias=False).bind(weight=np.ones((2, 2), np.float32))
    view = layer.weight
    layer(np.ones((1, 2), np.float32))
    assert not view.has_storage
    for read in (view.numpy, lambda: np.asarray(view), view.__dlpack__, view.tolist):
        with pytest.raises(ClikaRTError, match="storage"):
            read()


@pytest.mark.parametrize(("sizes", "error"), [([1.5, 2.5], TypeError), ([2**64], ValueError), (["4"], TypeError)])
def test_sizes_that_are_no_sizes(sizes, error):
    with pytest.raises(error):
        cr.split_with_sizes(np.zeros((3, 4), np.float32), sizes)
