"""What is said of an RBM's log-likelihood, against enumeration in NumPy; which evaluation is the best, by hand."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from rbm_tracking import evidence
from rbm_tracking.evidence import Choice, EvidenceConfig
from rbm_tracking.learning import Observed, SMLConfig, initial_state
from rbm_tracking.rbm import RBM
from rbm_tracking.serialization import SavedRBM
from rbm_tracking.tempering import linear_ladder
from rbm_tracking.tracker import FLAGS, TRAILS
from rbm_tracking.training import Trainer
from tests.rbm_tracking import oracles

N_V, N_H = 6, 4
CONFIG = EvidenceConfig(ais_betas="200", final_ais_betas="200", ais_chains=50)
ESS = 2 ** FLAGS.index("ess")


class Best(NamedTuple):
    """What a training loop keeps of the best evaluation."""

    step: int = -1
    value: float = math.inf
    num_worse: int = 0
    std: float = 0.0
    is_trusted: bool = True


def parts_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parts of different rates and sizes, so that none can be taken for another."""
    rates = {"train": 0.2, "valid": 0.5, "test": 0.8}
    sizes = {"train": 40, "valid": 25, "test": 31}
    return {name: (rng.uniform(size=(sizes[name], N_V)) < rate).astype(np.uint8) for name, rate in rates.items()}


def tracked(parameters: oracles.Parameters, rows: np.ndarray, seed: tf.Tensor, log_z: float = 3.25) -> Trainer:
    """An RBM in training whose tracked log Z is `log_z`, with a standard deviation of 0.5."""
    state = initial_state(RBM(*map(tf.constant, parameters)), linear_ladder(3), 8, seed=seed, data=rows)
    mean, cov = state.tracker.mean.numpy(), state.tracker.cov.numpy()
    mean[0], cov[0, 0] = log_z, 0.25
    tracker = state.tracker._replace(mean=tf.constant(mean), cov=tf.constant(cov))
    return Trainer(state._replace(tracker=tracker), SMLConfig(), jit_compile=False)


def flag(trainer: Trainer, flags: int) -> Trainer:
    """As after an update that had these health flags."""
    fields = dict.fromkeys(Observed._fields, np.zeros([2]))
    trainer.observed = Observed(**{**fields, "flags": np.array([0.0, flags]), "swap_rate": np.zeros([2, 2])})
    return trainer


def log_q(parameters: oracles.Parameters, v: np.ndarray) -> np.ndarray:
    """log sum_h exp(-E(v, h)), nats, one state of h after the other."""
    W, b, c = parameters
    h = oracles.binary_vectors(len(c))
    return logsumexp(h @ c + v @ W.T @ h.T, axis=1) + v @ b


# In training


def test_log_likelihoods_are_those_of_their_rows(rng: np.random.Generator, seed: tf.Tensor) -> None:
    parameters, parts = oracles.random_rbm(rng, N_H, N_V), parts_of(rng)
    found = evidence.evaluate(tracked(parameters, parts["train"], seed), {k: parts[k] for k in ("train", "valid")})
    for name in ("train", "valid"):
        expected = (log_q(parameters, parts[name]) - 3.25).mean()
        assert found[f"{name}/log_likelihood_nats"] == pytest.approx(expected)
    highest = max(log_q(parameters, parts[name]).max() for name in ("train", "valid")) - 3.25
    assert found["tracker/highest_log_p_nats"] == pytest.approx(highest)
    assert set(found) == {"train/log_likelihood_nats", "valid/log_likelihood_nats", "tracker/highest_log_p_nats"}


@pytest.mark.parametrize("ess", [4.9, 5.0])
def test_a_flagged_log_z_is_put_beside_that_of_ais(ess: float, rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Where AIS has a tenth of its chains left, the highest log p is by AIS, too."""
    parameters, parts = oracles.random_rbm(rng, N_H, N_V), parts_of(rng)
    trainer = flag(tracked(parameters, parts["train"], seed), ESS | TRAILS)
    by_ais = {"ais/log_z_nats": 4.5, "ais/log_z_std_nats": 0.1, "ais/ess": ess}
    found = evidence.evaluate(trainer, {"valid": parts["valid"]}, CONFIG, lambda: by_ais)
    values = log_q(parameters, parts["valid"])
    assert found["valid/log_likelihood_nats"] == pytest.approx(values.mean() - 3.25)
    assert found["valid/ais_log_likelihood_nats"] == pytest.approx(values.mean() - 4.5)
    assert found["tracker/highest_log_p_nats"] == pytest.approx(values.max() - (4.5 if ess >= 5 else 3.25))
    assert {name: found[name] for name in by_ais} == by_ais
    assert set(by_ais) == {"ais/log_z_nats", "ais/log_z_std_nats", "ais/ess"}  # which is left as it was


@pytest.mark.parametrize("flags", [0, TRAILS])
def test_ais_is_not_asked_without_a_reason(flags: int, rng: np.random.Generator, seed: tf.Tensor) -> None:
    parts = parts_of(rng)
    trainer = flag(tracked(oracles.random_rbm(rng, N_H, N_V), parts["train"], seed), flags)

    def never() -> dict[str, float]:
        raise AssertionError("asked")

    assert "ais/ess" not in evidence.evaluate(trainer, {"valid": parts["valid"]}, CONFIG, never)
    assert "ais/ess" not in evidence.evaluate(flag(trainer, ESS), {"valid": parts["valid"]}, CONFIG)


def test_a_row_more_probable_than_one_is_worth_a_warning() -> None:
    assert evidence.warning(7, {"tracker/highest_log_p_nats": 0.0}) is None
    found = evidence.warning(7, {"tracker/highest_log_p_nats": 2.53})
    assert found is not None
    assert found.startswith("update 7: log Z is too low by 2.5 nats or more")


def test_exact_log_z_is_that_of_all_states(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, N_H, N_V)
    found = evidence.exact_scalars(RBM(*map(tf.constant, parameters)))
    assert found == {"exact/log_z_nats": pytest.approx(oracles.log_z(parameters))}
    assert evidence.exact_scalars(RBM(*map(tf.constant, oracles.random_rbm(rng, 26, 26)))) == {}


def test_ais_is_a_function_of_seed_and_update(rng: np.random.Generator, seed: tf.Tensor) -> None:
    parameters, train = oracles.random_rbm(rng, N_H, N_V, scale=0.5), parts_of(rng)["train"]
    state = tracked(parameters, train, seed).state
    first, again = (evidence.ais_scalars(state, train, CONFIG, seed) for _ in range(2))
    other = evidence.ais_scalars(state._replace(step=tf.constant(1)), train, CONFIG, seed)
    assert first == again
    assert first["ais/log_z_nats"] != other["ais/log_z_nats"]
    for found in (first, other):  # log of a mean weight of 50 chains, whose distribution is close to normal
        error = found["ais/log_z_nats"] - oracles.log_z(parameters)
        assert abs(error) < 6 * found["ais/log_z_std_nats"] < 0.6
        assert 5 < found["ais/ess"] <= 50


# Which evaluation is the best


def logged(value: float, std: float, flags: int = 0, highest: float = -1.0, **ais: float) -> dict[str, float]:
    scalars = {"valid/log_likelihood_nats": value, "tracker/log_z_std_nats": std, "tracker/flags": float(flags)}
    scalars |= {"tracker/highest_log_p_nats": highest}
    if ais:
        scalars["valid/ais_log_likelihood_nats"] = ais["by_ais"]
        scalars |= {"ais/log_z_std_nats": ais["ais_std"], "ais/ess": ais["ess"]}
    return scalars


@pytest.mark.parametrize(
    ("scalars", "expected"),
    [
        (logged(-5.0, 0.25), Choice(-5.0, 0.25, False, True)),
        (logged(-5.0, 0.25, TRAILS), Choice(-5.0, 0.25, False, True)),
        (logged(-5.0, 0.25, ESS), Choice(-5.0, 0.25, True, True)),
        (logged(-5.0, 0.25, ESS, by_ais=-7.0, ais_std=0.125, ess=5.0), Choice(-7.0, 0.125, False, True)),
        (logged(-5.0, 0.25, ESS, by_ais=-7.0, ais_std=0.125, ess=4.9), Choice(-5.0, 0.25, True, True)),
        (logged(-5.0, 0.25, 0, by_ais=-7.0, ais_std=0.125, ess=50.0), Choice(-5.0, 0.25, False, True)),
        (logged(-5.0, 0.5, highest=0.8), Choice(-5.0, 0.5, False, True)),
        (logged(-5.0, 0.5, highest=0.9), Choice(-5.0, 0.5, False, False)),  # 1.645 times 0.5 is 0.82
    ],
)
def test_an_evaluation_is_chosen_by_what_may_be_trusted(scalars: dict[str, float], expected: Choice) -> None:
    assert evidence.choice(scalars, CONFIG) == expected


@pytest.mark.parametrize(
    ("new", "best", "expected"),
    [
        (Choice(-9.0, 0.1, False), Choice(), True),
        (Choice(-9.0, 0.1, True), Choice(), True),
        (Choice(-9.0, 0.1, False, False), Choice(), None),
        (Choice(-4.9, 0.1, False), Choice(-5.0, 0.1, False), True),
        (Choice(-5.0, 0.1, False), Choice(-5.0, 0.1, False), None),
        (Choice(-4.9, 0.3, False), Choice(-5.0, 0.1, False), None),  # the lower end is -5.39, below -5.16
        (Choice(-5.2, 0.1, False), Choice(-5.0, 0.1, False), None),  # 1.645 sqrt(0.02) is 0.23
        (Choice(-5.3, 0.1, False), Choice(-5.0, 0.1, False), False),
        (Choice(-5.3, 0.1, False, False), Choice(-5.0, 0.1, False), False),
        (Choice(-1.0, 0.1, True), Choice(-5.0, 0.1, False), False),  # flagged against trusted
        (Choice(-9.0, 0.1, False), Choice(-5.0, 0.1, True), True),  # trusted against flagged
        (Choice(-4.0, 0.1, True), Choice(-5.0, 0.1, True), True),
        (Choice(-9.0, 0.1, True), Choice(-5.0, 0.1, True), False),
    ],
)
def test_better_and_worse_are_beyond_the_errors(new: Choice, best: Choice, expected: bool | None) -> None:
    assert evidence.is_better(new, best) is expected


def test_the_rule_counts_evaluations_that_are_worse() -> None:
    rule, best = evidence.highest(CONFIG), Best()
    history = []
    for step, scalars in enumerate(
        [
            logged(-9.0, 0.1, highest=1.0),  # impossible
            logged(-8.0, 0.1, ESS),
            logged(-8.5, 0.1, ESS),
            logged(-9.0, 0.2),  # trusted, so better
            logged(-9.1, 0.2),  # open
            logged(-9.9, 0.1),
            logged(-5.0, 0.1, ESS),
            logged(-9.1, 0.2),
            logged(-9.9, 0.1),
            logged(-8.0, 0.1),
        ]
    ):
        best = rule(step, best, scalars)
        history.append(best)
    assert history == [
        Best(),
        Best(1, 8.0, 0, 0.1, False),
        Best(1, 8.0, 1, 0.1, False),
        Best(3, 9.0, 0, 0.2, True),
        Best(3, 9.0, 0, 0.2, True),
        Best(3, 9.0, 1, 0.2, True),
        Best(3, 9.0, 2, 0.2, True),
        Best(3, 9.0, 0, 0.2, True),
        Best(3, 9.0, 1, 0.2, True),
        Best(9, 8.0, 0, 0.1, True),
    ]


# At the end


def test_the_report_is_of_the_saved_parameters_and_of_each_part(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """The last state has other parameters; the estimates of log Z are of those that are reported."""
    parameters, parts = oracles.random_rbm(rng, N_H, N_V, scale=0.5), parts_of(rng)
    state = tracked(oracles.random_rbm(rng, N_H, N_V), parts["train"], seed).state
    saved = SavedRBM(RBM(*map(tf.constant, parameters)), 4.75, 0.125, np.array([1.0, 0.0]), 20)
    records = [
        {"step": 10, "tracker/flags": 0.0, "tracker/lag_nats": 9.0},
        {"step": 20, "tracker/flags": float(ESS | TRAILS), "tracker/lag_nats": 0.5},
        {"step": 30, "tracker/flags": 0.0, "tracker/lag_nats": 8.0},
    ]
    found = evidence.final(state, saved, parts, lambda name: seed, CONFIG, records=records)
    exact = oracles.log_z(parameters)
    assert found["step"] == 20
    assert set(found) == {"step", "tracked", "exact", "ais", "reverse_ais"}
    assert found["exact"]["log_z_nats"] == pytest.approx(exact)
    assert {k: v for k, v in found["tracked"].items() if "likelihood" not in k} == {
        "log_z_nats": 4.75,
        "std_nats": 0.125,
        "lag_nats": 0.5,
        "flags": ["ess", "trails"],
    }
    for entry in (found[name] for name in ("tracked", "exact", "ais", "reverse_ais")):
        for name, rows in parts.items():
            expected = log_q(parameters, rows).mean() - entry["log_z_nats"]
            assert entry[f"{name}_log_likelihood_nats"] == pytest.approx(expected)
    for name in ("ais", "reverse_ais"):
        low, high = found[name]["three_sigma_nats"]
        assert low <= found[name]["log_z_nats"] <= high
        assert abs(found[name]["log_z_nats"] - exact) < 2 * (high - low) < 1.0
        assert 5 < found[name]["ess"] <= 50


def test_what_was_not_done_is_not_reported(rng: np.random.Generator, seed: tf.Tensor) -> None:
    parts = parts_of(rng)
    trainer = tracked(oracles.random_rbm(rng, 26, 26), np.zeros([2, 26]), seed)
    wide = {name: np.zeros([3, 26], np.uint8) for name in parts}
    plain, no_ais = SMLConfig(track=False), EvidenceConfig(final_ais_betas="0")
    assert evidence.final(trainer.state, trainer.saved(), wide, lambda name: seed, no_ais, plain) == {"step": 0}
    found = evidence.final(trainer.state, trainer.saved(), wide, lambda name: seed, no_ais)
    assert set(found) == {"step", "tracked"}
    assert "flags" not in found["tracked"]


def test_the_bracket_starts_from_the_particles_at_the_parameters(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Activations that the chains have from other parameters do not matter."""
    parameters, train = oracles.random_rbm(rng, N_H, N_V, scale=0.5), parts_of(rng)["train"]
    state = tracked(parameters, train, seed).state
    stale = state._replace(chains=state.chains._replace(a=100.0 + state.chains.a))
    config = EvidenceConfig(final_ais_betas="20", ais_chains=4)
    assert evidence.bracket(state, train, seed, config) == evidence.bracket(stale, train, seed, config)


def test_rows_in_chunks_have_the_same_mean(rng: np.random.Generator) -> None:
    parameters, rows = oracles.random_rbm(rng, N_H, N_V), parts_of(rng)["train"]
    found = evidence.mean_log_prob_unnormalised(RBM(*map(tf.constant, parameters)), rows, chunk=7)
    assert found == pytest.approx(log_q(parameters, rows).mean())


def test_schedules_are_named_by_their_length() -> None:
    assert len(evidence.schedule("paper")) == 21_000
    np.testing.assert_allclose(evidence.schedule("5"), [0, 0.25, 0.5, 0.75, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ais_betas": "0"}, "ais_betas must be a number of at least 2, or paper, got '0'"),
        ({"ais_betas": "1"}, "ais_betas must be"),
        (
            {"final_ais_betas": "many"},
            "final_ais_betas must be a number of at least 2, or paper, or 0 for none, got 'many'",
        ),
        ({"final_ais_betas": "-5"}, "final_ais_betas must be"),
        ({"ais_chains": 1}, "ais_chains must be at least 2, got 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvidenceConfig(**settings)
