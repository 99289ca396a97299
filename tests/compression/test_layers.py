"""The layers against sampled weights, their KLs by part, and how they live in Keras."""

import json
import math
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import compression as bc
from compression.layers import kl
from tests.compression.networks import PRIORS, convolutional_network, dense_network, randomise
from tests.statistical import assert_mean_close

DENSE = [pytest.param(dense, id=dense.__name__) for dense, _ in PRIORS.values()]
LAYERS = [pytest.param(kind, id=kind.__name__) for pair in PRIORS.values() for kind in pair]


def built(kind: type, rng: np.random.Generator, **settings: object) -> tuple[keras.layers.Layer, np.ndarray]:
    """A layer with a random posterior, and inputs for it."""
    is_dense = "Dense" in kind.__name__
    x = rng.normal(size=(4, 5) if is_dense else (4, 4, 3, 2)).astype("float32")
    arguments = (3,) if is_dense else (3, 2)
    layer = kind(*arguments, num_train=10, seed=1, **settings)
    layer(x)
    randomise(keras.Sequential([layer]), rng)
    return layer, x


def sampled_kernels(layer: bc.BayesianLayer, rng: np.random.Generator, n: int) -> np.ndarray:
    """[n, *kernel shape] draws of the masked weights, written out from the prior's generative form in NumPy."""
    shape = tuple(layer.kernel_mean.shape)
    value = {v.name: v.numpy().astype(np.float64) for v in layer.weights}
    std = np.exp(0.5 * layer.scale_speed * value["kernel_log_var_scaled"])
    w = value["kernel_mean"] + std * rng.normal(size=(n, *shape))

    def log_normal(name: str) -> np.ndarray:
        mean = layer.scale_speed * value[f"{name}_mean_scaled"]
        if name == "s_a":
            mean = mean + 2.0 * math.log(layer.tau0)
        return np.exp(
            mean + np.exp(0.5 * layer.scale_speed * value[f"{name}_log_var_scaled"]) * rng.normal(size=(n, *mean.shape))
        )

    if type(layer).__name__.endswith("SVD"):
        return value["mask"] * w
    if type(layer).__name__.endswith("GNJ"):
        z_std = np.exp(0.5 * layer.scale_speed * value["z_log_var_scaled"])
        z = layer.scale_speed * value["z_mean_scaled"] + z_std * rng.normal(size=(n, *z_std.shape))
    else:
        z = np.sqrt(log_normal("s_a") * log_normal("s_b"))[:, None] * np.sqrt(log_normal("alpha") * log_normal("beta"))
    z = value["mask"] * z
    return z[:, :, None] * w if len(shape) == 2 else z[:, None, None, None, :] * w


def outputs_of(kernels: np.ndarray, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    if kernels.ndim == 3:
        return np.einsum("bi,nij->nbj", x, kernels) + bias
    height, width = x.shape[1] - 1, x.shape[2] - 1
    patches = np.stack([x[:, i : i + height, j : j + width] for i in (0, 1) for j in (0, 1)], axis=-2)
    return np.einsum("bhwpc,npcf->nbhwf", patches, kernels.reshape(len(kernels), 4, *kernels.shape[3:])) + bias


@pytest.mark.parametrize("kind", LAYERS)
def test_local_reparametrisation_has_the_moments_of_sampled_weights(kind: type, rng: np.random.Generator) -> None:
    layer, x = built(kind, rng)
    mask = np.ones(layer.mask.shape, np.float32)
    mask.flat[1] = 0.0
    layer.mask.assign(mask)
    n = 20_000
    by_weights = outputs_of(sampled_kernels(layer, rng, n), x, layer.bias.numpy())
    draws = bc.predict_samples(keras.Sequential([layer]), np.repeat(x, n // 10, axis=0), 10, 3, batch_size=10**6)
    draws = draws.reshape(10, len(x), n // 10, *draws.shape[2:]).swapaxes(1, 2).reshape(n, *by_weights.shape[1:])
    for moment in (1, 2):
        a, b = draws.astype(np.float64) ** moment, by_weights**moment
        constant = b.std(axis=0) < 1e-6  # the masked filter of a convolution
        np.testing.assert_allclose(a.mean(0)[constant], b.mean(0)[constant], atol=1e-5)
        assert np.any(~constant)
        difference = (a - b)[:, ~constant]
        assert_mean_close(difference, 0.0, min_detectable=0.1 * b.std(axis=0)[~constant])


@pytest.mark.parametrize("kind", LAYERS)
def test_moments_of_the_weights(kind: type, rng: np.random.Generator) -> None:
    """Eqs. (10), (11), (19) and (20) against draws of z w~."""
    layer, _ = built(kind, rng)
    w = sampled_kernels(layer, rng, 100_000)
    mean, variance = layer.posterior_mean_kernel().numpy(), layer.posterior_variance_kernel().numpy()
    assert_mean_close(w, mean, min_detectable=0.1 * np.sqrt(variance))
    square = (w - mean) ** 2
    assert_mean_close(square, variance, min_detectable=0.2 * square.std(axis=0))


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("strides", [1, 2, (2, 3)])
def test_shape_of_a_convolution(padding: str, strides: int | tuple[int, int]) -> None:
    layer = bc.Conv2DGNJ(3, (2, 3), strides=strides, padding=padding, num_train=9)
    for side in (5, 6, 7):
        assert layer(np.zeros((2, side, side + 1, 1), np.float32)).shape == layer.compute_output_shape(
            (2, side, side + 1, 1)
        )
    assert layer.compute_output_shape((None, None, 3, 1))[:2] == (None, None)


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("kind", [bc.Conv2DGNJ, bc.Conv2DGHS, bc.Conv2DSVD])
def test_one_channel_is_convolved_like_several(kind: type, padding: str, rng: np.random.Generator) -> None:
    """Images of one channel take another way; those with a second channel of zeros do not."""
    x = rng.normal(size=(4, 7, 6, 1)).astype(np.float32)
    both = np.concatenate([x, np.zeros_like(x)], axis=-1)
    layers = [kind(3, (2, 4), padding=padding, num_train=10, seed=1, initial_log_std=-1.0) for _ in range(2)]
    for layer, images in zip(layers, (x, both), strict=True):
        layer.build(images.shape)
    for one, other in zip(layers[0].weights, layers[1].weights, strict=True):
        value = np.array(other)
        value[(slice(None), slice(None), slice(0, 1)) if value.ndim == 4 else ...] = np.array(one)
        other.assign(value)
    outputs, gradients = [], []
    for layer, images in zip(layers, (x, both), strict=True):
        with tf.GradientTape() as tape:
            outputs.append(layer(images, training=True))
            loss = tf.reduce_sum(tf.sin(outputs[-1]))
        gradients.append(tape.gradient(loss, layer.trainable_variables))
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-5, atol=1e-5)
    for one, other in zip(*gradients, strict=True):
        if one is not None:
            same = other[:, :, :1] if one.ndim == 4 else other
            np.testing.assert_allclose(one, same, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", LAYERS)
def test_inference_is_one_pass_with_the_posterior_mean(kind: type, rng: np.random.Generator) -> None:
    layer, x = built(kind, rng, activation="relu")
    layer.mask.assign(rng.integers(0, 2, size=layer.mask.shape))
    expected = np.maximum(outputs_of(layer.posterior_mean_kernel().numpy()[None], x, layer.bias.numpy())[0], 0.0)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    assert layer.losses == []


def test_scores(rng: np.random.Generator) -> None:
    gnj, _ = built(bc.DenseGNJ, rng)
    expected = gnj.scale_speed * gnj.z_log_var_scaled.numpy() - np.log(gnj.z_mean.numpy() ** 2)
    np.testing.assert_allclose(gnj.prune_scores(), expected, rtol=1e-5)
    svd, _ = built(bc.DenseSVD, rng)
    expected = svd.scale_speed * svd.kernel_log_var_scaled.numpy() - np.log(svd.kernel_mean.numpy() ** 2)
    np.testing.assert_allclose(svd.log_alpha(), expected, rtol=1e-4, atol=1e-5)
    ghs, _ = built(bc.DenseGHS, rng)
    mean, var = (moment.numpy() for moment in ghs.log_z())
    np.testing.assert_allclose(ghs.prune_scores(), var - mean, rtol=1e-6)
    assert ghs.log_mode_score().shape == gnj.log_alpha().shape == (5,)


@pytest.mark.parametrize("choice", ["approximate", "exact"])
def test_kl_of_gnj_is_the_sum_of_its_parts_without_masked_groups(choice: str, rng: np.random.Generator) -> None:
    layer, _ = built(bc.DenseGNJ, rng, kl=choice)
    layer.mask.assign([1, 0, 1, 1, 0])
    keep = np.array([0, 2, 3])
    divergence = kl.log_uniform_kl if choice == "approximate" else kl.log_uniform_kl_exact
    scales = divergence(tf.gather(layer.log_alpha(), keep)).numpy().sum()
    log_var = layer.scale_speed * layer.kernel_log_var_scaled.numpy()[keep]
    weights = 0.5 * np.sum(np.exp(log_var) + layer.kernel_mean.numpy()[keep] ** 2 - 1.0 - log_var)
    parts = layer.kl_parts()
    assert float(parts["scales"]) == pytest.approx(scales, rel=1e-5)
    assert float(parts["weights"]) == pytest.approx(weights, rel=1e-5)
    assert float(bc.kl_divergence(keras.Sequential([layer]))) == pytest.approx(scales + weights, rel=1e-5)


def test_initial_scales_of_the_horseshoe() -> None:
    for start, bound in (("beta", 1e4), ("paper", math.inf)):
        layer = bc.DenseGHS(2, num_train=1, seed=0, initial_scales=start)
        layer.build((None, 3))
        np.testing.assert_allclose(layer.scale_moments()[0], 1.0, rtol=1e-4)
        assert float(layer.kl_divergence()) < bound
    assert float(layer.kl_parts()["global_scale"]) == pytest.approx(1e10, rel=1e-3)
    printed = bc.DenseGHS(2, num_train=1, initial_scales="paper", paper_eq34=True)
    printed.build((None, 3))
    assert float(printed.kl_parts()["global_scale"]) == pytest.approx(1e5, rel=1e-3)


@pytest.mark.parametrize("kind", DENSE)
def test_loss_is_weighted_and_divided_by_num_train(kind: type, rng: np.random.Generator) -> None:
    layer, x = built(kind, rng)
    bc.set_kl_weight(keras.Sequential([layer]), 0.25)
    layer(x, training=True)
    assert float(layer.losses[0]) == pytest.approx(0.25 * float(layer.kl_divergence()) / 10, rel=1e-6)


def test_noise_is_a_function_of_seed_and_step(rng: np.random.Generator) -> None:
    model = dense_network("ghs", rng)
    x = rng.normal(size=(6, 12)).astype("float32")

    def draw(seed: int, step: int) -> np.ndarray:
        bc.seed_noise(model, seed, step)
        return model(x, training=True).numpy()

    first, following = draw(5, 3), model(x, training=True).numpy()
    np.testing.assert_array_equal(draw(5, 3), first)
    np.testing.assert_array_equal(draw(5, 4), following)
    assert not np.allclose(draw(6, 3), first)
    assert not np.allclose(first, following)
    repeated = bc.predict_samples(model, np.repeat(x[:1], 3, axis=0), 2, 0)
    assert np.unique(repeated).size == repeated.size  # noise differs between examples, units and passes


def test_predict_samples_leaves_the_noise_where_it_was(rng: np.random.Generator) -> None:
    model = dense_network("gnj", rng)
    x = rng.normal(size=(5, 12)).astype("float32")
    before, state = model(x).numpy(), model.layers[0].noise_state.numpy()
    samples = bc.predict_samples(model, x, 4, 0, batch_size=5)
    assert samples.shape == (4, 5, 3)
    np.testing.assert_array_equal(samples, bc.predict_samples(model, x, 4, 0, batch_size=5))
    np.testing.assert_array_equal(model.layers[0].noise_state, state)
    np.testing.assert_array_equal(model(x), before)


@pytest.mark.parametrize("prior", PRIORS)
def test_saved_model_comes_back_whole(prior: str, rng: np.random.Generator, tmp_path: Path) -> None:
    model = convolutional_network(prior, rng)
    model.layers[0].mask.assign(rng.integers(0, 2, size=model.layers[0].mask.shape))
    x = rng.normal(size=(3, 10, 10, 2)).astype("float32")
    model(x, training=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), model(x))
    for old, new in zip(model.layers, loaded.layers, strict=True):
        if isinstance(old, bc.BayesianLayer):
            assert new.get_config() == old.get_config()
    np.testing.assert_array_equal(loaded(x, training=True), model(x, training=True))  # the noise goes on


def test_resumed_training_is_bit_identical(rng: np.random.Generator, tmp_path: Path) -> None:
    x = rng.normal(size=(32, 12)).astype("float32")
    y = rng.integers(0, 3, size=32)

    def fitted(model: keras.Model, first: int, last: int) -> keras.Model:
        model.fit(x, y, epochs=last, initial_epoch=first, batch_size=16, shuffle=False, verbose=0,
                  callbacks=[bc.KLWarmup(3)])  # fmt: skip
        return model

    model = keras.Sequential([keras.Input([12]), bc.DenseGNJ(3, num_train=32, seed=1, std_cap=0.3)])
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
    )
    fitted(model, 0, 2).save(tmp_path / "middle.keras")
    fitted(model, 2, 4)
    resumed = fitted(keras.models.load_model(tmp_path / "middle.keras"), 2, 4)
    for a, b in zip(model.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_optimizer_keeps_standard_deviations_at_the_cap() -> None:
    layer = bc.DenseGNJ(2, num_train=32, std_cap=0.2, initial_log_std=-1.0)
    layer.build((None, 2))
    layer.kernel_log_var_scaled.assign(np.log([[0.5, 0.1], [0.2, 3.0]]) * 2.0 / layer.scale_speed)
    keras.optimizers.SGD(0.1).apply([np.zeros((2, 2), np.float32)], [layer.kernel_log_var_scaled])
    np.testing.assert_allclose(np.exp(0.5 * layer.kernel_log_var), [[0.2, 0.1], [0.2, 0.2]], rtol=1e-5)


@pytest.mark.slow
def test_compiled_by_xla_and_evaluated_without_the_kl(rng: np.random.Generator) -> None:
    layers = [
        keras.Input([12]),
        bc.DenseGNJ(5, num_train=32, kl="exact", activation="relu", seed=1),
        bc.DenseGHS(4, num_train=32, activation="relu", seed=2),
        bc.DenseSVD(3, num_train=32, kl="exact", seed=3),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=True)
    x, y = rng.normal(size=(32, 12)).astype("float32"), rng.integers(0, 3, size=32)
    before = float(bc.kl_divergence(model))
    history = model.fit(x, y, epochs=3, batch_size=16, verbose=0).history["loss"]
    assert np.all(np.isfinite(history))
    assert float(bc.kl_divergence(model)) < before
    assert model.evaluate(x, y, verbose=0) == pytest.approx(float(loss(y, model(x))), rel=1e-5)


def test_gradients_are_finite_where_all_inputs_are_zero(rng: np.random.Generator) -> None:
    for kind in (bc.DenseGNJ, bc.DenseGHS, bc.DenseSVD, bc.Conv2DGNJ):
        layer, x = built(kind, rng)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(np.zeros_like(x), training=True))) + tf.add_n(layer.losses)
        assert all(np.all(np.isfinite(g)) for g in tape.gradient(loss, layer.trainable_weights))


def test_scale_speed_moves_log_variances_faster(rng: np.random.Generator) -> None:
    moved = {}
    for speed in (1.0, 4.0):
        layer = bc.DenseGNJ(2, num_train=10, seed=0, scale_speed=speed)
        layer.build((None, 3))
        optimizer = keras.optimizers.Adam(0.01)
        start = layer.z_log_var.numpy()
        np.testing.assert_allclose(start, -18.0, rtol=1e-6)
        with tf.GradientTape() as tape:
            loss = layer.kl_divergence()
        optimizer.apply(tape.gradient(loss, [layer.z_log_var_scaled]), [layer.z_log_var_scaled])
        moved[speed] = layer.z_log_var.numpy() - start
    np.testing.assert_allclose(moved[4.0], 4.0 * moved[1.0], rtol=1e-3)
    np.testing.assert_allclose(moved[1.0], 0.01, rtol=1e-3)


def test_shared_layer_is_refused() -> None:
    inputs, layer = keras.Input([4]), bc.DenseGNJ(4, num_train=10, name="twin")
    model = keras.Model(inputs, layer(layer(inputs)))
    with pytest.raises(ValueError, match="twin is called twice in one pass"):
        model(np.zeros((2, 4), np.float32), training=True)


@pytest.mark.parametrize("num_train", [0, -5, math.nan, math.inf, True])
def test_wrong_num_train_is_refused(num_train: float) -> None:
    with pytest.raises(ValueError, match="num_train must be the number of training examples"):
        bc.DenseGNJ(3, num_train=num_train)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale_speed": 0.0}, "scale_speed must be a positive number"),
        ({"std_cap": -1.0}, "std_cap must be a positive number"),
        ({"kl": "both"}, 'kl must be "approximate"'),
        ({"units": 0}, "units must be a positive integer"),
        ({"dtype": "mixed_float16"}, "needs one dtype"),
    ],
)
def test_wrong_arguments_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bc.DenseGNJ(**{"units": 3, "num_train": 10, **settings})


def test_numbers_of_numpy_are_saved_as_numbers() -> None:
    layer = bc.DenseGNJ(np.int64(3), num_train=np.int64(10), std_cap=np.float32(0.5), seed=np.int64(1))
    assert json.loads(json.dumps(layer.get_config())) == layer.get_config()


def test_more_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="num_train"):
        bc.DenseGNJ(3)
    with pytest.raises(ValueError, match="tau0 must be a positive number"):
        bc.DenseGHS(3, num_train=10, tau0=0.0)
    with pytest.raises(ValueError, match='initial_scales must be "beta" or "paper"'):
        bc.DenseGHS(3, num_train=10, initial_scales="alpha")
    with pytest.raises(ValueError, match="padding must be"):
        bc.Conv2DGNJ(3, 3, num_train=10, padding="causal")
    with pytest.raises(ValueError, match=r"inputs of shape \[batch, ..., features\], got \(2,\)"):
        bc.DenseGNJ(3, num_train=10)(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"inputs of shape \[batch, length, channels\], got \(2, 4\)"):
        bc.Conv1DGNJ(3, 2, num_train=10)(np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match="has kernels of"):
        keras.Sequential([keras.Input([2, 5, 1]), bc.Conv2DGNJ(3, 3, num_train=10)])
    with pytest.raises(ValueError, match="has no Bayesian layer"):
        bc.kl_divergence(keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]))
