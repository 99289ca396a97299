import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

import ebp.network.network
from ebp import EBPNetwork, GaussianWeights, SoftmaxHead, TernaryWeights
from gpflow_deep_base.seeds import as_seed
from tests.statistical import assert_mean_close


def randomised(network: EBPNetwork, rng: np.random.Generator, scale: float = 0.5) -> EBPNetwork:
    for variable in [*network.h, *network.b]:
        variable.assign(scale * rng.normal(size=variable.shape))
    return network


def test_start_breaks_the_symmetry_of_hidden_neurons_only() -> None:
    deep = EBPNetwork((400, 200, 1), seed=3)
    h = deep.h[0].numpy()
    assert np.max(np.abs(h)) <= np.sqrt(3 / 401)
    assert np.var(h) == pytest.approx(1 / 401, rel=0.02)  # 80,000 draws: standard error 0.003
    assert not np.any(deep.b[0])
    np.testing.assert_array_equal(h, EBPNetwork((400, 200, 1), seed=3).h[0])
    assert np.any(h != EBPNetwork((400, 200, 1), seed=4).h[0])
    assert not np.any(EBPNetwork((400, 1)).h[0])


def test_start_is_scaled_by_the_prior() -> None:
    """<W> starts with variance var0 / K: 1 / (K var0) of h times the square of the slope var0."""
    network = EBPNetwork((300, 100, 1), GaussianWeights(2.0), seed=0)
    W = network.architecture.means(network.h)[0].numpy()
    assert np.var(W) == pytest.approx(4 / 301, rel=0.03)


def test_deterministic_output_is_the_network_of_the_most_probable_weights(rng: np.random.Generator) -> None:
    network = randomised(EBPNetwork((8, 7, 6, 3), TernaryWeights(0.2), head="multiclass", dtype=tf.float64), rng)
    X = rng.normal(size=(20, 8))
    v = X
    for h, b in zip(network.h, network.b, strict=True):
        W = np.where(np.abs(h) > 0.2, np.sign(h), 0.0)
        u = v @ W + b.numpy()
        v = np.where(u >= 0, 1.0, -1.0)
    np.testing.assert_allclose(network.deterministic_scores(X), u / np.sqrt(7), rtol=1e-13)
    np.testing.assert_array_equal(network.predict_deterministic(X), np.argmax(u, axis=1))
    for W, b in network.mode_weights():
        assert set(np.unique(W)) <= {-1, 0, 1}
        assert b.shape == (W.shape[1],)


def test_probabilistic_output_is_the_sign_of_the_mean(rng: np.random.Generator) -> None:
    network = randomised(EBPNetwork((8, 7, 1), dtype=tf.float64), rng)
    X = rng.normal(size=(20, 8))
    mean = network.predict_mean(X)
    assert np.all(np.abs(mean) < 1)
    np.testing.assert_array_equal(network.predict_probabilistic(X), np.where(mean[:, 0] >= 0, 1, -1))
    np.testing.assert_array_equal(network.decide(network.predict_scores(X)), network.predict_probabilistic(X))


@pytest.mark.parametrize("prior", ["binary", "ternary", "real"])
def test_drawn_networks_have_the_probabilistic_output_as_mean(prior: str, rng: np.random.Generator) -> None:
    """4000 outputs of equal posteriors are 4000 draws. With 200 inputs u is normal up to terms of order 1 / 200."""
    network = EBPNetwork((200, 4000), prior, head="multiclass", dtype=tf.float64)
    network.h[0].assign(np.repeat(0.05 * rng.normal(size=(200, 1)), 4000, axis=1))
    network.b[0].assign(np.full(4000, 0.3))
    X = rng.choice([-1.0, 1.0], (4, 200))
    ((W, b),) = network.sample_weights(seed=1)
    draws = np.where(X @ W + b >= 0, 1.0, -1.0).T
    assert_mean_close(draws, network.predict_mean(X)[:, 0], min_detectable=0.1)


def test_votes_of_many_classes_count_classes(rng: np.random.Generator) -> None:
    network = randomised(EBPNetwork((10, 6, 3), head="multiclass"), rng)
    X = rng.normal(size=(7, 10))
    votes = network.vote(X, 5, seed=2)
    np.testing.assert_allclose(votes.sum(axis=1), -1.0)  # one +1 and two -1
    np.testing.assert_allclose((votes + 1) / 2 * 5, np.round((votes + 1) / 2 * 5), atol=1e-12)
    np.testing.assert_array_equal(votes, network.vote(X, 5, seed=2))
    shares = np.zeros((7, 3))
    for i in range(5):
        weights = network.sample_weights(tf.random.fold_in(as_seed(2), i))
        v = X.astype(np.float32).astype(float)
        for W, b in weights:
            u = v @ W.astype(float) + b
            v = np.where(u >= 0, 1.0, -1.0)
        shares[np.arange(7), np.argmax(u, axis=1)] += 0.2
    np.testing.assert_allclose(votes, 2 * shares - 1, atol=1e-12)


def test_sparse_predictions_equal_dense_ones(rng: np.random.Generator) -> None:
    network = randomised(EBPNetwork((30, 7, 3), head="softmax", dtype=tf.float64), rng)
    X = rng.normal(size=(11, 30)) * (rng.random((11, 30)) < 0.1)
    for matrix in (scipy.sparse.csr_matrix(X), scipy.sparse.coo_array(X), scipy.sparse.csc_matrix(X)):
        np.testing.assert_allclose(network.predict_mean(matrix), network.predict_mean(X), rtol=1e-12)
        np.testing.assert_allclose(network.deterministic_scores(matrix), network.deterministic_scores(X), rtol=1e-12)
        np.testing.assert_array_equal(network.vote(matrix, 3), network.vote(X, 3))


@pytest.mark.parametrize("sparse", [False, True])
def test_chunks_change_nothing(sparse: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    network = randomised(EBPNetwork((30, 7, 1), dtype=tf.float64), rng)
    X = rng.normal(size=(50, 30)) * (rng.random((50, 30)) < 0.2)
    X = scipy.sparse.csr_matrix(X) if sparse else X
    whole = network.predict_moments(X), network.deterministic_scores(X)
    monkeypatch.setattr(ebp.network.network, "CHUNK_SIZE", 7 * 30)
    parts = network.predict_moments(X), network.deterministic_scores(X)
    for one, other in zip([*whole[0], whole[1]], [*parts[0], parts[1]], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_log_evidence_is_the_log_probability_of_the_labels(rng: np.random.Generator) -> None:
    network = randomised(EBPNetwork((8, 5, 1), dtype=tf.float64), rng)
    X, y = rng.normal(size=(6, 8)), rng.choice([-1, 1], 6)
    p = (1 + y * network.predict_mean(X)[:, 0]) / 2
    np.testing.assert_allclose(network.log_evidence(X, y), np.log(p), rtol=1e-10)


def test_entropy_falls_with_what_is_known() -> None:
    network = EBPNetwork((8, 1))
    assert network.entropy() == pytest.approx([np.log(2)])
    network.h[0].assign(np.full((8, 1), 20.0))
    assert network.entropy() == pytest.approx([0.0], abs=1e-6)


def test_copies_and_pickles(rng: np.random.Generator) -> None:
    network = randomised(EBPNetwork((8, 5, 1), ["ternary", "real"]), rng)
    network.step.assign(7)
    X = rng.normal(size=(3, 8))
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        np.testing.assert_array_equal(twin.predict_mean(X), network.predict_mean(X))
        assert int(twin.step) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((5,),), "at least two positive whole numbers"),
        ((5,), "at least two positive whole numbers"),
        (((5, 0, 1),), "sizes of layers must be a whole number of at least 1, got 0"),
        (((5, 2.5, 1),), "sizes of layers must be a whole number of at least 1, got 2.5"),
        (((5, 4, 1), ["binary"]), "one for each of the 2 layers, got 1"),
        (((5, 1), "octal"), "weights must be one of 'binary'"),
        (((5, 1), TernaryWeights), "weights must be one of 'binary'"),
    ],
)
def test_impossible_networks(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EBPNetwork(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "binary"}, "head='binary' does not fit 3 outputs"),
        ({"head": "logistic"}, "head must be one of 'binary', 'multiclass'"),
        ({"head": SoftmaxHead}, "head must be one of 'binary', 'multiclass'"),
        ({"head": "softmax", "covariance": "low-rank"}, "'diagonal' or 'full'"),
        ({"head": "softmax", "dtype": tf.float16}, "dtype must be float32 or float64, got float16"),
        ({"head": "softmax", "seed": -1}, "seed must be from 0"),
        ({"head": "softmax", "seed": tf.zeros([3], tf.int32)}, r"int32 of shape \[2\], got int32 of shape"),
    ],
)
def test_impossible_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EBPNetwork((5, 3), **options)


def test_a_list_of_one_output_needs_a_binary_head() -> None:
    with pytest.raises(ValueError, match="does not fit 1 outputs"):
        EBPNetwork((5, 1), head="multiclass")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 4)), r"shape \[N, 5\], got \[3, 4\]"),
        (np.zeros(5), r"shape \[N, 5\], got \[5\]"),
        (np.zeros((0, 5)), "at least one row"),
        (np.array([["a"] * 5]), "must be numbers"),
        (np.array([[0, 1, np.nan, 0, 1], [0, np.inf, 0, 0, 0]]), "in 2 entries, the first in column 1"),
        (scipy.sparse.csr_matrix(([np.nan], ([0], [3])), shape=(2, 5)), "in 1 entries, the first in column 3"),
    ],
)
def test_impossible_inputs(X: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EBPNetwork((5, 1)).predict_mean(X)


def test_votes_are_of_networks_and_of_rows_of_any_kind() -> None:
    network = EBPNetwork((5, 1))
    np.testing.assert_array_equal(network.vote([[0.0] * 5], 2), network.vote(np.zeros((1, 5)), 2))
    for k in (0, 2.5):
        with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
            network.vote(np.zeros((1, 5)), k)  # type: ignore[arg-type]


def test_evidence_needs_a_target_for_each_row() -> None:
    """One target must not stand for all rows."""
    with pytest.raises(ValueError, match="as many rows, got 3 and 1"):
        EBPNetwork((5, 1)).log_evidence(np.zeros((3, 5)), [1])
