"""What is reported of a DARN, against formulas in NumPy: its unit, its rows and its parameters."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn import report
from darn.model.description_length import DescriptionLength, description_length, importance_log_likelihood
from darn.model.model import DARN, DARNConfig
from darn.more.distribution import MAX_EXACT_UNITS
from darn.report import ReportConfig
from darn.train.training import Observed, Trainer, TrainingConfig
from gpflow_deep_base.text import aligned, within
from tests.terminal import check_width

N_X, N_H = 6, 3
LOG_2 = np.log(2.0)


def seeds_of(seed: tf.Tensor) -> Callable[[str], tf.Tensor]:
    """Streams by name, and the names that were asked for."""
    names: list[str] = []

    def seeds(name: str) -> tf.Tensor:
        names.append(name)
        return tf.random.experimental.stateless_fold_in(seed, sum(name.encode()))

    seeds.names = names  # type: ignore[attr-defined]
    return seeds


def parts_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parts of different rates and sizes, so that none can be taken for another."""
    rates = {"train": 0.2, "valid": 0.5, "test": 0.8}
    sizes = {"train": 40, "valid": 25, "test": 31}
    return {name: (rng.uniform(size=(sizes[name], N_X)) < rate).astype(np.uint8) for name, rate in rates.items()}


def coin_model(bias: np.ndarray) -> DARN:
    """h are fair coins whatever x is, and x are independent bits whose logits are `bias`, whatever h is."""
    model = DARN(DARNConfig(N_X, (N_H,), visible_conditional="factorial", dtype="float64"))
    for variable in model.variables:
        variable.assign(tf.zeros_like(variable))
    model.decoders[0].conditional.bias.assign(bias)
    return model


def nll_of_bits(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """-log p(x) of independent bits, nats."""
    p = 1.0 / (1.0 + np.exp(-bias))
    return -(x * np.log(p) + (1 - x) * np.log(1 - p)).sum(axis=1)


def random_model(rng: np.random.Generator, scale: float = 1.0, **config: Any) -> DARN:
    model = DARN(
        DARNConfig(N_X, **{"hidden": (N_H,), "visible_conditional": "factorial", "dtype": "float64", **config})
    )
    for variable in model.trainable_variables:
        variable.assign(scale * rng.normal(size=variable.shape))
    return model


def enumerated_nll(model: DARN, x: np.ndarray) -> np.ndarray:
    """-log p(x) of a model with a linear prior and a factorial decoder without deterministic units, nats."""
    W, b = model.decoders[0].network.kernels[0].numpy(), model.decoders[0].conditional.bias.numpy()
    U, c = np.triu(model.prior.weights.numpy(), 1), model.prior.bias.numpy()
    total = np.full(len(x), -np.inf)
    for state in itertools.product([0.0, 1.0], repeat=N_H):
        h = np.array(state)
        a = c + h @ U
        log_p = (h * a - np.logaddexp(0, a)).sum()
        logits = b + (2 * h - 1) @ W
        total = np.logaddexp(total, log_p + (x * logits - np.logaddexp(0, logits)).sum(axis=1))
    return -total


def test_description_lengths_have_their_units_rows_and_parts(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Of fair coins a hidden bit costs one bit, and bits back returns it; the rest is independent bits."""
    bias, parts = rng.normal(size=N_X), parts_of(rng)
    found = report.final(coin_model(bias), parts, seeds_of(seed), ReportConfig(final_samples=2))
    for name, x in parts.items():
        nats = nll_of_bits(x, bias).mean()
        assert found[f"{name}/description_length_nats"] == pytest.approx(nats)
        assert found[f"{name}/description_length_bits"] == pytest.approx(nats / LOG_2)
        assert found[f"{name}/hidden_bits"] == pytest.approx(N_H)
        assert found[f"{name}/bits_back_bits"] == pytest.approx(-N_H)
        assert found[f"{name}/visible_bits"] == pytest.approx(nats / LOG_2)


def test_the_exact_likelihood_is_that_of_validation_and_test_rows(rng: np.random.Generator, seed: tf.Tensor) -> None:
    model, parts = random_model(rng), parts_of(rng)
    found = report.final(model, parts, seeds_of(seed))
    for name in ("valid", "test"):
        nll = enumerated_nll(model, parts[name])
        assert found[f"{name}/exact_nll_nats"] == pytest.approx(nll.mean())
        assert found[f"{name}/exact_nll_standard_error"] == pytest.approx(nll.std() / np.sqrt(len(nll)))
    assert "train/exact_nll_nats" not in found
    assert "test/is_nll_nats" not in found


def test_the_sampled_likelihood_is_that_of_the_test_rows(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """With q(h | x) = p(h | x) every weight is p(x), so the estimate is exact."""
    bias, parts = rng.normal(size=N_X), parts_of(rng)
    config = ReportConfig(exact="no", is_samples=3, is_repeats=2)
    found = report.final(coin_model(bias), parts, seeds_of(seed), config)
    nll = nll_of_bits(parts["test"], bias)
    assert found["test/is_nll_nats"] == pytest.approx(nll.mean())
    assert found["test/is_nll_95_interval"] == pytest.approx([nll.mean()] * 2)
    assert found["test/is_nll_standard_error"] == pytest.approx(nll.std() / np.sqrt(len(nll)))
    assert (found["is_samples"], found["is_rows"]) == (3, len(nll))
    assert "test/exact_nll_nats" not in found
    some = report.final(coin_model(bias), parts, seeds_of(seed), config, importance_rows=parts["test"][:4])
    assert some["test/is_nll_nats"] == pytest.approx(nll[:4].mean())
    assert some["is_rows"] == 4
    assert some["test/is_description_length_nats"] == pytest.approx(nll[:4].mean())  # q is the posterior: no gap
    assert some["test/is_effective_samples"] == pytest.approx(3)


def test_sampled_and_exact_agree_within_the_interval(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """The interval is 2.3 standard errors of ten repeats; the mean is beyond four times that in 8e-6 of all draws."""
    model, parts = random_model(rng, scale=0.3), parts_of(rng)
    config = ReportConfig(exact="no", is_samples=4000, is_repeats=10)
    found = report.final(model, parts, seeds_of(seed), config)
    low, high = found["test/is_nll_95_interval"]
    assert low < found["test/is_nll_nats"] < high
    half = (high - low) / 2
    assert abs(found["test/is_nll_nats"] - enumerated_nll(model, parts["test"]).mean()) < 4 * half
    assert half < 0.05


def test_sampling_goes_on_until_the_rows_are_what_is_uncertain(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """With q(h | x) = p(h | x) nothing is uncertain but the rows; with weights that vary more and more samples are
    taken, and no more than the most."""
    said: list[str] = []
    parts = parts_of(rng)
    found = report.final(
        coin_model(rng.normal(size=N_X)), parts, seeds_of(seed), ReportConfig(exact="no"), say=said.append
    )
    assert found["is_samples"] == 100
    assert [line.split(": ")[1].split(" importance")[0] for line in said[1:]] == ["100"]
    far = random_model(rng, scale=4.0)
    same = np.repeat(parts["test"][:1], 40, axis=0)  # rows that do not differ: their standard error is that of sampling
    said.clear()
    config = ReportConfig(exact="no", is_repeats=30)  # F(29, 39) is below 1/9 in 1e-8 of all cases
    found = report.importance_scalars("test", far, same, seed, config, say=said.append)
    assert found["is_samples"] == 1000
    assert len(said) == 3
    assert "about" in said[-1]


def test_the_bias_is_seen_in_the_repeats(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """By enumeration: the mean of log p^ of few samples is low by what all samples together add."""
    model, parts = random_model(rng, scale=1.0), parts_of(rng)
    estimated = importance_log_likelihood(model, parts["test"], seed=seed, num_samples=2, repeats=200)
    truth = -enumerated_nll(model, parts["test"]).mean()
    assert estimated.bias > 0
    assert truth - estimated.mean == pytest.approx(estimated.bias, abs=5 * estimated.standard_error)


def test_no_likelihood_is_estimated_if_none_is_wanted(rng: np.random.Generator, seed: tf.Tensor) -> None:
    found = report.final(random_model(rng), parts_of(rng), seeds_of(seed), ReportConfig(exact="no", is_samples=0))
    assert not [name for name in found if "nll" in name]


def test_evaluations_are_of_the_averaged_parameters(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """The mean of the parameters is that of a model of coins; the parameters themselves are others."""
    bias, parts, model = rng.normal(size=N_X), parts_of(rng), random_model(rng)
    trainer = Trainer(model, TrainingConfig(average=0.9), num_data=40)
    model.visible_mean.assign(np.zeros(N_X))
    for average, wanted in zip(trainer.averages, coin_model(bias).trainable_variables, strict=True):
        average.assign(wanted)
    found = report.evaluate(trainer, {"train": parts["train"], "valid": parts["valid"]}, seeds_of(seed))
    for name in ("train", "valid"):
        assert found[f"{name}/description_length_nats"] == pytest.approx(nll_of_bits(parts[name], bias).mean())
        assert found[f"{name}/hidden_bits"] == pytest.approx(N_H)
    assert 0 < found["estimator/relative_std"] < np.inf


def test_evaluations_draw_the_same_h_each_time(rng: np.random.Generator, seed: tf.Tensor) -> None:
    trainer, parts = Trainer(random_model(rng), TrainingConfig(), num_data=40), parts_of(rng)
    seeds = seeds_of(seed)
    first, second = (report.evaluate(trainer, parts, seeds, 2) for _ in range(2))
    assert first == second
    lengths = description_length(trainer.model, parts["valid"], seed=seeds("eval/valid"), num_samples=2)
    assert first["valid/description_length_nats"] == lengths.total.mean()


def test_training_scalars_are_means_over_the_steps() -> None:
    values = {name: np.array([1.0, 3.0]) * (i + 1) for i, name in enumerate(Observed._fields)}
    found = report.training_scalars(Observed(**values))
    assert found == pytest.approx(
        {
            "train/objective_nats": 2.0,
            "train/batch_hidden_bits": 4.0 / LOG_2,
            "train/batch_bits_back_bits": 6.0 / LOG_2,
            "train/batch_visible_bits": 8.0 / LOG_2,
            "train/batch_description_length_bits": 18.0 / LOG_2,
            "train/activity": 10.0,
            "train/gradient_norm": 18.0,
        }
    )


def test_the_cost_of_a_sample_is_reported_where_it_is_defined(rng: np.random.Generator, seed: tf.Tensor) -> None:
    parts = parts_of(rng)
    found = report.final(coin_model(np.zeros(N_X)), parts, seeds_of(seed))
    assert found["active_units_per_sample"] == pytest.approx(N_H / 2, abs=5 * np.sqrt(N_H / 4 / 1000))
    assert found["multiplications_per_sample"] == pytest.approx(found["active_units_per_sample"] * (N_H + N_X))
    for config in ({"units": (2,)}, {"hidden": (2, 2)}, {"hidden": ()}, {"prior": "nade"}):
        assert "multiplications_per_sample" not in report.final(random_model(rng, **config), parts, seeds_of(seed))


@pytest.mark.parametrize(
    ("hidden", "num_rows", "exact", "expected"),
    [
        (MAX_EXACT_UNITS + 1, 1, "auto", False),
        (MAX_EXACT_UNITS, 10, "auto", True),
        (MAX_EXACT_UNITS, 10**9, "auto", False),
        (2, 10**12, "yes", True),
        (2, 1, "no", False),
    ],
)
def test_what_is_enumerated(hidden: int, num_rows: int, exact: str, expected: bool) -> None:
    assert report.wants_exact(DARN(DARNConfig(N_X, (hidden,))), exact, num_rows) is expected


def test_an_impossible_exact_likelihood_is_refused_at_once() -> None:
    config = ReportConfig(exact="yes")
    config.check(DARN(DARNConfig(N_X, (16,))))
    with pytest.raises(ValueError, match="exact=yes needs at most 16 stochastic units, got 17"):
        config.check(DARN(DARNConfig(N_X, (9, 8))))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"final_samples": 0}, "final_samples must be at least 1, got 0"),
        ({"is_samples": -1}, "is_samples must be at least 0, got -1"),
        ({"is_repeats": 1}, "is_repeats must be at least 2, got 1"),
        ({"exact": "perhaps"}, "exact must be auto, yes or no, got 'perhaps'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReportConfig(**settings)


def test_the_text_says_what_the_numbers_are() -> None:
    lengths = DescriptionLength(*(np.array([value]) for value in (4.0, 3.0, -1.0, 2.0)))
    result: dict[str, Any] = {}
    for name in ("train", "valid", "test"):
        result |= report.length_scalars(name, lengths)
    titles, *rows = report.table(result)
    assert titles == ["", "nats", "length", "hidden", "bits back", "visible", "kl"]
    expected = [f"{value:.3f}" for value in (4.0, 4 / LOG_2, 3 / LOG_2, -1 / LOG_2, 2 / LOG_2, 2 / LOG_2)]
    assert rows == [[name, *expected] for name in ("train", "valid", "test")]
    assert report.notes(result) == []
    result |= {"test/exact_nll_nats": 3.5, "test/exact_nll_standard_error": 0.25}
    result |= {"test/is_nll_nats": 3.625, "test/is_nll_95_interval": [3.5, 3.75], "test/is_nll_standard_error": 0.5}
    result |= {"is_samples": 7, "is_rows": 3, "multiplications_per_sample": 120.0, "active_units_per_sample": 1.5}
    result |= {"test/is_description_length_nats": 4.125, "test/is_effective_samples": 5.25}
    wide = {name: 12345.678 * number for name, number in result.items() if isinstance(number, float)}
    assert max(map(len, aligned(report.table(wide)).splitlines())) <= 80
    check_width(within("\n".join([report.CAPTION, *report.notes(result)])))
    assert report.notes(result) == [
        "test negative log-likelihood: 3.500 nats, exact (rows: ± 0.250)",
        "test negative log-likelihood: 3.625 nats by 7 importance samples for each of 3 rows, 95 % interval 3.500 to "
        "3.750 (rows: ± 0.500); description length of these rows: 4.125",
        "of the importance samples of a row only 5.2 count (median): the likelihood is higher than this says, by an "
        "unknown amount; take more samples (--is_samples)",
        "a sample costs 120 multiplications (1.5 active units)",
    ]


def test_curves_hold_what_was_logged_of_each_part() -> None:
    records: list[dict[str, Any]] = [
        {"step": 10, "train/objective_nats": 1.0},
        {
            "step": 20,
            "train/description_length_bits": 5.0,
            "valid/description_length_bits": 6.0,
            "valid/hidden_bits": 2,
        },
        {"step": 40, "train/description_length_bits": 4.0, "valid/description_length_bits": None},
    ]
    found = report.curves(records, DARN(DARNConfig(N_X, (2,))))
    assert found["description length"] == {"train": ([20, 40], [5.0, 4.0]), "valid": ([20], [6.0])}
    assert found["validation, parts"] == {"hidden": ([20], [2.0]), "bits_back": ([], []), "visible": ([], [])}
    assert set(report.curves(records, DARN(DARNConfig(N_X, ())))) == {"description length"}
