"""AIS by kernels of Numba: the numbers of the graph, of which only the order of sums differs."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.estimates import annealing, sparse_rows
from rbm_tracking.estimates.ais import ais, burn_in, linear_schedule, reverse_ais
from rbm_tracking.model.random import GENERATORS, key_at, uniform
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Spin

pytest.importorskip("numba")

N_V, N_H = 40, 130  # more hidden units than one product of factors holds


@pytest.fixture
def rbm(rng: np.random.Generator) -> RBM:
    parts = 0.3 * rng.normal(size=(N_H, N_V)), rng.normal(size=N_V) - 2.0, rng.normal(size=N_H) - 1.0
    return RBM(*(tf.constant(part, tf.float32) for part in parts))


@pytest.fixture
def few_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for small models, too."""
    monkeypatch.setattr(sparse_rows, "_LEAST_WEIGHTS", 1)


@pytest.mark.usefixtures("few_weights")
@pytest.mark.parametrize("generator", GENERATORS)
def test_numbers_are_those_of_the_graph(rbm: RBM, generator: str, seed: tf.Tensor, rng: np.random.Generator) -> None:
    """Of 10^4 draws each differs with a probability of about 1e-7; log weights are float32 sums of 130 terms."""
    base_b, betas = rng.normal(size=N_V) - 2.0, linear_schedule(5)
    samples = (rng.random((7, N_V)) < 0.2).astype(np.float32)

    def results() -> list[np.ndarray]:
        options = {"seed": seed, "generator": generator, "jit_compile": False}
        up = ais(rbm, betas, num_chains=7, base_b=base_b, **options)
        down = reverse_ais(rbm, betas, samples, **options)
        return [up.log_weights, up.v, down.log_weights, down.v, burn_in(rbm, samples, 2, **options)]

    found = results()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(annealing, "is_sparse", lambda *_: False)
        expected = results()
    for part, like in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, like, rtol=1e-4)


@pytest.mark.usefixtures("few_weights")
def test_where_kernels_pay(rbm: RBM, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = ["GPU"]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    assert not sparse_rows.is_sparse(rbm, np.full(N_V, 0.1))
    gpus.clear()
    assert sparse_rows.is_sparse(rbm, np.full(N_V, 0.1))
    assert not sparse_rows.is_sparse(rbm, np.full(N_V, 0.4))
    assert not sparse_rows.is_sparse(rbm._replace(visible=Spin()), np.full(N_V, 0.1))
    assert not sparse_rows.is_sparse(RBM(*(tf.cast(part, tf.float64) for part in rbm[:3])), np.full(N_V, 0.1))
    assert rbm.visible == Bernoulli()
    monkeypatch.setattr(sparse_rows, "HAS_NUMBA", False)
    assert not sparse_rows.is_sparse(rbm, np.full(N_V, 0.1))


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("site", [0, 1 << 20])
def test_noise_is_that_of_the_graph(generator: str, site: int, seed: tf.Tensor) -> None:
    key = key_at(seed, tf.constant(7), site)
    own = sparse_rows.key_at(seed.numpy(), 7, site)
    np.testing.assert_array_equal(own, key.numpy().view(np.uint32))
    np.testing.assert_array_equal(
        sparse_rows.uniform(own, (5, 33), generator), uniform(key, (5, 33), generator=generator)
    )
