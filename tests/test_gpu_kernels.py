"""Every compiled function runs on a GPU as a whole: seen without a GPU.

A new `tf.function` of the packages has to have an entry in `tests/examples.py`, or a reason why it needs none. Steps
and predictions must have a kernel for each of their operations, and must not call Python (`kernels.without_kernel`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.compiled import compiled_names, traced
from tests.examples import BY_USERS, COMPILED, LEFT_OUT
from tests.kernels import GPU, XLA_GPU, has_kernels, nodes, without_kernel

SLOW = [pytest.mark.slow, pytest.mark.ci]
#: Of these the first example takes long to trace, too.
SLOW_TO_TRACE = ("closure", "loss", "_outputs", "_distributed_step.<locals>.step")
SEED = tf.constant([3, 4])


@pytest.fixture(autouse=True, scope="module")
def _needs_kernels() -> None:
    """TensorFlow registers the operations of XLA when it compiles the first function."""
    tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))
    if not (has_kernels("MatMul", GPU[:1]) and has_kernels("MatMul", XLA_GPU)):
        pytest.skip("this build of TensorFlow has no kernels for a GPU")


def examples() -> Iterator[Any]:
    """The first one of each function is fast."""
    for name, calls in COMPILED.items():
        for i, (label, call) in enumerate(calls.items()):
            is_slow = i > 0 or name.endswith(SLOW_TO_TRACE)
            yield pytest.param(name, call, id=f"{name}-{label}" if label else name, marks=SLOW if is_slow else [])


def test_no_compiled_function_is_forgotten() -> None:
    """If this fails: add a short call to `COMPILED` in tests/examples.py, or to `LEFT_OUT` why it is not one."""
    assert compiled_names() == COMPILED.keys() | LEFT_OUT.keys()
    assert not COMPILED.keys() & LEFT_OUT.keys()


@pytest.mark.parametrize(("name", "call"), list(examples()))
def test_every_operation_has_a_kernel(name: str, call: Any) -> None:
    found, function = traced(call)
    assert found == name
    assert without_kernel(function) == set()


@pytest.mark.parametrize("label", [pytest.param(label, marks=SLOW if i else []) for i, label in enumerate(BY_USERS)])
def test_every_operation_of_a_users_function_has_a_kernel(label: str) -> None:
    function, arguments = BY_USERS[label]()
    compiled = tf.function(function, autograph=False)
    assert without_kernel(compiled.get_concrete_function(*arguments)) == set()


# The checks themselves.


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: tf.zeros_like(tf.cast(x, tf.uint32)), {"Fill T=uint32, index_type=int32"}),
        (lambda x: tf.map_fn(lambda y: tf.cast(tf.argmax(tf.cast(y, tf.int32)), tf.float32), x), {"ArgMax"}),
        (
            lambda x: tf.cond(x[0, 0] > 0, lambda: tf.strings.as_string(x), lambda: tf.strings.as_string(-x)),
            {"AsString"},
        ),
        (lambda x: tf.numpy_function(np.sin, [x], tf.float32), {"PyFunc"}),
        (lambda x: tf.py_function(tf.sin, [x], tf.float32), {"EagerPyFunc"}),
        (lambda x: (tf.debugging.assert_positive(x, "words"), tf.linalg.cholesky(x))[1], set()),
    ],
    ids=["Fill", "loop", "condition", "NumPy", "Python", "Assert"],
)
def test_operations_without_a_kernel_are_found(function: Any, expected: set[str]) -> None:
    concrete = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec([2000, 2000]))
    found = without_kernel(concrete)
    assert all(any(each.startswith(start) for each in found) for start in expected)
    assert bool(found) == bool(expected)
    assert len(list(nodes(concrete))) > 1


def test_a_forgotten_function_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "ebp").mkdir()
    (tmp_path / "ebp" / "new.py").write_text("import tensorflow as tf\nnew_step = tf.function(lambda x: x)\n")
    assert compiled_names(tmp_path) == {"ebp.new.<lambda>"}
