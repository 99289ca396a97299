"""rbm_tracking.track.partition_tracker: streams of parameters and samples of several families; the graph version;
errors."""

import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import ArrayLike
from scipy.special import expit, logsumexp, softmax

from rbm_tracking.model import rbm
from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.visible import Gaussian, Spin, Visible
from rbm_tracking.track import filtering, tempering
from rbm_tracking.track.evidence import Evidence, judge
from rbm_tracking.track.partition_tracker import BERNOULLI, Family, PartitionTracker, Tracked, rbm_family
from rbm_tracking.track.updates.learning import reuse_bias
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings, to_rbm

BETA = linear_ladder(4)


def samples_of(rng: np.random.Generator, parameters: oracles.Parameters, count: int = 20) -> np.ndarray:
    return np.stack([oracles.sample_visible(rng, parameters, count, float(beta)) for beta in BETA])


def moved(rng: np.random.Generator, parameters: oracles.Parameters, size: float = 0.01) -> oracles.Parameters:
    return oracles.Parameters(*(value + size * rng.normal(size=value.shape) for value in parameters))


def test_log_z_of_a_drifting_model_is_tracked(rng: np.random.Generator) -> None:
    """Exact samples, parameters that do not depend on them: no bias, and better than the bridges of one time."""
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    partition = PartitionTracker(BETA, bias_variance=0.0, initial_bias_variance=0.0)
    errors, scores, first_std = [], [], np.inf
    for t in range(150):
        tracked = partition.observe(parameters, samples_of(rng, parameters))
        errors.append(tracked.log_z - oracles.log_z(parameters))
        scores.append(errors[-1] / tracked.log_z_std)
        first_std = min(first_std, tracked.log_z_std) if t < 3 else first_std
        parameters = moved(rng, parameters)
    assert tracked.flags == []
    assert partition.log_z == tracked.log_z
    assert tracked.log_z_std == partition.log_z_std < 0.5 * first_std
    assert tracked.half_width == pytest.approx(1.96 * tracked.log_z_std)
    assert np.abs(errors[20:]).max() < 0.5
    assert np.mean(np.abs(scores[20:]) < 1.96) > 0.8
    verdict = judge(Evidence(partition.tracking))
    assert (verdict.low, verdict.high) == pytest.approx(
        (tracked.log_z - tracked.half_width, tracked.log_z + tracked.half_width)
    )


def graph_version(beta: np.ndarray) -> Any:
    """The tracker made of the functions that run in a graph, in one compiled function."""
    betas = tf.constant(beta)

    def log_q(model: rbm.RBM, v: tf.Tensor, at: tf.Tensor) -> tf.Tensor:
        return rbm.log_prob_unnormalised(model, v, at)

    @tf.function(autograph=False)
    def step(
        state: filtering.FilterState,
        model: rbm.RBM,
        v: tf.Tensor,
        old_v: tf.Tensor,
        old_log_q: tf.Tensor,
        known: tf.Tensor,
        drift: tf.Tensor,
    ) -> tuple[filtering.FilterState, tf.Tensor]:
        # log q~ at the samples' own temperatures and at those of their neighbours
        own = log_q(model, v, betas[:, None])
        d_upper = log_q(model, v[:-1], betas[1:, None]) - own[:-1]
        d_lower = own[1:] - log_q(model, v[1:], betas[:-1, None])
        # The prediction by the last samples, then the update by the bridges of these
        change = filtering.log_mean_exp(log_q(model, old_v, betas[:, None]) - old_log_q)
        first = tf.one_hot(0, len(beta), dtype=tf.float64)
        unbiased = change._replace(value=change.value - known * first)
        factor = filtering.inflation(state.health)
        state = filtering.predict(state, unbiased, bias_variance=drift, factor=factor)
        state = filtering.anchor(state, rbm.log_z_independent(model.b, model.c.shape[0]))
        predicted = state.mean[1:-1] - state.mean[:-2]
        acceptance = tf.reduce_mean(tf.exp(tf.minimum(tempering.swap_log_ratio(d_upper, d_lower), 0.0)), axis=1)
        return filtering.update(state, filtering.bridge(d_upper, d_lower, predicted), acceptance), own

    return step


def test_the_numbers_are_those_of_the_graph_version(rng: np.random.Generator) -> None:
    """With the closed form of the bias, 1e-10 over 40 updates of a model of 12 x 5 units."""
    parameters, rate = oracles.random_rbm(rng, 5, 12, 1.0), 0.02
    partition, step = PartitionTracker(BETA), graph_version(BETA)
    v = samples_of(rng, parameters)
    partition.observe(parameters, v, learning_rate=rate)
    first = partition.state
    assert first is not None
    state = tf.nest.map_structure(tf.constant, first)
    own = tf.stack(
        [rbm.log_prob_unnormalised(to_rbm(parameters), tf.constant(v[i]), beta) for i, beta in enumerate(BETA)]
    )
    # The closed form of the bias by the samples before each step, then one update of both
    for _ in range(40):
        hidden = tf.sigmoid(rbm.activations(to_rbm(parameters), tf.constant(v[0])))
        zeros = tf.zeros([12], tf.float64), tf.zeros([5], tf.float64)
        known = reuse_bias(tf.constant(v[0]), hidden, tf.constant(rate, tf.float64), zeros)
        parameters = moved(rng, parameters)
        old_v, v = v, samples_of(rng, parameters)
        drift = tf.constant(1e-3 * rate, tf.float64)
        state, own = step(state, to_rbm(parameters), tf.constant(v), tf.constant(old_v), own, known, drift)
        tracked = partition.observe(parameters, v, learning_rate=rate)
        bias = state.mean[-1] + known
        assert tracked.log_z == pytest.approx(float(state.mean[0]), abs=1e-10, rel=0)
        assert tracked.log_z_std == pytest.approx(float(filtering.log_z_std(state)), abs=1e-10, rel=0)
        assert tracked.half_width == pytest.approx(float(filtering.half_width(state, bias)), abs=1e-9, rel=0)


def test_an_observation_takes_less_than_a_millisecond() -> None:
    """112 x 12 units, 10 x 20 samples: 0.5 ms of CPU time; ten times 1 ms is the limit of this test."""
    rng = np.random.default_rng(0)
    parameters = oracles.random_rbm(rng, 12, 112, 0.1)
    v = (rng.random((10, 20, 112)) < 0.1).astype(np.uint8)
    partition = PartitionTracker(linear_ladder(10))
    seconds = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(10):
            partition.observe(parameters, v, learning_rate=0.01)
        seconds.append((time.process_time() - start) / 10)
    assert min(seconds) < 0.01


def test_it_runs_where_there_is_no_tensorflow() -> None:
    """An import of it is an error here, and so is that of GPflow."""
    program = """
import sys
sys.modules.update(dict.fromkeys(("tensorflow", "gpflow", "keras", "torch")))
import numpy as np
from rbm_tracking import PartitionTracker, evidence, linear_ladder
tracker = PartitionTracker(linear_ladder(3))
v = np.zeros((3, 4, 5), np.uint8)
for _ in range(3):
    tracker.observe((np.zeros((2, 5)), np.zeros(5), np.zeros(2)), v, learning_rate=0.1)
print(f"{evidence.judge(evidence.Evidence(tracker.tracking)).log_z:.6f}")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(7 * np.log(2.0), abs=1e-5)


# A loop of its own


def test_a_trainer_in_numpy_is_tracked() -> None:
    """PCD with tempered chains: at every tenth update the interval holds the exact log Z, nearly always."""
    rng = np.random.default_rng(2)
    data = (rng.integers(0, 2, (2, 10))[rng.integers(0, 2, 500)] ^ (rng.random((500, 10)) < 0.1)).astype(float)
    rate, count = 0.02, 20
    parameters = oracles.Parameters(0.01 * rng.normal(size=(4, 10)), np.zeros(10), np.zeros(4))
    beta = linear_ladder(8)
    v = rng.integers(0, 2, (8, count, 10)).astype(float)
    partition, inside = PartitionTracker(beta), []
    for t in range(600):
        # A round of tempered chains, and what the tracker makes of them
        W, b, c = parameters
        h = rng.random((8, count, 4)) < expit(beta[:, None, None] * (v @ W.T + c))
        v = (rng.random(v.shape) < expit(beta[:, None, None] * (h @ W) + b)).astype(float)
        tracked = partition.observe(parameters, v, learning_rate=rate)
        if t > 50 and t % 10 == 0:
            inside.append(abs(tracked.log_z - oracles.log_z(parameters)) <= tracked.half_width)
        # A step of gradient ascent by the chains at beta = 1
        batch = data[rng.integers(0, 500, 50)]
        h_data, h_model = expit(batch @ W.T + c), expit(v[0] @ W.T + c)
        parameters = oracles.Parameters(
            W + rate * (h_data.T @ batch / 50 - h_model.T @ v[0] / count),
            b + rate * (batch.mean(axis=0) - v[0].mean(axis=0)),
            c + rate * (h_data.mean(axis=0) - h_model.mean(axis=0)),
        )
        assert "samples" not in tracked.flags
    assert np.mean(inside) > 0.9


# Other strides and families


def test_a_stride_costs_variance_that_grows_with_its_square(rng: np.random.Generator) -> None:
    """A steady drift in one direction: log weights over k updates are k times those of one."""
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    direction = moved(rng, oracles.Parameters(*(0.0 * value for value in parameters)), 0.002)
    v = samples_of(rng, parameters, 400)
    variances = []
    for stride in (1, 4):
        at = oracles.Parameters(*(p + stride * d for p, d in zip(parameters, direction, strict=True)))
        own = BERNOULLI.log_q(parameters, v, BETA[None])[0]
        variances.append(np.var(BERNOULLI.log_q(at, v, BETA[None])[0][0] - own[0]))
    assert variances[1] / variances[0] == pytest.approx(16, rel=0.05)


@pytest.mark.parametrize("stride", [1, 5])
def test_samples_at_any_stride(stride: int, rng: np.random.Generator) -> None:
    """log Z of every update, with samples at every fifth; between them by the weights of the last samples."""
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    partition = PartitionTracker(BETA, bias_variance=0.0, initial_bias_variance=0.0)
    errors = []
    for t in range(100):
        tracked = partition.observe(parameters, samples_of(rng, parameters) if t % stride == 0 else None)
        errors.append(tracked.log_z - oracles.log_z(parameters))
        assert partition.log_z == tracked.log_z
        parameters = moved(rng, parameters)
    assert np.abs(errors[20:]).max() < 0.6


def test_looking_between_samples_changes_nothing(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    v, later = samples_of(rng, parameters), moved(rng, parameters)
    other_v = samples_of(rng, later)
    found = []
    for looks in (0, 3):
        partition = PartitionTracker(BETA)
        partition.observe(parameters, v)
        for _ in range(looks):
            partition.observe(moved(np.random.default_rng(5), parameters))
        found.append(partition.observe(later, other_v))
    assert found[0] == found[1]


def test_samples_whose_weights_degenerate_are_flagged(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    partition = PartitionTracker(BETA)
    partition.observe(parameters, samples_of(rng, parameters))
    far = oracles.Parameters(parameters.W, parameters.b + 40.0 * rng.normal(size=5), parameters.c)
    assert "ess" in partition.observe(far).flags


def states_of(groups: int, levels: int) -> np.ndarray:
    """All one-hot states of `groups` units of `levels` levels, [levels^groups, groups * levels]."""
    index = np.stack(np.meshgrid(*[range(levels)] * groups, indexing="ij"), -1).reshape(-1, groups)
    return np.eye(levels)[index].reshape(len(index), -1)


def tempered(states: np.ndarray, levels: int | None) -> tuple[Family, Any, Any]:
    """The family beta (h'Wv + c'h) + b'v over enumerated visible states; its log Z; samples of it."""

    def log_q(parameters: oracles.Parameters, v: np.ndarray, betas: np.ndarray) -> np.ndarray:
        W, b, c = parameters
        return np.logaddexp(0, betas[:, :, None, None] * (v @ W.T + c)).sum(-1) + v @ b

    def log_z(parameters: oracles.Parameters, beta: float = 1.0) -> float:
        return float(logsumexp(log_q(parameters, states[None], np.array([[beta]]))))

    def draw(rng: np.random.Generator, parameters: oracles.Parameters, count: int) -> np.ndarray:
        each = [softmax(log_q(parameters, states[None], np.array([[beta]]))[0, 0]) for beta in BETA]
        return np.stack([states[rng.choice(len(states), count, p=p)] for p in each])

    return Family(log_q, lambda parameters: log_z(parameters, 0.0)), log_z, draw


@pytest.mark.parametrize("units", ["softmax", "spins"])
def test_other_units_are_tracked(units: str, rng: np.random.Generator) -> None:
    """Groups of three levels, and visible units of -1 and 1: the family says what log q~ is, and nothing else."""
    states = states_of(2, 3) if units == "softmax" else 2.0 * oracles.binary_vectors(6) - 1.0
    family, log_z, draw = tempered(states, 3)
    parameters = oracles.random_rbm(rng, 3, 6, 1.0)
    partition = PartitionTracker(BETA, family=family, bias_variance=0.0, initial_bias_variance=0.0)
    errors = []
    for _ in range(60):
        tracked = partition.observe(parameters, draw(rng, parameters, 30))
        errors.append(tracked.log_z - log_z(parameters))
        parameters = moved(rng, parameters)
    assert np.abs(errors[20:]).max() < 0.5
    assert tracked.flags == []


def test_real_valued_units_are_tracked(rng: np.random.Generator) -> None:
    """Gaussian visible units of variance 1: v given h is N(b + beta W'h, 1), and log Z a sum over the states of h."""
    h = oracles.binary_vectors(3).astype(float)

    def log_joint(parameters: oracles.Parameters, beta: float) -> np.ndarray:
        W, b, c = parameters
        mean = b + beta * (h @ W)
        return beta * (h @ c) + 0.5 * (mean**2).sum(-1) - 0.5 * b @ b + 0.5 * len(b) * np.log(2 * np.pi)

    def log_q(parameters: oracles.Parameters, v: np.ndarray, betas: np.ndarray) -> np.ndarray:
        W, b, c = parameters
        return np.logaddexp(0, betas[:, :, None, None] * (v @ W.T + c)).sum(-1) - 0.5 * ((v - b) ** 2).sum(-1)

    family = Family(log_q, lambda parameters: float(logsumexp(log_joint(parameters, 0.0))))
    parameters = oracles.random_rbm(rng, 3, 4, 0.5)
    partition = PartitionTracker(BETA, family=family, bias_variance=0.0, initial_bias_variance=0.0)
    errors = []
    for _ in range(60):
        # Exact samples: a state of h by its weight, then v given h
        W, b, _ = parameters
        v = []
        for beta in BETA:
            which = h[rng.choice(len(h), 40, p=softmax(log_joint(parameters, beta)))]
            v.append(b + beta * (which @ W) + rng.normal(size=(40, 4)))
        tracked = partition.observe(parameters, np.stack(v))
        errors.append(tracked.log_z - logsumexp(log_joint(parameters, 1.0)))
        parameters = moved(rng, parameters)
    assert np.abs(errors[20:]).max() < 0.6


def test_the_ladder_may_move(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    partition = PartitionTracker(BETA, bias_variance=0.0, initial_bias_variance=0.0)
    for middle in np.linspace(0.66, 0.5, 30):
        beta = np.array([1.0, middle, 0.3, 0.0])
        v = np.stack([oracles.sample_visible(rng, parameters, 50, float(b)) for b in beta])
        tracked = partition.observe(parameters, v, beta=beta)
    assert abs(tracked.log_z - oracles.log_z(parameters)) < 5 * tracked.log_z_std
    assert partition.state is not None
    for i, b in enumerate(beta):
        assert float(partition.state.mean[i]) == pytest.approx(oracles.log_z(parameters, float(b)), abs=0.5)


@pytest.mark.parametrize("mean", [0.1, 0.9])
def test_samples_of_another_model_are_flagged(mean: float, rng: np.random.Generator) -> None:
    """Columns that are 1 too often at each temperature; the flag stays away from exact samples of the same model."""
    parameters = oracles.random_rbm(rng, 12, 112, 0.3)
    beta = linear_ladder(10)
    foreign = PartitionTracker(beta)
    for _ in range(20):
        tracked = foreign.observe(parameters, (rng.random((10, 20, 112)) < mean).astype(float))
    assert "samples" in tracked.flags
    assert not judge(Evidence(foreign.tracking)).is_trusted


@pytest.mark.parametrize(("weights", "power"), [(2.0, 1.0), (0.0, 1.0), (1.0, 0.0), (1.0, 2.0)])
def test_samples_of_other_weights_or_temperatures_are_flagged(
    weights: float, power: float, rng: np.random.Generator
) -> None:
    """Twice the weights, none, beta = 1 at all temperatures, or a ladder that is too hot between its ends:
    the energy says it where the means hardly do."""
    parameters = oracles.random_rbm(np.random.default_rng(0), 5, 8, 1.5)
    sampled = parameters._replace(W=weights * parameters.W)
    partition = PartitionTracker(BETA)
    for _ in range(16):
        v = np.stack([oracles.sample_visible(rng, sampled, 50, float(beta) ** power) for beta in BETA])
        tracked = partition.observe(parameters, v)
    assert "samples" in tracked.flags


@pytest.mark.parametrize("num_particles", [5, 40])
@pytest.mark.parametrize(("scale", "is_foreign"), [(0.8, True), (1.0, False), (1.2, True)])
def test_ladders_that_are_too_hot_or_too_cold_all_over_are_flagged(
    num_particles: int, scale: float, is_foreign: bool, rng: np.random.Generator
) -> None:
    """Of which each observation says next to nothing, but with the same sign in all of them."""
    parameters = oracles.random_rbm(np.random.default_rng(2), 4, 8, 1.5)
    states = oracles.binary_vectors(8).astype(float)
    log_q = BERNOULLI.log_q(parameters, states[None], scale * BETA[:, None])[:, 0]
    partition = PartitionTracker(BETA)
    for _ in range(150):
        v = [states[rng.choice(len(states), num_particles, p=softmax(values))] for values in log_q]
        tracked = partition.observe(parameters, np.stack(v))
    assert ("samples" in tracked.flags) == is_foreign


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 0, 2, 3]])
def test_samples_of_exchanged_temperatures_are_flagged_in_any_family(
    order: list[int], rng: np.random.Generator
) -> None:
    """By how far apart they are."""
    family, _, draw = tempered(2.0 * oracles.binary_vectors(6) - 1.0, None)
    parameters = oracles.random_rbm(np.random.default_rng(1), 3, 6, 3.0)
    partition, foreign = PartitionTracker(BETA, family=family), PartitionTracker(BETA, family=family)
    for _ in range(31):
        v = draw(rng, parameters, 30)
        is_right = partition.observe(parameters, v).flags == []
        tracked = foreign.observe(parameters, v[order])
    assert is_right
    assert "samples" in tracked.flags


def test_samples_that_stand_still_are_flagged(rng: np.random.Generator) -> None:
    """Samples of the first model, given again and again while the parameters move on; new ones clear the flag."""
    for _ in range(5):
        parameters = oracles.random_rbm(rng, 5, 10, 1.0)
        v = samples_of(rng, parameters)
        partition = PartitionTracker(BETA)
        for _ in range(12):
            tracked = partition.observe(parameters, v)
            parameters = moved(rng, parameters, 1e-4)
        assert "samples" in tracked.flags
        for _ in range(21):
            tracked = partition.observe(parameters, samples_of(rng, parameters))
        assert "samples" not in tracked.flags


def test_samples_of_the_model_are_not_flagged(rng: np.random.Generator) -> None:
    """Exact samples of 200 random models with rare and with saturated bits, 2 to 30 particles: no flag."""
    for _ in range(200):
        parameters = oracles.random_rbm(rng, 3, 8, 2.0)
        parameters = parameters._replace(b=parameters.b + rng.choice([-6.0, 0.0, 4.0], 8))
        partition = PartitionTracker(BETA)
        tracked = partition.observe(parameters, samples_of(rng, parameters, int(rng.integers(2, 30))))
        assert "samples" not in tracked.flags


@pytest.mark.parametrize("units", ["spin", "gaussian", "softmax"])
def test_foreign_samples_of_each_family_are_flagged(units: str, rng: np.random.Generator) -> None:
    """Other visible biases, where the mean of v is known exactly, and right ones."""
    families: dict[str, Visible] = {
        "spin": Spin(),
        "gaussian": Gaussian(np.full(60, 2.0)),
        "softmax": Softmax(60, tuple((i, i + 1, i + 2) for i in range(0, 60, 3))),
    }
    visible = families[units]
    parameters = np.zeros((2, 60)), rng.normal(size=60), np.zeros(2)
    for shift, is_foreign in ((0.0, False), (1.0, True)):
        partition = PartitionTracker(BETA, family=rbm_family(visible))
        for _ in range(11):
            noise = rng.random((4, 20, visible.num_noise(60)))
            wrong = shift * (np.arange(60) % 3 == 0)
            v = visible.draw(np.broadcast_to(parameters[1] + wrong, (4, 20, 60)), noise)
            tracked = partition.observe(parameters, v)
        assert ("samples" in tracked.flags) == is_foreign


def test_samples_that_are_all_equal_leave_log_z_finite() -> None:
    """Rare bits: every sample is a row of zeros, at all temperatures and again and again."""
    parameters = oracles.Parameters(np.full((2, 4), 0.1), np.full(4, -9.0), np.full(2, 0.1))
    partition = PartitionTracker(BETA)
    for _ in range(20):
        tracked: Tracked = partition.observe(parameters, np.zeros((4, 5, 4)))
        assert abs(tracked.log_z - oracles.log_z(parameters)) < 0.05
        assert 0 < tracked.log_z_std < 1
    assert "not_finite" not in tracked.flags
    assert "samples" not in tracked.flags


def test_what_cannot_be_used_is_refused(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 3, 5, 1.0)
    v = samples_of(rng, parameters)
    partition = PartitionTracker(BETA)
    # Before there is anything to know
    with pytest.raises(ValueError, match="has not observed anything"):
        _ = partition.log_z
    with pytest.raises(ValueError, match="first observation needs samples"):
        partition.observe(parameters)
    # Samples, parameters and ladders that do not fit
    with pytest.raises(
        ValueError, match=r"samples must have the shape \[M, N, \.\.\.\] = \[4, at least 2, \.\.\.\], got"
    ):
        partition.observe(parameters, v[:3])
    with pytest.raises(
        ValueError, match=r"samples must have the shape \[M, N, n_v\] = \[\.\.\., 5\], got \(4, 20, 3\)"
    ):
        partition.observe(parameters, v[:, :, :3])
    with pytest.raises(ValueError, match=r"samples must be 0 or 1 everywhere, got 0\.5"):
        partition.observe(parameters, 0.5 * v + 0.25 * (v < 0.5) * 2)
    with pytest.raises(ValueError, match="the RBM's b must be finite"):
        partition.observe(parameters._replace(b=parameters.b * np.nan), v)
    with pytest.raises(ValueError, match="must decrease"):
        partition.observe(parameters, v, beta=[1.0, 0.2, 0.5, 0.0])
    with pytest.raises(ValueError, match="must keep its 4 temperatures, got 3"):
        partition.observe(parameters, v, beta=[1.0, 0.5, 0.0])
    # What does not fit to what was observed before
    partition.observe(parameters, v)
    other = oracles.random_rbm(rng, 2, 5, 1.0)
    with pytest.raises(ValueError, match=r"must keep their shapes .* got .*; use a new tracker"):
        partition.observe(other, v)
    with pytest.raises(ValueError, match=r"parameters must be \(W, b, c\), in this order, got dict"):
        partition.observe(parameters._asdict(), v)
    with pytest.raises(ValueError, match="learning_rate must be finite and not negative, got nan"):
        partition.observe(parameters, v, learning_rate=np.nan)


@pytest.mark.parametrize(
    ("beta", "options", "message"),
    [
        ([1.0, 0.5], {}, "must go from 1"),
        (BETA, {"bias_variance": -1.0}, "bias_variance must be finite and not negative, got -1"),
        (BETA, {"sigma_z": 0.0}, "sigma_z must be positive, got 0"),
        (BETA, {"log_z": [1.0]}, "log_z must be one guess for each of 4 temperatures"),
    ],
)
def test_trackers_that_cannot_be(beta: ArrayLike, options: Settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PartitionTracker(beta, **options)
