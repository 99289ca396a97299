"""Training: it learns, resumes bit for bit, and does what its settings say."""

import numpy as np
import pytest
import tensorflow as tf

from darn.model.description_length import description_length, exact_log_likelihood
from darn.model.gradients import ESTIMATORS, estimate, sparsity_penalty
from darn.model.model import DARN, DARNConfig
from darn.train.optimization import make_optimizer
from darn.train.training import MAX_BLOCK, Trainer, TrainingConfig
from gpflow_deep_base.numbers.groups import by_group

N_X, STEPS = 8, 12


def patterns(rng: np.random.Generator, num: int = 200) -> np.ndarray:
    """A pattern and its negative, with 5 % of flipped bits."""
    pattern = rng.integers(0, 2, N_X)
    both = np.stack([pattern, 1 - pattern])
    return (both[rng.integers(0, 2, num)] ^ (rng.uniform(size=(num, N_X)) < 0.05)).astype(np.uint8)


def minibatches(rng: np.random.Generator, num_steps: int, num_data: int = 200) -> np.ndarray:
    return rng.integers(0, num_data, (num_steps, 20)).astype(np.int32)


def make(data: np.ndarray, model: dict | None = None, **training) -> Trainer:
    config = DARNConfig(visible=N_X, **{"hidden": (3,), "units": (5,), "dtype": "float64", **(model or {})})
    return Trainer(
        DARN(config, seed=1, data=data), TrainingConfig(**by_group(TrainingConfig, training)), num_data=len(data)
    )


def train(trainer: Trainer, data: np.ndarray, rows: np.ndarray, seed: tf.Tensor):
    run = trainer.compiled_steps()
    return run(tf.constant(data), tf.constant(rows), tf.constant(len(rows)), seed)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_the_likelihood_approaches_the_entropy(optimizer: str, seed: tf.Tensor, rng: np.random.Generator) -> None:
    """log 2 nats for the pattern, and the entropy of flips: 2.3 nats; independent bits need 5.5."""
    data = patterns(rng)
    trainer = make(data, optimizer=optimizer, learning_rate=0.02 if optimizer == "adam" else 0.005)
    before = -exact_log_likelihood(trainer.model, data).mean()
    train(trainer, data, minibatches(rng, 400), seed)
    after = -exact_log_likelihood(trainer.model, data).mean()
    flips = -(0.05 * np.log(0.05) + 0.95 * np.log(0.95))
    entropy = np.log(2) + N_X * flips
    assert before > entropy + 2
    assert after < entropy + 0.5
    assert description_length(trainer.model, data, seed=seed).total.mean() >= after


def test_training_in_parts_gives_the_same_bits(seed: tf.Tensor, rng: np.random.Generator) -> None:
    settings: dict = {"optimizer": "rmsprop", "average": 0.9, "half_life": 10.0, "clip_norm": 1.0, "sparsity": 0.2}
    settings["weight_noise"] = "graves"
    data, rows = patterns(rng), minibatches(rng, STEPS)
    trainer = make(data, **settings)
    variables = [*trainer.variables, *trainer.optimizer.variables]
    start = [variable.numpy() for variable in variables]
    run = trainer.compiled_steps()
    whole = run(tf.constant(data), tf.constant(rows), tf.constant(STEPS), seed)
    end = [variable.numpy() for variable in variables]
    for variable, value in zip(variables, start, strict=True):
        variable.assign(value)
    first = run(tf.constant(data), tf.constant(rows), tf.constant(7), seed)
    second = run(tf.constant(data), tf.constant(np.roll(rows, -7, axis=0)), tf.constant(STEPS - 7), seed)
    for of_whole, of_first, of_second in zip(whole[:-1], first[:-1], second[:-1], strict=True):
        np.testing.assert_array_equal(of_whole, np.concatenate([of_first[:7], of_second[: STEPS - 7]]))
        np.testing.assert_array_equal(of_first[7:], 0.0)
    norm = whole.gradient_norm  # of the last step alone
    assert norm[-1] == second.gradient_norm[STEPS - 8] > 0 == np.max(norm[:-1])
    for variable, value in zip(variables, end, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_advance_makes_the_steps_of_its_minibatches(seed: tf.Tensor, rng: np.random.Generator) -> None:
    data, rows = patterns(rng), minibatches(rng, STEPS)
    one, other = make(data), make(data)
    expected = train(one, data, rows, seed)
    first, second = other.advance(data, rows[:7], seed), other.advance(tf.constant(data), rows[7:], seed)
    for values, a, b in zip(expected[:-1], first[:-1], second[:-1], strict=True):
        np.testing.assert_array_equal(values, np.concatenate([a, b]))
    for variable, same in zip(one.model.variables, other.model.variables, strict=True):
        np.testing.assert_array_equal(variable, same)
    assert int(other.optimizer.iterations) == STEPS


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (MAX_BLOCK + 1, 5), (5,)])
def test_advance_refuses_what_are_no_minibatches(
    shape: tuple[int, ...], seed: tf.Tensor, rng: np.random.Generator
) -> None:
    data = patterns(rng)
    with pytest.raises(ValueError, match=r"rows must be \[K, B\] with K from 1 to 250"):
        make(data).advance(data, np.zeros(shape, int), seed)
    with pytest.raises(ValueError, match=r"rows must be .* whole numbers, got shape \[2, 5\] of float64"):
        make(data).advance(data, np.full((2, 5), 0.5), seed)


def test_divergence_is_an_error_that_says_what_to_do(seed: tf.Tensor, rng: np.random.Generator) -> None:
    data, rows = patterns(rng), minibatches(rng, 20)
    trainer = make(data, {"dtype": "float32"}, learning_rate=1e38)
    with pytest.raises(FloatingPointError, match=r"finite after step 20: .* Lower learning_rate, or set clip_norm=10"):
        trainer.advance(data, rows, seed)


def test_a_copy_has_the_averages_and_stays_as_it_is(seed: tf.Tensor, rng: np.random.Generator) -> None:
    data, rows = patterns(rng), minibatches(rng, 8)
    trainer = make(data, average=0.9)
    trainer.advance(data, rows[:4], seed)
    with trainer.averaged():
        expected = exact_log_likelihood(trainer.model, data)
    copy = trainer.copied()
    trainer.advance(data, rows[4:], seed)
    np.testing.assert_array_equal(exact_log_likelihood(copy, data), expected)
    assert copy.config == trainer.model.config
    assert not np.array_equal(exact_log_likelihood(trainer.copied(), data), expected)
    last = exact_log_likelihood(trainer.model, data)
    assert not np.array_equal(exact_log_likelihood(trainer.copied(), data), last)
    np.testing.assert_array_equal(
        exact_log_likelihood(make(data).copied(), data), exact_log_likelihood(make(data).model, data)
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_makes_steps(estimator: str, seed: tf.Tensor, rng: np.random.Generator) -> None:
    """On one minibatch a few steps shorten the description, whose noise is the same before and after."""
    data = patterns(rng, 100)
    trainer = make(data, estimator=estimator, learning_rate=0.05)
    before = description_length(trainer.model, data, seed=seed, num_samples=3).total.mean()
    x = tf.constant(data, tf.float64)
    for step in range(4):
        observed = trainer.step(x, tf.random.experimental.stateless_fold_in(seed, step))
    assert np.isfinite([float(value) for value in observed]).all()
    assert description_length(trainer.model, data, seed=seed, num_samples=3).total.mean() < before
    assert 0 < trainer.gradient_noise(x[:5], seed, num_draws=3) < np.inf


@pytest.mark.parametrize("encoder", ["linear", "nade"])
def test_noise_is_measured_where_bits_of_the_encoder_see_each_other(
    encoder: str, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    data = patterns(rng, 20)
    model = DARN(DARNConfig(data.shape[1], (3,), encoder=encoder, dtype="float64"), data=data)  # type: ignore[arg-type]
    trainer = Trainer(model, TrainingConfig(), num_data=20)
    assert 0 < trainer.gradient_noise(tf.constant(data, tf.float64), seed, num_draws=4) < np.inf


def test_weight_noise_leaves_the_means_in_place(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """With a learning rate near zero nothing moves, although the gradient is taken at other weights."""
    data = patterns(rng)
    trainer = make(data, weight_noise="reparameterised", initial_std=0.5, learning_rate=1e-12)
    before = [variable.numpy() for variable in trainer.model.trainable_variables]
    observed = trainer.step(tf.constant(data[:20], tf.float64), seed)
    for variable, value in zip(trainer.model.trainable_variables, before, strict=True):
        np.testing.assert_allclose(variable, value, atol=1e-10)
    data_part = observed.prior + observed.bits_back + observed.visible
    assert trainer.noise is not None
    np.testing.assert_allclose(observed.objective - data_part, trainer.noise.kl() / len(data), rtol=1e-6)


def test_averages_take_the_models_place_within_the_with_statement(seed: tf.Tensor, rng: np.random.Generator) -> None:
    data = patterns(rng)
    trainer = make(data, average=0.5)
    kernel = trainer.model.encoders[0].network.kernels[0]
    expected = kernel.numpy()
    for i in range(3):
        trainer.step(tf.constant(data[20 * i : 20 * i + 20], tf.float64), seed)
        decay = min(0.5, (i + 1) / (i + 11))
        expected = decay * expected + (1 - decay) * kernel.numpy()
    last = kernel.numpy()
    with trainer.averaged():
        np.testing.assert_allclose(kernel, expected)
    np.testing.assert_array_equal(kernel, last)


def test_the_sparsity_penalty_is_a_kl_and_makes_units_rare(seed: tf.Tensor, rng: np.random.Generator) -> None:
    data = patterns(rng)
    trainer = make(data, {"hidden": (6,), "units": ()}, sparsity=0.1, sparsity_weight=5.0, learning_rate=0.05)
    x = tf.constant(data[:50], tf.float64)
    estimated = estimate(trainer.model, x, trainer.model.encoder_noise(50, seed))
    q = estimated.q[0].numpy().mean(axis=0)
    expected = (0.1 * np.log(0.1 / q) + 0.9 * np.log(0.9 / (1 - q))).sum()
    np.testing.assert_allclose(sparsity_penalty(estimated, 0.1), expected, rtol=1e-9)
    observed = train(trainer, data, minibatches(rng, 300), seed)
    assert observed.activity[0] > 0.3
    assert observed.activity[-1] < 0.2


@pytest.mark.parametrize(
    "model",
    [
        pytest.param({"hidden": (2, 2), "skip": True, "encoder": "linear", "prior": "nade"}, marks=pytest.mark.slow),
        {"hidden": (3,), "visible_conditional": "eonade", "orders": 2},
        {"hidden": (), "units": (), "visible_conditional": "made"},
    ],
    ids=["deep", "eonade", "fully visible"],
)
def test_other_architectures_train(model: dict, seed: tf.Tensor, rng: np.random.Generator) -> None:
    data = patterns(rng)
    trainer = make(data, {"conditional_units": 6, **model}, learning_rate=0.02)
    before = [variable.numpy() for variable in trainer.model.trainable_variables]
    x = tf.constant(data, tf.float64)
    lengths = []
    for step in range(9):
        observed = trainer.step(x, tf.random.experimental.stateless_fold_in(seed, step))
        lengths.append(float(observed.prior + observed.bits_back + observed.visible))
    assert np.mean(lengths[-3:]) < np.mean(lengths[:3])
    moved = [np.any(v != old) for v, old in zip(trainer.model.trainable_variables, before, strict=True)]
    assert all(moved)


@pytest.mark.slow
def test_compiled_by_xla_it_learns_too(seed: tf.Tensor, rng: np.random.Generator) -> None:
    data = patterns(rng)
    trainer = make(data, learning_rate=0.02)
    run = trainer.compiled_steps(jit_compile=True)
    rows = minibatches(rng, 200)
    observed = run(tf.constant(data), tf.constant(rows), tf.constant(200), seed)
    total = (observed.prior + observed.bits_back + observed.visible).numpy()
    assert total[-20:].mean() < total[:5].mean() - 1


def test_rmsprop_is_that_of_graves() -> None:
    """n = .95 n + .05 g^2, m = .95 m + .05 g, D = .9 D - lr g / sqrt(n - m^2 + 1e-4)."""
    weight = tf.Variable([1.0, -2.0], dtype=tf.float64)
    optimizer = make_optimizer("rmsprop", 1e-3)
    n, m, change, expected = np.zeros(2), np.zeros(2), np.zeros(2), weight.numpy()
    for gradient in ([0.3, -2.0], [0.1, 0.5], [-1.0, 0.0]):
        g = np.array(gradient)
        optimizer.apply([tf.constant(g)], [weight])
        n, m = 0.95 * n + 0.05 * g**2, 0.95 * m + 0.05 * g
        change = 0.9 * change - 1e-3 * g / np.sqrt(n - m**2 + 1e-4)
        expected = expected + change
        np.testing.assert_allclose(weight, expected, rtol=1e-6)


def test_the_learning_rate_halves() -> None:
    optimizer = make_optimizer("adam", 0.1, half_life=5)
    optimizer.build([tf.Variable([1.0])])
    optimizer.iterations.assign(10)
    assert float(optimizer.learning_rate) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": "other"}, "estimator must be one of"),
        ({"entropy": "other"}, "entropy must be one of sampled, exact, got 'other'"),
        ({"optimizer": "sgd"}, "optimizer must be one of"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive and finite, got nan"),
        ({"learning_rate": "auto"}, "learning_rate must be a number, got 'auto'"),
        ({"noise_from": "1"}, "noise_from must be a number, got '1'"),
        ({"half_life": 0.0}, "half_life must be positive"),
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"initial_std": -0.1}, "initial_std must be positive"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
        ({"average": 1.0}, "average must be in"),
        ({"sparsity": 0.0}, "sparsity must be in"),
        ({"weight_decay": -1.0}, "weight_decay must be finite and not negative, got -1.0"),
        ({"sparsity_weight": float("inf")}, "sparsity_weight must be finite"),
        ({"weight_noise": "other"}, "weight_noise must be one of"),
        ({"num_samples": 1}, "num_samples must be at least 2, got 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**by_group(TrainingConfig, settings))
