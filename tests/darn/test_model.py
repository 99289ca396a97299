"""Encoder and decoder of all kinds of DARN: enumeration, sampling, what sees what, and bad input."""

import numpy as np
import pytest
import tensorflow as tf

from darn.model.autoregressive import threshold
from darn.model.config import LocalConfig
from darn.model.model import DARN, DARNConfig, check_data
from tests.darn.rows import every_row
from tests.statistical import assert_mean_close

N_X = 6
KINDS: dict[str, dict] = {
    "fully visible": {"hidden": (), "visible_conditional": "linear"},
    "one layer": {"hidden": (4,)},
    "Eq. 5": {"hidden": (4,), "units": (5, 4), "activation": "relu", "visible_conditional": "linear"},
    "skips": {"hidden": (3, 2, 2), "units": (5,), "skip": True, "prior": "made", "encoder": "made"},
    "autoregressive encoder": {
        "hidden": (3, 2),
        "encoder": "linear",
        "prior": "nade",
        "visible_conditional": "eonade",
        "orders": 3,
    },
    "local": {
        "hidden": (3,),
        "visible_conditional": "local",
        "local": LocalConfig((2, 3), (2,), (1,), (2,), 2, visible_kernel=3, visible_period=2),
    },
}


def make(kind: str, seed: tf.Tensor, **changes) -> DARN:
    """A model with random parameters of size 1/2 added to the first ones."""
    model = DARN(DARNConfig(visible=N_X, dtype="float64", **{**KINDS[kind], **changes}), seed=seed)
    for i, variable in enumerate([*model.trainable_variables, model.visible_mean]):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign_add(0.5 * tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    return model


def vectors(n: int) -> tf.Tensor:
    return tf.constant(every_row(n), tf.float64)


def states(model: DARN) -> tuple[tf.Tensor, ...]:
    return tuple(tf.split(vectors(model.num_hidden), model.config.hidden, axis=1)) if model.config.hidden else ()


@pytest.mark.parametrize("kind", KINDS)
def test_joint_and_encoder_sum_to_one(kind: str, seed: tf.Tensor) -> None:
    model = make(kind, seed)
    h, x = states(model), vectors(N_X)
    num = max(1, len(h[0]) if h else 1)
    pairs_x = tf.repeat(x, num, axis=0)
    pairs_h = tuple(tf.tile(layer, [len(x), 1]) for layer in h)
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(model.log_joint(pairs_x, pairs_h))), 1.0, rtol=1e-10)
    of_each_x = tf.reduce_sum(tf.reshape(tf.exp(model.log_q(pairs_x, pairs_h)), [len(x), num]), axis=1)
    np.testing.assert_allclose(of_each_x, 1.0, rtol=1e-10)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind]["hidden"]])
def test_the_encoder_draws_from_its_density(kind: str, seed: tf.Tensor) -> None:
    """Each bit is 1 where its noise is below its logit, and frequencies are the probabilities."""
    model = make(kind, seed)
    x = tf.repeat(tf.constant([[1.0, 0.0, 1.0, 1.0, 0.0, 1.0]], tf.float64), 5_000, axis=0)
    noise = model.encoder_noise(5_000, seed)
    encoded = model.encode(x, noise)
    for bits, logits, again, level_noise in zip(
        encoded.h, encoded.logits, model.encoder_logits(x, encoded.h), noise, strict=True
    ):
        np.testing.assert_allclose(logits, again)
        np.testing.assert_array_equal(bits, threshold(logits, level_noise))
    h = states(model)
    probability = tf.exp(model.log_q(x[: len(h[0])], h)).numpy()
    likeliest = np.argsort(probability)[-3:]
    drawn = tf.concat(encoded.h, axis=1).numpy()
    is_state = np.all(drawn[:, None] == tf.concat(h, axis=1).numpy()[likeliest], axis=-1)
    assert_mean_close(is_state, probability[likeliest], min_detectable=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_ancestral_samples_have_the_models_probabilities(kind: str, seed: tf.Tensor) -> None:
    model = make(kind, seed)
    samples = model.sample(5_000, seed)
    h, x = states(model), vectors(N_X)
    num = len(h[0]) if h else 1
    joint = model.log_joint(tf.repeat(x, num, axis=0), tuple(tf.tile(layer, [len(x), 1]) for layer in h))
    probability = np.exp(joint).reshape(len(x), num).sum(axis=1)
    likeliest = np.argsort(probability)[-3:]
    is_vector = np.all(samples.x.numpy()[:, None] == x.numpy()[likeliest], axis=-1)
    assert_mean_close(is_vector, probability[likeliest], min_detectable=0.05)
    np.testing.assert_allclose(samples.probs, tf.sigmoid(model.visible_logits(samples.x, samples.h)))
    assert [layer.shape for layer in samples.h] == [[5_000, n] for n in model.config.hidden]


def test_several_copies_are_draws_for_each_row(seed: tf.Tensor) -> None:
    model = make("skips", seed)
    x = vectors(N_X)[:3]
    noise = model.encoder_noise(6, seed)
    once = model.encode(tf.tile(x, [2, 1]), noise)
    for result, expected in zip(tf.nest.flatten(model.encode(x, noise, copies=2)), tf.nest.flatten(once), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_a_layer_sees_the_next_one_or_with_skips_all(seed: tf.Tensor) -> None:
    for skip in (False, True):
        model = make("skips", seed, skip=skip, prior="linear")
        h = [tf.Variable(layer[:1]) for layer in states(model)]
        with tf.GradientTape() as tape:
            logits = model.visible_logits(tf.zeros([1, N_X], tf.float64), h)
        of_layers = tape.gradient(logits, h, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        assert [bool(np.any(gradient != 0)) for gradient in of_layers] == [True, skip, skip]


def test_the_fully_visible_linear_model_is_a_sigmoid_belief_network(seed: tf.Tensor) -> None:
    model = make("fully visible", seed)
    conditional = model.decoders[0].conditional
    x = vectors(N_X)
    np.testing.assert_allclose(model.log_joint(x, ()), conditional.log_prob(x))
    assert model.encoders == []
    assert model.prior is None


def test_data_give_the_visible_biases(rng: np.random.Generator) -> None:
    x = (rng.uniform(size=(50, N_X)) < 0.3).astype(np.uint8)
    x[:, 0] = 1
    model = DARN(DARNConfig(visible=N_X, dtype="float64"), data=x)
    np.testing.assert_allclose(model.visible_mean, x.mean(axis=0))
    probs = tf.sigmoid(model.decoders[0].conditional.bias)
    np.testing.assert_allclose(probs[1:], x.mean(axis=0)[1:])
    np.testing.assert_allclose(probs[0], 51 / 52)


@pytest.mark.parametrize("kind", KINDS)
def test_configurations_survive_json(kind: str) -> None:
    config = DARNConfig(visible=N_X, **KINDS[kind])
    assert DARNConfig.from_json(config.to_json()) == config


def test_parameters_are_a_function_of_the_seed() -> None:
    models = [DARN(DARNConfig(visible=N_X), seed=seed) for seed in (1, 1, 2)]
    kernels = [model.encoders[0].network.kernels[0].numpy() for model in models]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert not np.allclose(kernels[0], kernels[2])


def test_intensities_are_allowed_where_they_are_wanted(rng: np.random.Generator) -> None:
    x = rng.uniform(size=(4, N_X))
    check_data(x, DARNConfig(visible=N_X, observations="intensities"))
    with pytest.raises(ValueError, match=r"0 or 1 everywhere.*binarise it"):
        check_data(x, DARNConfig(visible=N_X))
    with pytest.raises(ValueError, match=r"in \[0, 1\] everywhere.*divide"):
        check_data(2 + x, DARNConfig(visible=N_X, observations="intensities"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.full((2, N_X), np.nan), "got nan in row 0, column 0.*missing values"),
        (np.zeros((2, N_X + 1)), "must have 6 columns.*got 7"),
        (np.zeros(N_X), "matrix"),
        (np.full((2, N_X), "a"), "dtype"),
    ],
)
def test_bad_data_are_one_clear_error(data: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_data(data, DARNConfig(visible=N_X))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": (3, 0)}, "hidden: numbers of units"),
        ({"encoder": "eonade"}, "encoder must be one of"),
        ({"visible_conditional": "local"}, "needs `local`"),
        ({"local": LocalConfig((3, 3), (2,), (1,), (2,))}, "need visible=9, got 6"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"local": 5}, "local must be a LocalConfig, or None, got 5"),
    ],
)
def test_bad_configurations_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DARNConfig(visible=N_X, **changes)


def test_text_that_is_no_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="no configuration"):
        DARNConfig.from_json('{"size": 3}')
