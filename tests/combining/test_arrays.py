"""Updates may be arrays of any library: they are aggregated as the same tensors would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scapegoat.aggregation import Aggregate, get, median
from scapegoat.combining.arrays import as_tensor
from scapegoat.errors import InputError
from tests.aggregation.inputs import context, make

N, D = 5, 60
UPDATES = make(3, N, D, kind="shared")


class OnlyArray:
    """An array that NumPy can read, as those of JAX and pandas."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array = self.values.numpy().copy()
        array.flags.writeable = False
        return array


class OnlyDLPack:
    """An array that NumPy cannot read, as those of CuPy."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


FORMS = {
    "NumPy": lambda t: t.numpy(),
    "NumPy, float64": lambda t: t.numpy().astype(np.float64),
    "NumPy, the other byte order": lambda t: t.numpy().astype(">f4"),
    "NumPy, long double": lambda t: t.numpy().astype(np.longdouble),
    "NumPy, read only": lambda t: np.frombuffer(t.numpy().tobytes(), dtype=np.float32).reshape(t.shape),
    "NumPy, backwards": lambda t: np.ascontiguousarray(t.numpy()[..., ::-1])[..., ::-1],
    "NumPy by columns": lambda t: np.asfortranarray(t.numpy()),
    "float64": lambda t: t.double(),
    "with a gradient": lambda t: t.clone().requires_grad_(),
    "__array__": OnlyArray,
    "DLPack": OnlyDLPack,
    "lists of numbers": lambda t: t.tolist(),
}


def same(answer: Aggregate, expected: Aggregate) -> None:
    assert isinstance(answer.update, Tensor)
    assert torch.allclose(answer.update, expected.update, atol=1e-7)  # a matrix and a list are summed in other orders
    assert torch.equal(answer.kept, expected.kept)
    assert not answer.rejected.any()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_and_a_list_of_vectors_in_any_form(form: str) -> None:
    make_form = FORMS[form]
    same(median(make_form(UPDATES)), median(UPDATES))
    same(median([make_form(row) for row in UPDATES]), median(list(UPDATES)))
    same(get("atm")(make_form(UPDATES), context(N, D)), get("atm")(UPDATES, context(N, D)))


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8])
def test_whole_numbers_are_numbers(kind: torch.dtype) -> None:
    whole = (10 * UPDATES.abs()).to(kind)
    same(median(whole), median(whole.float()))
    same(median(list(whole)), median(list(whole.float())))
    same(median(whole.numpy()), median(whole.float()))


def test_floating_numbers_of_several_types_are_one_round() -> None:
    forms = [Tensor.numpy, Tensor.double, Tensor.tolist, lambda t: t.numpy().astype(np.float64), lambda t: t]
    same(median([form(row) for form, row in zip(forms, UPDATES, strict=True)]), median(list(UPDATES)))
    assert median([torch.ones(3), np.ones(3), [1, 1, 1]]).kept.all()
    assert median([torch.ones(3).bfloat16(), torch.ones(3).double(), torch.ones(3)]).kept.all()
    assert median([torch.ones(3, dtype=torch.int32), np.ones(3, np.int64), [1, 2, 3]]).kept.all()


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        ([{"a": 1}], "the first is dict of shape"),
        ([np.ones((3, 2))] * 2, r"the first is float64 of shape \(3, 2\)"),
        ([None, "a"], "the first is NoneType"),
        ([], "there are no updates"),
    ],
)
def test_a_list_without_a_single_vector_is_refused_by_type_and_shape(updates: list[Any], says: str) -> None:
    for rule in (median, get("atm")):
        with pytest.raises(InputError, match=says):
            rule(updates)


def test_whole_numbers_among_floating_ones_are_their_senders_fault_even_in_the_majority() -> None:
    sent = [UPDATES[0], UPDATES[1].numpy(), *torch.ones(3, D, dtype=torch.int64)]
    answer = median(sent)
    assert answer.rejected.tolist() == [False, False, True, True, True]
    assert torch.equal(answer.update, median(UPDATES[:2]).update)


def test_numpy_rows_that_are_malformed_are_rejected_one_by_one() -> None:
    sent = [
        *UPDATES.numpy(),
        np.zeros(D, dtype=bool),
        np.array(["a"] * D),
        np.zeros((D, 1)),
        np.full(D, np.nan),
        [[1], 2],
    ]
    assert median(sent).rejected.tolist() == [False] * N + [True] * 5


def test_what_poses_as_an_array_cannot_stop_a_round() -> None:
    class Hostile:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise RuntimeError("no")

        def __dlpack__(self, **options: Any) -> Any:
            raise SystemError("no")

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    answer = median([*UPDATES, Hostile(), deep])
    assert answer.rejected.tolist() == [False] * N + [True, True]


def test_the_callers_array_is_shared_not_copied_and_left_alone() -> None:
    array = UPDATES.numpy().copy()
    shared = as_tensor(array)
    assert shared is not None
    assert shared.data_ptr() == array.ctypes.data
    median(array).update.add_(1)
    assert np.array_equal(array, UPDATES.numpy())
