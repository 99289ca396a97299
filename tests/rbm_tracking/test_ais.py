import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.estimates.ais import ais, bracket, burn_in, linear_schedule, paper_schedule, reverse_ais
from rbm_tracking.model.rbm import RBM
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import to_rbm
from tests.statistical import assert_mean_close

C = 16_384


@pytest.fixture
def parameters(rng: np.random.Generator) -> oracles.Parameters:
    return oracles.random_rbm(rng, 5, 6, scale=0.7)


def test_schedules() -> None:
    np.testing.assert_allclose(linear_schedule(5), [0, 0.25, 0.5, 0.75, 1])
    betas = paper_schedule()
    assert (len(betas), betas[0], betas[-1]) == (21_000, 0, 1)
    assert (np.diff(betas) > 0).all()
    np.testing.assert_allclose([betas[1000], betas[11_000]], [0.5, 0.9])
    assert [int(((betas >= low) & (betas < high)).sum()) for low, high in [(0, 0.5), (0.5, 0.9), (0.9, 2)]] == [
        1000,
        10_000,
        10_000,
    ]


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("generator", ["threefry", "hash"])
@pytest.mark.parametrize("has_base", [False, True])
def test_mean_weight_is_unbiased(
    parameters: oracles.Parameters,
    rng: np.random.Generator,
    seed: tf.Tensor,
    has_base: bool,
    generator: str,
    jit_compile: bool,
) -> None:
    """E[w] = Z exactly, for any schedule: a lost factor 1/2, a skipped or repeated temperature would show."""
    result = ais(
        to_rbm(parameters),
        [0.0, 0.1, 0.3, 0.4, 0.8, 1.0],
        num_chains=C,
        seed=seed,
        base_b=0.7 * rng.normal(size=6) if has_base else None,
        generator=generator,
        jit_compile=jit_compile,
        chunk=2,
    )
    assert_mean_close(np.exp(result.log_weights - oracles.log_z(parameters)), 1.0, min_detectable=0.1)


@pytest.mark.parametrize("has_base", [False, True])
def test_mean_inverse_weight_is_unbiased_in_reverse(
    parameters: oracles.Parameters, rng: np.random.Generator, seed: tf.Tensor, has_base: bool
) -> None:
    samples = oracles.sample_visible(rng, parameters, C)
    base_b = 0.7 * rng.normal(size=6) if has_base else None
    result = reverse_ais(to_rbm(parameters), [0.0, 0.2, 0.5, 0.6, 1.0], samples, seed=seed, base_b=base_b)
    assert_mean_close(np.exp(oracles.log_z(parameters) - result.log_weights), 1.0, min_detectable=0.1)


def test_last_states_are_near_samples(
    parameters: oracles.Parameters, rng: np.random.Generator, seed: tf.Tensor
) -> None:
    """With the weights of the chains, their last states have the RBM's means; in reverse the base's."""
    rbm, base_b = to_rbm(parameters), 0.7 * rng.normal(size=6)
    forward = ais(rbm, linear_schedule(200), num_chains=C, seed=seed, base_b=base_b)
    w = np.exp(forward.log_weights - forward.log_z)
    assert_mean_close(w[:, None] * forward.v, oracles.moments(parameters).v, min_detectable=0.06)
    samples = oracles.sample_visible(rng, parameters, C)
    reverse = reverse_ais(rbm, linear_schedule(200), samples, seed=seed, base_b=base_b)
    w = np.exp(reverse.log_z - reverse.log_weights)
    assert_mean_close(w[:, None] * reverse.v, 1 / (1 + np.exp(-base_b)), min_detectable=0.06)


def test_two_temperatures_are_plain_importance_sampling(parameters: oracles.Parameters, seed: tf.Tensor) -> None:
    """All states of the base are drawn, each with its own exact weight q~(v) / p_0(v)."""
    rbm = to_rbm(parameters)
    result = ais(rbm, [0.0, 1.0], num_chains=C, seed=seed)
    v = oracles.binary_vectors(6)
    known = np.log(np.exp(oracles.log_joint(parameters)).sum(1)) - np.log(oracles.visible_distribution(parameters, 0.0))
    distance = np.abs(result.log_weights[:, None] - known[None]).min(axis=1)
    assert distance.max() < 1e-12
    assert len(np.unique(result.log_weights.round(9))) > len(v) // 4


def test_interval_contains_the_truth_and_says_how_sure_it_is(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """60 x 80 units: the 3-sigma intervals from both sides, and the standard error against that of repetitions."""
    planted = oracles.planted_rbm(rng, 60, 80, num_blocks=10)
    rbm, exact = to_rbm(planted.parameters, "float32"), planted.log_z()
    seeds = tf.random.experimental.stateless_split(seed, 12)
    results = [ais(rbm, linear_schedule(500), num_chains=64, seed=s) for s in tf.unstack(seeds)]
    errors = np.array([result.log_z - exact for result in results])
    stated = np.array([result.standard_error for result in results])
    assert 0.4 < np.sqrt(np.mean(errors**2)) / stated.mean() < 2.0  # chi with 12 degrees of freedom: 1e-4 outside
    inside = [result.interval[0] < exact < result.interval[1] for result in results]
    assert np.mean(inside) >= 0.75
    upper = reverse_ais(rbm, linear_schedule(500), planted.sample(rng, 64), seed=seed)
    assert abs(upper.log_z - exact) < 5 * upper.standard_error
    assert upper.interval[0] < upper.log_z < upper.interval[1]


def test_summary_follows_from_the_weights(
    parameters: oracles.Parameters, rng: np.random.Generator, seed: tf.Tensor
) -> None:
    rbm = to_rbm(parameters)
    forward = ais(rbm, [0.0, 0.5, 1.0], num_chains=50, seed=seed)
    backward = reverse_ais(rbm, [0.0, 0.5, 1.0], oracles.sample_visible(rng, parameters, 50), seed=seed)
    for result, sign in ((forward, 1.0), (backward, -1.0)):
        w = np.exp(sign * result.log_weights)
        mean, error = w.mean(), w.std(ddof=1) / np.sqrt(50)
        assert result.log_z == pytest.approx(sign * np.log(mean), rel=1e-12)
        assert result.standard_error == pytest.approx(error / mean, rel=1e-10)
        assert result.ess == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-10)
        with np.errstate(invalid="ignore"):
            ends = sorted(sign * np.log(np.array([mean - 3 * error, mean + 3 * error])))
        expected = np.nan_to_num(ends, nan=-sign * np.inf)
        np.testing.assert_allclose(sorted(result.interval), np.sort(expected), rtol=1e-10)


def test_interval_is_open_when_few_weights_dominate(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Two temperatures for a large model: the mean weight is not three standard errors from zero."""
    planted = oracles.planted_rbm(rng, 40, 40, num_blocks=5, scale=3.0)
    rbm = to_rbm(planted.parameters)
    forward = ais(rbm, [0.0, 1.0], num_chains=16, seed=seed)
    backward = reverse_ais(rbm, [0.0, 1.0], planted.sample(rng, 16), seed=seed)
    assert forward.ess < 3
    assert forward.interval[0] == -np.inf
    assert backward.interval[1] == np.inf
    assert forward.log_z < planted.log_z() < backward.log_z  # by tens of nats


def test_result_does_not_depend_on_pieces_or_compilation(parameters: oracles.Parameters, seed: tf.Tensor) -> None:
    rbm, betas = to_rbm(parameters), linear_schedule(24)
    whole = ais(rbm, betas, num_chains=16, seed=seed)
    pieces = ais(rbm, betas, num_chains=16, seed=seed, chunk=5)
    plain = ais(rbm, betas, num_chains=16, seed=seed, jit_compile=False)
    np.testing.assert_allclose(pieces.log_weights, whole.log_weights, rtol=1e-12)
    np.testing.assert_allclose(plain.log_weights, whole.log_weights, rtol=1e-10)
    other = ais(rbm, betas, num_chains=16, seed=seed + 1)
    assert not np.allclose(other.log_weights, whole.log_weights)


def test_large_activations(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """One hidden unit on or off decides all; in float32 with activations of 1e3 nothing overflows."""
    W, b, c = np.full((1, 300), 5.0), np.full(300, -0.01), np.array([-40.0])
    exact = np.logaddexp(300 * np.logaddexp(0, -0.01), -40 + 300 * np.logaddexp(0, 4.99))
    result = ais(to_rbm(oracles.Parameters(W, b, c), "float32"), linear_schedule(2000), num_chains=32, seed=seed)
    assert abs(result.log_z - exact) < 5 * result.standard_error + 1e-3


def test_more_than_100_hidden_units_are_multiplied_in_pieces(rng: np.random.Generator, seed: tf.Tensor) -> None:
    planted = oracles.planted_rbm(rng, 250, 50, num_blocks=50, scale=0.3)
    result = ais(to_rbm(planted.parameters, "float32"), linear_schedule(300), num_chains=64, seed=seed)
    assert result.standard_error < 0.05
    assert abs(result.log_z - planted.log_z()) < 5 * result.standard_error


def test_burn_in_leaves_the_distribution_alone(
    parameters: oracles.Parameters, rng: np.random.Generator, seed: tf.Tensor
) -> None:
    rbm, exact = to_rbm(parameters), oracles.moments(parameters).v
    start = oracles.sample_visible(rng, parameters, C)
    moved = burn_in(rbm, start, 5, seed=seed)
    assert moved.dtype == np.uint8
    assert (moved != start).any()
    assert_mean_close(moved, exact, min_detectable=0.05)
    far = burn_in(rbm, np.ones((C, 6)), 200, seed=seed)
    assert_mean_close(far, exact, min_detectable=0.05)
    np.testing.assert_array_equal(burn_in(rbm, start, 0, seed=seed), start)


def test_bracket_contains_the_truth(rng: np.random.Generator, seed: tf.Tensor) -> None:
    planted = oracles.planted_rbm(rng, 60, 80, num_blocks=10)
    rbm = to_rbm(planted.parameters, "float32")
    own = bracket(rbm, linear_schedule(500), num_chains=64, seed=seed, burn_in_steps=100)
    given = bracket(rbm, linear_schedule(500), num_chains=64, seed=seed, samples=planted.sample(rng, 32))
    assert given.upper.v.shape == (32, 80)
    for lower, upper in (own, given):
        assert lower.log_z - 5 * lower.standard_error < planted.log_z() < upper.log_z + 5 * upper.standard_error


@pytest.mark.parametrize(
    ("betas", "message"),
    [
        ([0.1, 1.0], "starts with 0 and ends with 1, got shape .2,. from 0.1 to 1; use"),
        ([0.0, 0.9], "starts with 0 and ends with 1"),
        ([1.0, 0.0], "starts with 0 and ends with 1"),
        ([], "starts with 0 and ends with 1"),
        ([[0.0, 1.0]], "must be a vector"),
        ([0.0, 0.5, 0.5, 1.0], "betas must increase, got 0.5 then 0.5"),
        ([0.0, float("nan"), 1.0], "betas must increase, got 0 then nan"),
    ],
)
def test_wrong_schedules(parameters: oracles.Parameters, seed: tf.Tensor, betas: list[float], message: str) -> None:
    for run in (ais, bracket):
        with pytest.raises(ValueError, match=message):
            run(to_rbm(parameters), betas, seed=seed)
    with pytest.raises(ValueError, match=message):
        reverse_ais(to_rbm(parameters), betas, np.zeros((2, 6)), seed=seed)


def test_wrong_arguments(parameters: oracles.Parameters, seed: tf.Tensor) -> None:
    rbm, betas = to_rbm(parameters), linear_schedule(3)
    with pytest.raises(ValueError, match="num_betas must be at least 2"):
        linear_schedule(1)
    with pytest.raises(ValueError, match="num_chains must be at least 2 for a standard error, got 1"):
        ais(rbm, betas, num_chains=1, seed=seed)
    with pytest.raises(ValueError, match="samples must have at least 2 rows"):
        reverse_ais(rbm, betas, np.zeros((1, 6)), seed=seed)
    with pytest.raises(ValueError, match=r"samples must be 0 or 1 everywhere, got 0\.5"):
        reverse_ais(rbm, betas, np.full((2, 6), 0.5), seed=seed)
    for base_b in (np.zeros(5), np.full(6, -np.inf)):
        with pytest.raises(ValueError, match="base_b must be 6 finite biases"):
            ais(rbm, betas, seed=seed, base_b=base_b)
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        ais(rbm, betas, seed=seed, chunk=0)
    with pytest.raises(ValueError, match="num_steps must not be negative, got -1"):
        burn_in(rbm, np.zeros((2, 6)), -1, seed=seed)
    with pytest.raises(ValueError, match="the RBM's W must be finite"):
        ais(rbm._replace(W=rbm.W * np.nan), betas, seed=seed)


def test_overflowing_weights_are_refused(seed: tf.Tensor) -> None:
    huge = RBM(tf.fill([2, 3], 3e38), tf.zeros([3]), tf.zeros([2]))
    with pytest.raises(ValueError, match="AIS weights are not finite: parameters are too large for their float type"):
        ais(huge, linear_schedule(3), num_chains=4, seed=seed)
