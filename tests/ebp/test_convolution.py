"""Layers of shared weights: the update by loops over positions, adjoints, votes, and the packed file."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf
from scipy import stats
from sklearn.datasets import load_digits

import ebp
from ebp import Convolution, EBPNetwork, PackedNetwork, export_checked
from ebp.network.convolution import Convolved, flat_sizes, pooled, unfolded
from ebp.network.forward import folded, mean_pooled, mean_unpooled, unfolded_rows
from ebp.network.update import bayes_increments
from ebp.packed.export import packed as packed_network
from ebp.packed.signs import HAS_NUMBA

IMAGE, LAYERS = (6, 7, 2), (Convolution(3, 3, 1), Convolution(4, 2, 1), 5, 3)
POOLED = ((8, 8, 1), Convolution(3, 3, 2), Convolution(4, 2, 2), 3)


def randomised(layers: tuple, rng: np.random.Generator, dtype: str = "float64") -> EBPNetwork:
    network = EBPNetwork(layers, head="multiclass", dtype=dtype)
    for variable in [*network.h, *network.b]:
        variable.assign(0.5 * rng.normal(size=variable.shape))
    return network


def units_of(shared: Convolved | None, n_in: int, n_out: int) -> tuple[list[tuple[int, list[int]]], np.ndarray]:
    """Of each unit its filter and the places of its inputs; and which input of the next layer it is a part of."""
    if shared is None:
        return [(k, list(range(n_in))) for k in range(n_out)], np.arange(n_out)
    units, owner = [], []
    for row, column, k in np.ndindex(*shared.positions, shared.filters):
        corners = [(row + i) * shared.width + column + j for i, j in np.ndindex(shared.size, shared.size)]
        units.append(
            (k, [corner * shared.channels + channel for corner in corners for channel in range(shared.channels)])
        )
        owner.append((row // shared.pool * shared.image[1] + column // shared.pool) * shared.filters + k)
    return units, np.array(owner)


def update_by_loops(network: EBPNetwork, x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """New h and b after one example, undamped: a fully connected layer for each unit, whose weights are tied.

    Inputs, outputs and weights are looked up by their places in the images, one at a time; Eq. (4.2) as in the paper,
    but for <v^2> of means of signs.
    """
    M, b = [np.tanh(h.numpy()) for h in network.h], [part.numpy() for part in network.b]
    v: Any = x
    v2, record = x**2, []
    for M_l, b_l, shared in zip(M, b, network.architecture.convolutions, strict=True):
        K, (units, owner) = len(M_l) + 1, units_of(shared, *M_l.shape)
        mu = np.array([sum(M_l[n, k] * v[p] for n, p in enumerate(places)) + b_l[k] for k, places in units])
        sigma2 = [sum(v2[p] - (M_l[n, k] * v[p]) ** 2 for n, p in enumerate(places)) + 1.0 for k, places in units]
        mu, sigma = mu / math.sqrt(K), np.sqrt(np.array(sigma2) / K)
        record.append((v, units, mu, sigma, owner, K))
        mean, size = 2 * stats.norm.cdf(mu / sigma) - 1, np.bincount(owner)
        v = np.bincount(owner, mean) / size
        v2 = v**2 + np.bincount(owner, 1 - mean**2) / size**2
    mu, sigma = record[-1][2:4]
    delta = y * stats.norm.pdf(0, mu, sigma) / stats.norm.cdf(y * mu / sigma)
    new_h, new_b = [h.numpy().copy() for h in network.h], [part.copy() for part in b]
    for layer in reversed(range(len(M))):
        inputs, units, _, _, _, K = record[layer]
        by_input = np.zeros(len(inputs))
        for (k, places), d in zip(units, delta, strict=True):
            new_b[layer][k] += d / math.sqrt(K)
            for n, p in enumerate(places):
                new_h[layer][n, k] += inputs[p] * d / math.sqrt(K)
                by_input[p] += M[layer][n, k] * d / math.sqrt(K)
        if layer:
            _, _, mu, sigma, owner, _ = record[layer - 1]
            delta = 2 * stats.norm.pdf(0, mu, sigma) * (by_input / np.bincount(owner))[owner]
    return new_h, new_b


@pytest.mark.parametrize("layers", [(IMAGE, *LAYERS), POOLED])
def test_update_is_that_of_tied_weights(layers: tuple, rng: np.random.Generator) -> None:
    network = randomised(layers, rng)
    x, y = rng.normal(size=network.layer_sizes[0]), np.array([-1.0, 1.0, -1.0])
    expected_h, expected_b = update_by_loops(network, x, y)
    change = bayes_increments(
        network.architecture,
        network.h,
        network.architecture.means(network.h),
        network.b,
        tf.constant(x[None]),
        tf.constant(y[None]),
    )
    for layer, (h, b) in enumerate(zip(network.h, network.b, strict=True)):
        delta = change.scaled_deltas[layer]
        np.testing.assert_allclose(
            h + tf.matmul(change.layers[layer].v, delta, transpose_a=True), expected_h[layer], rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(b + tf.reduce_sum(delta, 0), expected_b[layer], rtol=1e-9, atol=1e-12)
        # what is learned is that, by a factor that keeps it from overshooting
        factor = np.vdot(change.h[layer], expected_h[layer] - h) / np.sum(np.square(expected_h[layer] - h))
        assert 0 < factor <= 1 + 1e-9
        np.testing.assert_allclose(change.h[layer], factor * (expected_h[layer] - h), rtol=1e-8, atol=1e-12)


def test_adjoints(rng: np.random.Generator) -> None:
    shared = Convolved(6, 10, 3, 3, 4, 2)
    x, rows = rng.normal(size=(2, shared.num_inputs)), rng.normal(size=(2 * shared.num_positions, shared.fan_in))
    np.testing.assert_array_equal(unfolded_rows(tf.constant(x), shared), unfolded(x, shared))
    assert np.vdot(folded(tf.constant(rows), shared), x) == pytest.approx(np.vdot(rows, unfolded(x, shared)), rel=1e-10)
    u, images = rng.normal(size=(2 * shared.num_positions, 4)), rng.normal(size=(2, shared.num_outputs))
    np.testing.assert_allclose(4 * mean_pooled(tf.constant(u), shared), pooled(u, shared), rtol=1e-12)
    back = mean_unpooled(tf.constant(images), shared)
    assert np.vdot(back, u) == pytest.approx(np.vdot(images, pooled(u, shared) / 4), rel=1e-10)


def test_digits_are_learned() -> None:
    """Trained by padded batches."""
    X, labels = load_digits(return_X_y=True)
    X, (Y, _) = ebp.InputCoding.fit("common", X[:1203]).transform(X), ebp.encode_labels(labels)
    network = EBPNetwork(((8, 8, 1), Convolution(16, 3, 2), 10), head="multiclass", seed=1)
    passes = ebp.fit(network, X[:1203], Y[:1203], epochs=3, batch_size=10)
    assert np.mean(network.predict_probabilistic(X[1203:]) != labels[1203:]) < 0.2  # chance is 0.9
    assert network.entropy()[0] < 0.9 * math.log(2)
    assert passes[0].num_steps == 121


@pytest.mark.filterwarnings("ignore:the file has:UserWarning")  # these networks have learned nothing
@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.skipif(not HAS_NUMBA, reason=""))])
@pytest.mark.parametrize("layers", [(IMAGE, *LAYERS), POOLED])
@pytest.mark.parametrize("num_votes", [0, 3])
def test_packed_file(layers: tuple, num_votes: int, engine: str, tmp_path: Path, rng: np.random.Generator) -> None:
    network = randomised(layers, rng, "float32")
    X = rng.poisson(2.0, size=(9, network.layer_sizes[0])).astype(float)
    coding = ebp.InputCoding.fit("common", X)
    coded = coding.transform(X)
    done = export_checked(network, tmp_path / "net", coded, coding=coding, classes=list("abc"), num_votes=num_votes)
    assert done.num_rows == 9
    packed = PackedNetwork.load(tmp_path / "net", engine)
    assert packed.layer_sizes == network.layer_sizes
    scores = network.vote(coded, 3, 0) if num_votes else network.deterministic_scores(coded)
    np.testing.assert_array_equal(packed.predict(X), np.array(list("abc"))[scores.argmax(axis=1)])
    assert packed.predict(X[:0]).shape == (0,)
    with pytest.raises(ValueError, match="images and cannot be sparse"):
        packed.predict(scipy.sparse.csr_matrix(X))
    with pytest.raises(ValueError, match="cannot be written as C"):
        ebp.export_c(packed)


def test_chunks_of_images_change_nothing(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    network = randomised(POOLED, rng, "float32")
    X = rng.integers(-3, 4, size=(7, 64)).astype(float)
    packed = packed_network(network, fraction_bits=0)
    expected = packed.scores(X), network.predict_scores(X), network.deterministic_scores(X)
    monkeypatch.setattr("ebp.packed.signs._BLOCK_BYTES", 4 * 9 * 36 * 2)
    monkeypatch.setattr("ebp.network.network.CHUNK_SIZE", 9 * 36 * 2)
    np.testing.assert_array_equal(packed.scores(X), expected[0])
    np.testing.assert_allclose(network.predict_scores(X), expected[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(network.deterministic_scores(X), expected[2])


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((64, Convolution(2), 3), "needs an image before it"),
        (((8, 8, 1), 5, Convolution(2), 3), "needs an image before it"),
        (((8, 8), Convolution(2), 3), r"such as \(28, 28, 1\), got \(8, 8\)"),
        (((8, 8, 1), Convolution(2, 9), 3), "have 0 x 0 positions"),
        (((8, 8, 1), Convolution(2, 4, 2), 3), "have 5 x 5 positions, which must be multiples of pool=2"),
        (((8, 8, 1), Convolution(2)), "the last layer cannot be a Convolution"),
    ],
)
def test_impossible_layers(layers: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EBPNetwork(layers, head="multiclass")


def test_impossible_convolutions() -> None:
    with pytest.raises(ValueError, match=r"pool of a Convolution must be one of 1, 2, 4, got 3"):
        Convolution(4, 5, 3)
    with pytest.raises(ValueError, match=r"filters of a Convolution must be a whole number of at least 1, got 0"):
        Convolution(0)
    with pytest.raises(ValueError, match="covariance must be 'diagonal' with convolutions"):
        EBPNetwork(POOLED, head="multiclass", covariance="full")
    network = EBPNetwork(POOLED, head="multiclass")
    with pytest.raises(ValueError, match="images and cannot be sparse"):
        ebp.prepare(network, scipy.sparse.csr_matrix(np.eye(64)), 2.0 * np.eye(3)[np.arange(64) % 3] - 1.0)
    assert flat_sizes(POOLED)[0] == (64, 27, 4, 3)
