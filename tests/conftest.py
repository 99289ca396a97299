"""Fixtures, options and checks for all tests.

Every test draws from the fixtures `rng` and `seed`, which depend on the test's name and on one base seed: 0 unless
--base-seed or --vary-seed says otherwise. So does what Keras draws by itself. A test has to pass with any base seed.
"""

import hashlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gpflow_deep_base.runtime.tensor_float import full_float32
from tests.tiers import load

if TYPE_CHECKING:
    import tensorflow as tf


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runslow", action="store_true", help="run the tests marked slow, too")
    parser.addoption("--vary-seed", action="store_true", help="draw a new base seed for rng and seed")
    parser.addoption("--base-seed", type=int, default=0, help="base seed for rng and seed (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    _forget_the_shell()
    full_float32()  # on a GPU, tolerances are for float32
    if config.getoption("--vary-seed") and not hasattr(
        config, "workerinput"
    ):  # workers get the options of their parent
        config.option.base_seed = random.SystemRandom().randrange(2**31)


def _forget_the_shell() -> None:
    """Signals, locale and settings as if the tests had been started by hand, also for the processes that they start.

    A shell without job control starts what is in its background with SIGINT ignored, and nohup with SIGHUP ignored.
    """
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("COLUMNS", "LANGUAGE", "LC_ALL", "LINES", "PYTHONIOENCODING", "PYTHONWARNINGS", "TF_CONFIG"):
        os.environ.pop(name, None)
    os.environ["LANG"] = "C.UTF-8"


def pytest_report_header(config: pytest.Config) -> str:
    return f"base seed: {config.getoption('--base-seed')} (repeat with --base-seed={config.getoption('--base-seed')})"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _mark_what_was_measured_as_slow(items)
    if not config.getoption("--runslow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow (more than 5 s); run with --runslow"))
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_gpu():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def _mark_what_was_measured_as_slow(items: list[pytest.Item]) -> None:
    """As `slow.txt` says, see tiers.py: tests of "ci" are run for every change, those of "nightly" each night."""
    tiers = load()
    for item in items:
        function = item.nodeid.split("[")[0]
        tier = tiers.get(item.nodeid) or tiers.get(function) or tiers.get(function.split("::")[0])
        if tier is None:
            continue
        item.add_marker(pytest.mark.slow)
        if tier == "ci":
            item.add_marker(pytest.mark.ci)
        else:
            item.own_markers = [marker for marker in item.own_markers if marker.name != "ci"]


def _has_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _digest(request: pytest.FixtureRequest, kind: str) -> bytes:
    base_seed = request.config.getoption("--base-seed")
    return hashlib.sha256(f"{base_seed}/{kind}/{request.node.nodeid}".encode()).digest()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """NumPy generator of this test."""
    return np.random.default_rng(int.from_bytes(_digest(request, "rng"), "little"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> "tf.Tensor":
    """Seed of this test for `tf.random.stateless_*` and our functions: an int32 tensor of shape [2]."""
    import tensorflow as tf

    return tf.constant(np.frombuffer(_digest(request, "seed")[:8], dtype="<i4"), dtype=tf.int32)


@pytest.fixture
def global_generator() -> Iterator[None]:
    """scikit-learn's checks draw from NumPy's global generator; put it back."""
    state = np.random.get_state()  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


@pytest.fixture
def eagerly() -> Iterator[None]:
    """A few steps are quicker without compiling them."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def traced_once() -> Iterator[Callable[[Any], Any]]:
    """`step = traced_once(tf.function(step))` fails the test if `step` was not traced exactly once by its end."""
    functions: list[Any] = []

    def register(function: Any) -> Any:
        functions.append(function)
        return function

    yield register
    for function in functions:
        count = function.experimental_get_tracing_count()
        if count != 1:
            pytest.fail(f"{function} was traced {count} times, not once; give it tensors of one shape.", pytrace=False)


@pytest.fixture(autouse=True)
def _keras_draws_by_name(request: pytest.FixtureRequest) -> None:
    """What Keras draws without a seed (weights of a new layer, the order of examples) depends on the test's name."""
    keras = sys.modules.get("keras")
    if keras is not None:
        state = np.random.get_state()  # noqa: NPY002
        keras.utils.set_random_seed(int.from_bytes(_digest(request, "keras")[:4], "little"))
        np.random.set_state(state)  # noqa: NPY002


@pytest.fixture(autouse=True)
def _no_global_state() -> Iterator[None]:
    """Fail a test that draws from NumPy's global generator; undo what it changed in GPflow's configuration."""
    before = _global_rng_state()
    gpflow = sys.modules.get("gpflow")
    config = gpflow.config.config() if gpflow else None
    yield
    if gpflow and gpflow.config.config() != config:
        gpflow.config.set_config(config)
    if _global_rng_state() != before:
        pytest.fail("the test moved NumPy's global generator; draw from the fixture rng instead.", pytrace=False)


def _global_rng_state() -> tuple[bytes, int]:
    state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002 (it is looked at, not drawn from)
    return state["key"].tobytes(), state["pos"]
