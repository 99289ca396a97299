"""What Python, NumPy and TensorFlow users expect of a model: copies, pickles, integers as seeds, graphs made once."""

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import darn
from darn.model.autoregressive import sample
from gpflow_deep_base.seeds import as_seed

N_X = 6


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2, (30, N_X)).astype(np.uint8)


@pytest.fixture
def model(x: np.ndarray) -> darn.DARN:
    return darn.DARN(darn.DARNConfig(visible=N_X, hidden=(3,), dtype="float64"), seed=1, data=x)


def lengths(model: darn.DARN, x: np.ndarray) -> np.ndarray:
    return darn.description_length(model, x, seed=5).total


def test_copies_and_pickles_after_use(model: darn.DARN, x: np.ndarray) -> None:
    before = lengths(model, x)
    darn.exact_log_likelihood(model, x)
    darn.importance_log_likelihood(model, x, seed=0, num_samples=10, repeats=2)
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(lengths(same, x), before)
        same.visible_mean.assign_add(tf.ones([N_X], tf.float64))
        assert not np.array_equal(lengths(same, x), before)
        np.testing.assert_array_equal(lengths(model, x), before)


def test_integers_are_seeds(model: darn.DARN, x: np.ndarray) -> None:
    pair = tf.constant([0, 7])
    np.testing.assert_array_equal(model.sample(4, 7).x, model.sample(4, pair).x)
    np.testing.assert_array_equal(sample(model, 4, seed=7).x, sample(model, 4, seed=pair).x)
    for of in (
        lambda seed: darn.description_length(model, x, seed=seed).total,
        lambda seed: darn.importance_log_likelihood(model, x, seed=seed, num_samples=5, repeats=2).repeats,
        lambda seed: model.encoder_noise(3, seed)[0],
    ):
        np.testing.assert_array_equal(of(7), of(pair))
        assert not np.array_equal(of(7), of(8))
    assert as_seed(2**31 + 5).numpy().tolist() == [1, 5]
    assert as_seed(np.int64(3)).numpy().tolist() == [0, 3]
    for wrong, message in (
        (-1, "from 0 to 2"),
        (2**62, "from 0 to 2"),
        ([1, 2, 3], "shape"),
        ("a", "integer"),
        (None, "integer"),
    ):
        with pytest.raises(ValueError, match=message):
            as_seed(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["linear", "eonade", "none", "many"])
def test_log_prob_is_the_likelihood(kind: str, x: np.ndarray) -> None:
    """By enumeration; and with 17 units by sampling, where the weights of these are all p(x)."""
    configs: dict[str, dict[str, Any]] = {
        "linear": {"hidden": (3, 4)},
        "eonade": {"hidden": (2,), "visible_conditional": "eonade", "conditional_units": 3, "orders": 2},
        "none": {"hidden": ()},
        "many": {"hidden": (17,)},
    }
    model = darn.DARN(darn.DARNConfig(visible=N_X, dtype="float64", **configs[kind]), seed=1, data=x)
    if kind == "many":  # h are coins that nothing depends on
        for part in (model.prior, model.encoders[0], model.decoders[0].network):
            for variable in part.trainable_variables:
                variable.assign(tf.zeros_like(variable))
        log_p = model.log_visible(tf.constant(x, tf.float64), (tf.zeros([len(x), 17], tf.float64),)).numpy()
    else:
        log_p = darn.exact_log_likelihood(model, x)
    np.testing.assert_allclose(model.log_prob(x, num_samples=5), log_p)
    np.testing.assert_allclose(model.log_prob(x[:6].reshape(2, 3, N_X), num_samples=5), log_p[:6].reshape(2, 3))
    with pytest.raises(ValueError, match="num_samples must be at least 1"):
        model.log_prob(x, num_samples=0)


@pytest.mark.filterwarnings("ignore:of the .* importance samples")
def test_a_row_is_worth_the_same_beside_other_rows(x: np.ndarray) -> None:
    model = darn.DARN(darn.DARNConfig(visible=N_X, hidden=(17,), dtype="float64"), seed=1, data=x)
    log_p = model.log_prob(x, num_samples=50, seed=3)
    np.testing.assert_allclose(model.log_prob(x[7:9], num_samples=50, seed=3), log_p[7:9], rtol=1e-12)
    estimated = darn.importance_log_likelihood(model, x, seed=0, num_samples=2000, repeats=2)
    np.testing.assert_allclose(model.log_prob(x, num_samples=2000), estimated.log_likelihood, atol=0.3)


def test_few_samples_that_count_are_warned_of(x: np.ndarray) -> None:
    """An encoder that is nearly sure of one code, where all codes are alike: a few draws have all the weight."""
    model = darn.DARN(darn.DARNConfig(visible=N_X, hidden=(17,), dtype="float64"), seed=1, data=x)
    model.encoders[0].conditional.bias.assign(tf.fill([17], tf.constant(4.0, tf.float64)))
    with pytest.warns(
        UserWarning, match=r"of the 200 importance samples of a row only .* count.*\(num_samples\)"
    ) as found:
        model.log_prob(x, num_samples=200)
    assert len(found) == 1
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.function(model.log_prob)(tf.constant(x, tf.float64), num_samples=200)


def test_it_is_a_distribution(model: darn.DARN, x: np.ndarray) -> None:
    distribution = model.as_distribution()
    assert distribution.event_shape == [N_X]
    assert distribution.batch_shape == []
    np.testing.assert_allclose(distribution.log_prob(x), darn.exact_log_likelihood(model, x))
    drawn = distribution.sample((2, 3), seed=4)
    assert drawn.shape == [2, 3, N_X]
    shaped = model.sample((2, 3), seed=7)
    np.testing.assert_array_equal(shaped.x, tf.reshape(model.sample(6, seed=7).x, [2, 3, N_X]))
    assert shaped.h[0].shape == [2, 3, 3]


def test_a_saved_model_scores_and_draws(model: darn.DARN, x: np.ndarray, tmp_path: Path) -> None:
    darn.export(model, tmp_path / "saved")
    signatures = tf.saved_model.load(str(tmp_path / "saved")).signatures
    found = signatures["log_prob"](x=tf.constant(x, tf.float64))["log_prob"]
    np.testing.assert_allclose(found, darn.exact_log_likelihood(model, x))
    drawn = signatures["sample"](num=tf.constant(5), seed=tf.constant([0, 7]))["x"]
    np.testing.assert_array_equal(drawn, model.sample(5, seed=7).x)


def test_a_graph_is_made_once(model: darn.DARN, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by how often Python runs through the parts of the model."""
    trainer = darn.Trainer(model, darn.TrainingConfig(), num_data=len(x))
    counts = {"visible": 0, "steps": 0}
    visible, step = darn.DARN.visible_offset, darn.Trainer.step

    def counted_visible(self: darn.DARN, h: Any) -> Any:
        counts["visible"] += 1
        return visible(self, h)

    def counted_step(self: darn.Trainer, x: tf.Tensor, seed: tf.Tensor, **options: Any) -> object:
        counts["steps"] += 1
        return step(self, x, seed, **options)

    monkeypatch.setattr(darn.DARN, "visible_offset", counted_visible)
    monkeypatch.setattr(darn.Trainer, "step", counted_step)
    run, rows = trainer.compiled_steps(), np.zeros((3, 10), np.int32)
    for count in (1, 2, 3):
        run(x, rows, count, count)
    assert counts["steps"] == 1
    for call in (
        lambda seed: darn.importance_log_likelihood(model, x, seed=seed, num_samples=5, repeats=2),
        lambda seed: darn.exact_log_likelihood(model, x),
        lambda seed: darn.description_length(model, x, seed=seed),
    ):
        call(0)
        counts["visible"] = 0
        call(1)
        assert counts["visible"] == 0
    for N in range(1, 5):
        darn.importance_log_likelihood(model, x[:N], seed=0, num_samples=5, repeats=2)
    assert counts["visible"] == 0


def test_steps_refuse_data_that_are_not_of_the_model(model: darn.DARN, x: np.ndarray) -> None:
    trainer = darn.Trainer(model, darn.TrainingConfig(), num_data=len(x))
    before = [variable.numpy() for variable in trainer.variables]
    rows = np.zeros((1, 10), np.int32)
    for wrong, message in (
        (x * 2.0, "0 or 1 everywhere, got 2"),
        (np.where(x, np.nan, 0.0), "missing values"),
        (x[:, 1:], "6 columns"),
    ):
        for call in (
            lambda data: trainer.compiled_steps()(data, rows, 1, 0),
            lambda data: trainer.compiled_steps()(tf.constant(data), rows, 1, 0),
            lambda data: trainer.advance(data, rows, 0),
        ):
            with pytest.raises(ValueError, match=message):
                call(wrong)
    for variable, value in zip(trainer.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    trainer.advance(x, rows, 0)


def test_an_array_that_has_changed_in_place_is_looked_at_again(model: darn.DARN, x: np.ndarray) -> None:
    trainer, data, rows = (
        darn.Trainer(model, darn.TrainingConfig(), num_data=len(x)),
        x.astype(float),
        np.zeros((1, 10)),
    )
    trainer.advance(data, rows.astype(int), 0)
    before = [variable.numpy() for variable in trainer.variables]
    data[0, 0] = np.nan
    with pytest.raises(ValueError, match="0 or 1 everywhere, got nan in row 0, column 0"):
        trainer.advance(data, rows.astype(int), 0)
    for variable, value in zip(trainer.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_steps_refuse_rows_that_are_not_there(model: darn.DARN, x: np.ndarray) -> None:
    trainer = darn.Trainer(model, darn.TrainingConfig(), num_data=len(x))
    for wrong in (30, -1):
        with pytest.raises(ValueError, match=f"rows must be from 0 to 29, those of data, got .*{wrong}"):
            trainer.advance(x, np.array([[0, wrong]]), 0)


def test_log_prob_refuses_rows_of_something_else(model: darn.DARN, x: np.ndarray) -> None:
    for log_prob in (model.log_prob, model.as_distribution().log_prob):
        for wrong, message in (
            (2.0 + x, "x must be 0 or 1 everywhere, got 2"),
            (tf.constant(x * np.nan), "got nan in row 0"),
            (x[:, 1:], "x must have 6 columns, one a visible unit, got shape"),
            (1.0, "x must have 6 columns"),
        ):
            with pytest.raises(ValueError, match=message):
                log_prob(wrong)
        with pytest.raises(ValueError, match="x must have 6 columns"):
            tf.function(log_prob)(tf.constant(x[:, 1:], tf.float64))
    assert model.log_prob(x[:0]).shape == [0]
    checked = tf.function(model.as_distribution(validate_args=True).log_prob)
    np.testing.assert_allclose(checked(tf.constant(x, tf.float64)), model.log_prob(x))
    with pytest.raises(tf.errors.InvalidArgumentError, match="x must be 0 or 1 everywhere"):
        checked(tf.constant(2.0 + x))


def test_settings_that_nothing_uses_are_refused() -> None:
    with pytest.raises(ValueError, match=r"units=\(5,\) lie between stochastic layers"):
        darn.DARNConfig(visible=4, hidden=(), units=(5,))
    with pytest.raises(ValueError, match="conditional_units=7 is for the conditionals eonade, made, nade"):
        darn.DARNConfig(visible=4, conditional_units=7)
    with pytest.raises(ValueError, match="orders=3 is for the conditionals eonade, made"):
        darn.DARNConfig(visible=4, orders=3, visible_conditional="nade")
    with pytest.raises(ValueError, match="conditional_units=7"):
        darn.DARNConfig(visible=4, hidden=(), conditional_units=7, prior="nade")
    for fields in ({"encoder": "linear"}, {"prior": "made"}, {"skip": True}):
        with pytest.raises(ValueError, match="is of stochastic layers, and there are none with hidden="):
            darn.DARNConfig(visible=4, hidden=(), **fields)
    for hidden in ((), (3,)):
        with pytest.raises(ValueError, match="activation='relu' is of deterministic units, and there are none"):
            darn.DARNConfig(visible=4, hidden=hidden, activation="relu")
    used = darn.DARNConfig(visible=4, conditional_units=7, orders=3, prior="eonade")
    assert darn.DARNConfig.from_json(used.to_json()) == used
    with pytest.raises(ValueError, match="conditional_units=7 is for the conditionals"):
        darn.DARNConfig.from_json(used.to_json().replace("eonade", "linear"))


@pytest.mark.parametrize("sizes", [5, (5.7,), (True,), "5", None, ([4, 3],)])
def test_numbers_of_units_are_whole_numbers_one_a_layer(sizes: Any) -> None:
    for name in ("hidden", "units"):
        with pytest.raises(ValueError, match=f"{name} must be whole numbers of units, as .*, got"):
            darn.DARNConfig(visible=4, **{name: sizes})
    for config in (darn.LocalConfig, darn.PixelCNNConfig):
        with pytest.raises(ValueError, match=r"image_shape of .* must be whole numbers, as .*, got"):
            config(image_shape=sizes)


@pytest.mark.parametrize("categories", [5, ((0, 1),), ((0, 1, 2),), (3, 4)])
def test_categories_are_columns_and_whether_one_is_always_1(categories: Any) -> None:
    with pytest.raises(ValueError, match="categories must be pairs of columns and whether one is always 1, got"):
        darn.DARNConfig(visible=4, hidden=(), categories=categories)
