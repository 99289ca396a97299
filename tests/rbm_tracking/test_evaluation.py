"""What is measured of an RBM's log-likelihood, against enumeration in NumPy; what evaluations remember."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from gpflow_deep_base.stopping import Best
from rbm_tracking import evaluation
from rbm_tracking.estimates.ais import ais, linear_schedule
from rbm_tracking.estimates.trajectories import trajectory
from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.rbm import RBM, base_rate_biases, log_probs_unnormalised
from rbm_tracking.model.serialization import SavedRBM
from rbm_tracking.track.evidence import FLAGS, Annealing, Choice, Evidence, Tracking, is_even, judge
from rbm_tracking.track.updates.learning import Observed, SMLConfig, initial_state
from rbm_tracking.use.evaluation import Evaluations, EvidenceConfig
from rbm_tracking.use.training import Trainer
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings

N_V, N_H = 6, 4
CONFIG = EvidenceConfig(ais_betas="200", final_ais_betas="200", ais_chains=50)
ESS = FLAGS["ess"]


def parts_of(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Parts of different rates and sizes, so that none can be taken for another."""
    rates = {"train": 0.2, "valid": 0.5, "test": 0.8}
    sizes = {"train": 40, "valid": 25, "test": 31}
    return {name: (rng.uniform(size=(sizes[name], N_V)) < rate).astype(np.uint8) for name, rate in rates.items()}


def tracked(parameters: oracles.Parameters, rows: np.ndarray, seed: tf.Tensor, log_z: float = 3.25) -> Trainer:
    """An RBM in training whose tracked log Z is `log_z`, with a standard deviation of 0.5."""
    state = initial_state(
        RBM(*map(tf.constant, parameters)), linear_ladder(3), 8, seed=seed, data=rows, config=SMLConfig.paper()
    )
    mean, cov = np.array(state.tracker.mean), np.array(state.tracker.cov)
    mean[0], cov[0, 0] = log_z, 0.25
    tracker = state.tracker._replace(mean=tf.constant(mean), cov=tf.constant(cov))
    return Trainer(state._replace(tracker=tracker), SMLConfig.paper(), jit_compile=False)


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
    trainer = tracked(parameters, parts["train"], seed, log_z=99.0)
    found = Evaluations({k: parts[k] for k in ("train", "valid")})(trainer.state, None)
    for name in ("train", "valid"):
        expected = (log_q(parameters, parts[name]) - 99.0).mean()
        assert found[f"{name}/log_likelihood_nats"] == pytest.approx(expected)
    highest = max(log_q(parameters, parts[name]).max() for name in ("train", "valid")) - 99.0
    assert found["tracker/highest_log_p_nats"] == pytest.approx(highest)
    assert found["evidence/valid_log_likelihood_nats"] == pytest.approx(found["valid/log_likelihood_nats"])
    assert (found["evidence/log_z_nats"], found["evidence/low_nats"], found["evidence/high_nats"]) == pytest.approx(
        (99.0, 99.0 - 0.98, 99.0 + 0.98)
    )
    assert (found["evidence/is_trusted"], found["evidence/is_refuted"]) == (1.0, 0.0)


def evaluated(
    log_z: float, by_ais: dict[str, float], rng: np.random.Generator, seed: tf.Tensor, flags: int = 0
) -> tuple[dict[str, float], np.ndarray, Evaluations]:
    """Scalars of a first evaluation with a tracked log Z, and log q~ of the validation rows."""
    parameters, parts = oracles.random_rbm(rng, N_H, N_V), parts_of(rng)
    trainer = flag(tracked(parameters, parts["train"], seed, log_z=log_z), flags)
    evaluations = Evaluations({"valid": parts["valid"]}, CONFIG)
    return (
        evaluations(trainer.state, trainer.observed, lambda: by_ais),
        log_q(parameters, parts["valid"]),
        evaluations,
    )


@pytest.mark.parametrize("flags", [0, ESS])
def test_what_could_be_the_best_is_checked_by_ais(flags: int, rng: np.random.Generator, seed: tf.Tensor) -> None:
    by_ais = {"ais/log_z_nats": 99.5, "ais/log_z_std_nats": 0.1, "ais/ess": 30.0}
    found, values, evaluations = evaluated(99.0, by_ais, rng, seed, flags)
    assert found["valid/log_likelihood_nats"] == pytest.approx(values.mean() - 99.0)
    assert found["valid/ais_log_likelihood_nats"] == pytest.approx(values.mean() - 99.5)
    assert {name: found[name] for name in by_ais} == by_ais
    assert set(by_ais) == {"ais/log_z_nats", "ais/log_z_std_nats", "ais/ess"}  # which is left as it was
    known = Evidence(Tracking(99.0, 0.5, 0.0, flags), Annealing(99.5, 0.1, 30.0, CONFIG.ais_chains))
    assert evaluations.verdict == judge(known._replace(highest_log_q=values.max()))
    assert found["evidence/valid_log_likelihood_nats"] == pytest.approx(values.mean() - 99.5)
    assert evaluations.news is None


def test_where_ais_is_below_the_filter_reverse_ais_decides(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """A filter 30 nats too high, of an RBM with an exact log Z."""
    parameters, parts = oracles.random_rbm(rng, N_H, N_V), parts_of(rng)
    exact = log_z_exact(RBM(*map(tf.constant, parameters)))
    trainer = flag(tracked(parameters, parts["train"], seed, log_z=exact + 30), 0)
    base_b = base_rate_biases(parts["train"])
    by_ais = partial(evaluation.ais_scalars, trainer.state, base_b, CONFIG, seed)
    found = Evaluations({"valid": parts["valid"]}, CONFIG)(trainer.state, trainer.observed, by_ais)
    assert found["reverse_ais/log_z_nats"] == pytest.approx(exact, abs=0.5)
    assert found["evidence/log_z_nats"] == found["ais/log_z_nats"] == pytest.approx(exact, abs=0.5)
    assert found["evidence/low_nats"] <= exact <= found["evidence/high_nats"]
    assert found["evidence/is_trusted"] == 1.0
    assert by_ais(is_reverse=True) == {name: found[name] for name in found if name.startswith("reverse_ais/")}


def test_a_refutation_is_news_once_and_is_remembered(rng: np.random.Generator, seed: tf.Tensor) -> None:
    above = {"ais/log_z_nats": 106.0, "ais/log_z_std_nats": 0.6, "ais/ess": 3.0}
    found, _, evaluations = evaluated(99.0, above, rng, seed)
    assert "evidence/high_nats" not in found
    assert (found["evidence/is_trusted"], found["evidence/is_refuted"]) == (0.0, 1.0)
    assert evaluations.news == (
        "log Z is at least 103.00: the chains miss a mode (AIS, a lower bound, is 7.0 nats above the filter); lower "
        "learning_rate"
    )
    parts = parts_of(rng)
    trainer = flag(tracked(oracles.random_rbm(rng, N_H, N_V), parts["train"], seed, log_z=105.5), 0)
    asked: list[int] = []

    def by_ais() -> dict[str, float]:
        asked.append(len(asked))
        return {"ais/log_z_nats": 105.4, "ais/log_z_std_nats": 0.6 if len(asked) == 1 else 0.1, "ais/ess": 30.0}

    resumed = Evaluations({"valid": parts["valid"]}, CONFIG)
    resumed.store.memory.assign(evaluations.store.memory)
    assert resumed(trainer.state, trainer.observed, by_ais)["evidence/is_refuted"] == 1.0
    assert resumed.news is None
    assert resumed(trainer.state, trainer.observed, by_ais)["evidence/is_refuted"] == 0.0
    assert resumed.news == "AIS agrees with the tracked log Z again"
    assert len(asked) == 2


def test_ais_is_not_asked_without_a_reason(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Unflagged, and worse than the best: by more than its own errors leave open."""
    parts = parts_of(rng)
    trainer = flag(tracked(oracles.random_rbm(rng, N_H, N_V), parts["train"], seed, log_z=99.0), 0)

    def never() -> dict[str, float]:
        raise AssertionError("asked")

    evaluations = Evaluations({"valid": parts["valid"]}, CONFIG)
    evaluations.store.memory.assign([0.0, 0.0, 0.1, 1.0])  # the best has a log-likelihood of 0
    assert "ais/ess" not in evaluations(trainer.state, trainer.observed, never)
    with pytest.raises(AssertionError, match="asked"):
        evaluations(trainer.state, flag(trainer, ESS).observed, never)
    assert "ais/ess" not in evaluations(trainer.state, trainer.observed)


def test_exact_log_z_is_that_of_all_states(rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, N_H, N_V)
    found = evaluation.exact_scalars(RBM(*map(tf.constant, parameters)))
    assert found == {"exact/log_z_nats": pytest.approx(oracles.log_z(parameters))}
    assert evaluation.exact_scalars(RBM(*map(tf.constant, oracles.random_rbm(rng, 26, 26)))) == {}


def test_ais_is_a_function_of_seed_and_update(rng: np.random.Generator, seed: tf.Tensor) -> None:
    parameters, train = oracles.random_rbm(rng, N_H, N_V, scale=0.5), parts_of(rng)["train"]
    state = tracked(parameters, train, seed).state
    first, again = (evaluation.ais_scalars(state, base_rate_biases(train), CONFIG, seed) for _ in range(2))
    other = evaluation.ais_scalars(state._replace(step=tf.constant(1)), base_rate_biases(train), CONFIG, seed)
    assert first == again
    assert first["ais/log_z_nats"] != other["ais/log_z_nats"]
    for found in (first, other):  # log of a mean weight of 50 chains, whose distribution is close to normal
        error = found["ais/log_z_nats"] - oracles.log_z(parameters)
        assert abs(error) < 6 * found["ais/log_z_std_nats"] < 0.6
        assert 5 < found["ais/ess"] <= 50


# Which evaluation is the best


def logged(value: float, std: float, is_trusted: bool = True) -> dict[str, float]:
    scalars = {"evidence/log_z_nats": 7.0, "evidence/valid_log_likelihood_nats": value}
    scalars |= {"evidence/is_trusted": float(is_trusted)}
    return scalars | ({"evidence/high_nats": 7.0 + 1.96 * std} if np.isfinite(std) else {})


def test_the_rule_counts_evaluations_that_are_worse() -> None:
    rule, best = evaluation.highest(), Best()
    history: list[tuple[Any, ...]] = []
    for step, scalars in enumerate(
        [
            logged(-1.0, np.inf, False),  # nothing bounds log Z from above
            logged(-8.0, 0.1, False),
            logged(-8.5, 0.1, False),
            logged(-9.0, 0.2),  # trusted, so better
            logged(-9.1, 0.2),  # open
            logged(-9.9, 0.1),
            logged(-5.0, 0.1, False),
            logged(-9.1, 0.2),
            logged(-1.0, np.inf, False),
            logged(-8.0, 0.1),
        ]
    ):
        best = rule(step, best, scalars)
        history.append((best.step, best.value, best.num_worse, pytest.approx(best.std), best.is_trusted))
    expected: list[tuple[Any, ...]] = [
        (-1, math.inf, 0, 0.0, True),
        (1, 8.0, 0, 0.1, False),
        (1, 8.0, 1, 0.1, False),
        (3, 9.0, 0, 0.2, True),
        (3, 9.0, 0, 0.2, True),
        (3, 9.0, 1, 0.2, True),
        (3, 9.0, 2, 0.2, True),
        (3, 9.0, 0, 0.2, True),
        (3, 9.0, 1, 0.2, True),
        (9, 8.0, 0, 0.1, True),
    ]
    assert history == expected


def test_the_rule_and_the_memory_agree(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """What an evaluation is compared with is what the training loop keeps as the best, bit for bit."""
    parts, rule, best = parts_of(rng), evaluation.highest(), Best()
    evaluations = Evaluations({"valid": parts["valid"]}, CONFIG)
    for step, log_z in enumerate([99.0, 97.0, 98.0, 95.0]):
        trainer = tracked(oracles.random_rbm(rng, N_H, N_V), parts["train"], seed, log_z=log_z)
        estimate = {"ais/log_z_nats": log_z + 0.25, "ais/log_z_std_nats": 0.1, "ais/ess": 30.0}
        scalars = evaluations(trainer.state, None, estimate.copy)
        best = rule(step, best, scalars)
        kept = evaluations.store.memory.numpy()[1:]
        np.testing.assert_array_equal(kept, Choice(-best.value, best.std, best.is_trusted))


# At the end


def test_the_report_is_of_the_saved_parameters_and_of_each_part(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """The last state has other parameters; the estimates of log Z are of those that are reported."""
    parameters, parts = oracles.random_rbm(rng, N_H, N_V, scale=0.5), parts_of(rng)
    state = tracked(oracles.random_rbm(rng, N_H, N_V), parts["train"], seed).state
    saved = SavedRBM(RBM(*map(tf.constant, parameters)), 4.75, 0.125, np.array([1.0, 0.0]), 20)
    records = [
        {"step": 10, "tracker/flags": 0.0, "tracker/lag_nats": 9.0},
        {"step": 20, "tracker/flags": float(ESS), "tracker/lag_nats": 0.5},
        {"step": 30, "tracker/flags": 0.0, "tracker/lag_nats": 8.0},
    ]
    found = evaluation.final(state, saved, parts, lambda name: seed, CONFIG, records=records)
    # The filter as it was logged at the step of what was saved
    exact = oracles.log_z(parameters)
    assert found["step"] == 20
    assert set(found) == {"step", "tracked", "exact", "ais", "reverse_ais", "evidence"}
    assert found["exact"]["log_z_nats"] == pytest.approx(exact)
    assert {k: v for k, v in found["tracked"].items() if "likelihood" not in k} == {
        "log_z_nats": 4.75,
        "std_nats": 0.125,
        "lag_nats": 0.5,
        "half_width_nats": 0.5,
        "flags": ["ess"],
    }
    # The exact value ends the matter
    assert found["evidence"]["interval_nats"] == [pytest.approx(exact)] * 2
    assert found["evidence"]["statement"] == f"log Z is {exact:.2f}"
    # Each part by each log Z
    for entry in (found[name] for name in ("tracked", "exact", "ais", "reverse_ais", "evidence")):
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
    trainer = tracked(oracles.random_rbm(rng, 26, 26), np.zeros([2, 26]), seed, log_z=99.0)
    wide = {name: np.zeros([3, 26], np.uint8) for name in parts}
    plain, no_ais = SMLConfig.paper(track=False), EvidenceConfig(final_ais_betas="0")
    assert evaluation.final(trainer.state, trainer.saved(), wide, lambda name: seed, no_ais, plain) == {"step": 0}
    found = evaluation.final(trainer.state, trainer.saved(), wide, lambda name: seed, no_ais)
    assert set(found) == {"step", "tracked", "evidence"}
    assert "flags" not in found["tracked"]
    assert found["evidence"]["interval_nats"] == pytest.approx([98.02, 99.98])
    line = {"ais/log_z_nats": 99.9, "ais/log_z_std_nats": 0.6, "ais/ess": 3.0, "evidence/is_refuted": 1.0}
    records = [{"step": 0, "tracker/flags": 0.0, "tracker/lag_nats": 0.0, **line}]
    found = evaluation.final(trainer.state, trainer.saved(), wide, lambda name: seed, no_ais, records=records)
    assert found["evidence"]["log_z_nats"] == 99.9  # by the AIS of its evaluation
    assert found["evidence"]["chains_miss_a_mode"]


def test_the_bracket_starts_from_the_particles_at_the_parameters(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Activations that the chains have from other parameters do not matter."""
    parameters, train = oracles.random_rbm(rng, N_H, N_V, scale=0.5), parts_of(rng)["train"]
    state = tracked(parameters, train, seed).state
    stale = state._replace(chains=state.chains._replace(a=100.0 + state.chains.a))
    config = EvidenceConfig(final_ais_betas="20", ais_chains=4)
    base_b = base_rate_biases(train)
    one, other = (evaluation.bracket(each, base_b, seed, config) for each in (state, stale))
    assert [result.log_z for result in one] == [result.log_z for result in other]


def test_rows_in_chunks_have_the_same_log_q(rng: np.random.Generator) -> None:
    parameters, rows = oracles.random_rbm(rng, N_H, N_V), parts_of(rng)["train"]
    rbm = RBM(*map(tf.constant, parameters))
    found = log_probs_unnormalised(rbm, rows, chunk=7)
    np.testing.assert_allclose(found, log_q(parameters, rows), rtol=1e-6)
    assert evaluation.mean_log_prob_unnormalised(rbm, rows) == pytest.approx(found.mean())


def test_schedules_are_named_by_their_length() -> None:
    assert len(evaluation.schedule("paper")) == 21_000
    np.testing.assert_allclose(evaluation.schedule("5"), [0, 0.25, 0.5, 0.75, 1])


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
def test_bad_settings_are_refused(settings: Settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvidenceConfig(**settings)


def test_the_path_of_training_finds_what_no_temperature_does(seed: tf.Tensor) -> None:
    """One unit that is on near a pattern of 200 bits alone: it has 80 % of the mass at beta = 1 and little at all lower
    beta, behind a first-order transition, so that AIS through temperatures misses it with even weights. In training it
    had its share all along, while its pattern became sharper. 99.7 % intervals, Markov's inequality for bounds."""
    num_bits, share = 200, np.log(4.0)
    signs = np.where(np.arange(num_bits) % 3 == 0, 1.0, -1.0)

    def sharp(s: float) -> RBM:
        """log q~ = softplus(s sum_i p_i (2 v_i - 1) - t), where both masses are known."""
        t = num_bits * np.log(np.cosh(s)) - share
        return RBM(*(tf.constant(part) for part in (2 * s * signs[None], np.zeros(num_bits), [-s * signs.sum() - t])))

    # Through temperatures, and along sharper and sharper models
    last, base = sharp(1.2), np.zeros(num_bits)
    exact = log_z_exact(last)
    assert exact == pytest.approx(num_bits * np.log(2.0) + np.log(5.0))
    by_temperature = ais(last, linear_schedule(200), seed=seed, base_b=base, jit_compile=False)
    path = trajectory([sharp(s) for s in np.linspace(0.1, 1.2, 8)], base_b=base)
    along = evaluation.along_training(path, 100, seed, "hash", jit_compile=False)
    # The filter and AIS agree, and are wrong; AIS along training is right and refutes both
    low = evaluation.annealing(by_temperature)
    filtered = Tracking(by_temperature.log_z, 0.05)
    blind = judge(Evidence(filtered, low))
    assert blind.is_trusted
    assert blind.high < exact - 1
    assert is_even(along)
    assert along.log_z == pytest.approx(exact, abs=3 * along.std)
    verdict = judge(Evidence(filtered, low, along=along))
    assert verdict.is_refuted
    assert verdict.low <= exact <= verdict.high


@pytest.mark.parametrize(("num_rows", "expected"), [(60, 50), (900, 90), (1000, 200), (1300, 260), (50_000, 500)])
def test_few_rows_are_evaluated_more_often(num_rows: int, expected: int) -> None:
    assert evaluation.interval(num_rows, 100) == expected
