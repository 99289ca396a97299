"""Every compiled function runs on a GPU as a whole, and no step copies to or from the host: seen without a GPU.

A new `tf.function` of the packages has to have an entry in `tests/examples.py`, or a reason why it needs none. Steps
and predictions must have a kernel for each of their operations, and must not call Python (`kernels.without_kernel`).
What makes many steps makes them in one call of a graph; a step of a deep GP, which is a call of its own, gives results
that nobody looks at.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import darn
import ebp
import gpflow_deep
from compression.classification import Examples
from compression.training import epoch_function
from darn.training import Trainer as DARNTrainer
from rbm_tracking import learning, rbm, tempering
from rbm_tracking.training import Trainer as RBMTrainer
from tests.compiled import PACKAGES, compiled_names, name_of, names_in, traced
from tests.examples import BY_USERS, COMPILED, LEFT_OUT, bits, normal
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


@pytest.mark.parametrize(("name", "call"), examples())
def test_every_operation_has_a_kernel(name: str, call: Any) -> None:
    found, function = traced(call)
    assert found == name
    assert without_kernel(function) == set()


@pytest.mark.parametrize("label", [pytest.param(label, marks=SLOW if i else []) for i, label in enumerate(BY_USERS)])
def test_every_operation_of_a_users_function_has_a_kernel(label: str) -> None:
    function, arguments = BY_USERS[label]()
    compiled = tf.function(function, autograph=False)
    assert without_kernel(compiled.get_concrete_function(*arguments)) == set()


# Copies between host and device.


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the packages' compiled functions, as they are called."""
    kind, calls = type(tf.function(lambda: None)), []
    run = kind.__call__

    def call(compiled: Any, *args: Any, **options: Any) -> Any:
        if not tf.inside_function() and name_of(compiled).split(".")[0] in PACKAGES:
            calls.append(name_of(compiled))
        return run(compiled, *args, **options)

    monkeypatch.setattr(kind, "__call__", call)
    return calls


def darn_steps() -> None:
    model = darn.DARN(darn.DARNConfig(visible=6, hidden=(4,)))
    DARNTrainer(model, darn.TrainingConfig(), num_data=20).advance(bits(20, 6), np.zeros([7, 5], int), SEED)


def rbm_updates() -> None:
    data = bits(20, 6).astype(np.uint8)
    start = rbm.initial_rbm(4, seed=SEED, data=data)
    state = learning.initial_state(start, tempering.linear_ladder(3), 4, seed=SEED, data=data)
    config = learning.SMLConfig()
    RBMTrainer(state, config, jit_compile=False).advance(data, np.zeros([7, 5], int), SEED)


def ebp_pass() -> None:
    network = ebp.EBPNetwork((5, 4, 1), head="binary")
    ebp.fit_epoch(network, normal(28, 5), 2 * bits(28, 1) - 1, batch_size=4, jit_compile=False)


def compression_epoch() -> None:
    model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    rows = Examples(tf.constant(normal(28, 5), tf.float32), tf.constant(np.arange(28) % 3, tf.int32))
    run = epoch_function(
        model, optimizer, rows, batch_size=4, learning_rate=lambda step: 0.1, kl_weight=lambda step: 1.0
    )
    run(SEED, tf.constant(0))


@pytest.mark.parametrize(
    "steps", [darn_steps, pytest.param(rbm_updates, marks=SLOW), ebp_pass, compression_epoch], ids=lambda f: f.__name__
)
def test_seven_steps_are_one_call(steps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    steps()
    assert len(calls) == 1


class Unread:
    """What a step returns, for a test: it cannot become a number or an array."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a step's result was asked for {name}")

    def _read(self, *_: Any) -> Any:
        raise AssertionError("a step's result was read")

    __array__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = _read


def trainer_with_unread_steps(num_steps: int | None) -> tuple[Any, list[Any]]:
    X, Y = normal(20, 2), normal(20, 1)
    trainer = gpflow_deep.Trainer(gpflow_deep.paper2017(X, Y, 2, num_inducing=5), num_steps=num_steps)
    given: list[Any] = []

    def step(batch: Any, seed: tf.Tensor) -> dict[str, Any]:
        given.append(batch)
        return {"elbo_nats": Unread()}

    trainer._step = step
    return trainer, given


@pytest.mark.parametrize("num_steps", [None, 1000])
def test_a_trainer_does_not_read_what_its_steps_return(num_steps: int | None) -> None:
    trainer, given = trainer_with_unread_steps(num_steps)
    batch = tf.constant(normal(20, 2)), tf.constant(normal(20, 1))
    bound = trainer.advance(lambda t: batch, 0, 20, SEED)
    assert isinstance(bound, Unread)
    assert len(given) == 20
    assert all(each is batch for each in given)  # they are not copied, either
    with pytest.raises(AssertionError, match="was read"):
        trainer.scalars()


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


def test_xla_has_its_own_kernels() -> None:
    """It compiles a `Fill` of uint32, and no sparse product."""

    def product(x: tf.Tensor) -> tf.Tensor:
        return tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 0]], [1.0], [3000, 3000]), x)

    found = []
    for function in (lambda x: tf.zeros_like(tf.cast(x, tf.uint32)), product):
        compiled = tf.function(function, autograph=False, jit_compile=True)
        found.append(
            {each.split()[0] for each in without_kernel(compiled.get_concrete_function(tf.TensorSpec([3000, 5])))}
        )
    assert found == [set(), {"SparseTensorDenseMatMul"}]


def test_compiled_functions_are_found_in_sources() -> None:
    source = """
import tensorflow as tf
from tensorflow import function as compiled
made = tf.function(inner, jit_compile=True)
def inner(): ...
class C:
    @tf.function
    def a(self): ...
    def b(self):
        @tf.function(autograph=False)
        def c(): ...
        self.d = tf.function(lambda x: x)
        self.e = tf.function(self.a)
        return tf.py_function(c, [], []), map(tf.function, [])
def f(g):
    return tf.function(g)
"""
    assert sorted(names_in(source, "m")) == [
        "m.C.a",
        "m.C.a",
        "m.C.b.<locals>.<lambda>",
        "m.C.b.<locals>.c",
        "m.C.b.<locals>.c",
        "m.C.b.<locals>.tf.function",
        "m.f.<locals>.g",
        "m.from tensorflow import function as compiled",
        "m.inner",
    ]


def test_a_forgotten_function_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "ebp").mkdir()
    (tmp_path / "ebp" / "new.py").write_text("import tensorflow as tf\nnew_step = tf.function(lambda x: x)\n")
    assert compiled_names(tmp_path) == {"ebp.new.<lambda>"}


def test_tracing_does_not_run_anything() -> None:
    with mock.patch.object(darn.DARN, "sample", return_value=tf.constant(0.0)) as sample:
        name, function = traced(lambda: darn.Sampler(darn.DARN(darn.DARNConfig(visible=6)))(1, SEED))
    assert name == "darn.sampling.Sampler.__init__.<locals>.<lambda>"
    assert sample.call_count == 1  # to trace it
    assert function.structured_outputs.shape == []
    with pytest.raises(ValueError, match="no compiled function of the packages was called"):
        traced(lambda: tf.function(lambda: 1)())
