"""What is shown of a tracked RBM: scalars, curves, pictures and text, against what they were made of."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.text import aligned, within
from rbm_tracking import report
from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.rbm import initial_rbm
from rbm_tracking.report import Curve
from rbm_tracking.track.updates.learning import SMLConfig, initial_state
from rbm_tracking.use.training import Trainer
from tests.terminal import check_width

RECORDS: list[dict[str, float]] = [
    {"step": 5, "tracker/log_z_nats": 1.0, "tracker/log_z_std_nats": 0.5, "tracker/flags": 0.0, "ladder/beta_01": 1.0},
    {
        "step": 10,
        "tracker/log_z_nats": 2.0,
        "tracker/log_z_std_nats": 0.25,
        "tracker/flags": 2.0,
        "tracker/bridge_sum_nats": 2.125,
        "train/log_likelihood_nats": -4.0,
        "valid/log_likelihood_nats": -5.0,
        "exact/log_z_nats": 1.5,
        "ais/log_z_nats": 1.75,
        "ais/log_z_std_nats": 0.125,
    },
    {
        "step": 20,
        "tracker/log_z_nats": 3.0,
        "tracker/log_z_std_nats": 0.125,
        "tracker/flags": 0.0,
        "tracker/lag_nats": 0.5,
        "train/log_likelihood_nats": -3.0,
        "valid/log_likelihood_nats": -3.5,
        "exact/log_z_nats": 5.0,
    },
]


@pytest.fixture
def trainer(rng: np.random.Generator, seed: tf.Tensor) -> Trainer:
    data = rng.integers(0, 2, (50, 6)).astype(np.uint8)
    rbm = initial_rbm(4, seed=seed, data=data, weight_scale=0.5)
    state = initial_state(rbm, linear_ladder(3), 5, seed=seed, data=data, config=SMLConfig.paper())
    return Trainer(state, SMLConfig.paper(), jit_compile=False)


def test_scalars_are_those_of_the_last_update(trainer: Trainer, rng: np.random.Generator, seed: tf.Tensor) -> None:
    assert report.filter_scalars(trainer) == {}
    seen = trainer.advance(rng.integers(0, 2, (50, 6)), rng.integers(0, 50, (4, 10)), seed)
    found = report.filter_scalars(trainer)
    assert found.pop("swap/rate_01") == pytest.approx(seen.swap_rate[:, 0].mean())
    assert found.pop("swap/rate_02") == pytest.approx(seen.swap_rate[:, 1].mean())
    assert [found.pop(f"ladder/beta_{i:02d}") for i in (1, 2, 3)] == [1.0, 0.5, 0.0]
    assert found == {
        "tracker/log_z_nats": seen.log_z[3],
        "tracker/log_z_std_nats": seen.log_z_std[3],
        "tracker/bias_nats": seen.bias[3],
        "tracker/change_nats": seen.change[3],
        "tracker/bridge_sum_nats": seen.bridge_sum[3],
        "tracker/nis": seen.nis[3],
        "tracker/inflation": seen.inflation[3],
        "tracker/ess": seen.ess[3],
        "tracker/lag_nats": seen.lag[3],
        "tracker/flags": seen.flags[3],
    }
    assert report.filter_scalars(trainer) == {}  # nothing has happened since


def test_without_a_tracker_there_are_swaps_and_the_ladder(
    trainer: Trainer, rng: np.random.Generator, seed: tf.Tensor
) -> None:
    plain = Trainer(trainer.state, SMLConfig.paper(track=False), jit_compile=False)
    plain.advance(rng.integers(0, 2, (50, 6)), rng.integers(0, 50, (2, 10)), seed)
    assert {name.split("/")[0] for name in report.filter_scalars(plain)} == {"swap", "ladder"}


def test_curves_of_log_z_have_the_errors_of_their_estimates() -> None:
    assert report.log_z_curves(RECORDS) == {
        "tracked": Curve([5, 10, 20], [1.0, 2.0, 3.0], [0.98, 0.49, 0.5], "-"),
        "AIS": Curve([10], [1.75], [0.375], "o"),
        "exact": Curve([10, 20], [1.5, 5.0], None, "x"),
    }
    panels = report.filter_curves(RECORDS, num_temps=2)
    assert list(panels["log Z"]) == ["bridges", "tracked", "AIS", "exact"]
    assert panels["log Z"]["bridges"] == Curve([10], [2.125], None, ".")
    assert panels["change in an update"] == {}
    assert panels["inverse temperatures"] == {"beta 1": Curve([5], [1.0])}


def test_curves_of_the_likelihood_exchange_log_z() -> None:
    """log p = log q~ - log Z: by the exact log Z of 1.5 instead of 2, a row is half a nat more probable."""
    assert report.likelihood_curves(RECORDS) == {
        "train, tracked": Curve([10, 20], [-4.0, -3.0], [0.49, 0.5]),
        "train, ais": Curve([10], [-3.75], None, "o"),
        "train, exact": Curve([10, 20], [-3.5, -5.0], None, "x"),
        "valid, tracked": Curve([10, 20], [-5.0, -3.5], [0.49, 0.5]),
        "valid, ais": Curve([10], [-4.75], None, "o"),
        "valid, exact": Curve([10, 20], [-4.5, -5.5], None, "x"),
    }


def test_errors_are_those_of_the_steps_with_both_values() -> None:
    found = report.logged_errors(RECORDS)
    assert found["num_exact"] == 2
    assert found["rmse_nats"] == pytest.approx(np.sqrt((0.5**2 + 2.0**2) / 2))
    assert found["max_nats"] == 2.0
    assert found["bias_nats"] == pytest.approx(-0.75)
    assert (found["coverage_95"], found["coverage_95_with_lag"]) == (0.0, 0.0)
    assert found["flagged"] == 0.5
    assert report.logged_errors(RECORDS[:1]) == {}


def test_pictures_are_weights_and_probabilities_at_the_target(trainer: Trainer) -> None:
    state = trainer.state
    found = report.pictures(state, (2, 3))
    W, b = state.rbm.W.numpy(), state.rbm.b.numpy()
    np.testing.assert_allclose(found["filters"], 0.5 + 0.5 * W.reshape(4, 2, 3) / np.abs(W).max(), rtol=1e-6)
    hidden = 1 / (1 + np.exp(-state.chains.a.numpy()[state.chains.level.numpy() == 0]))
    expected = 1 / (1 + np.exp(-(hidden @ W + b)))
    np.testing.assert_allclose(found["samples"], expected.reshape(5, 2, 3), rtol=1e-5)


def test_the_text_says_what_the_numbers_are() -> None:
    entry = {"log_z_nats": 4.0, "valid_log_likelihood_nats": -2.5, "test_log_likelihood_nats": -3.0}
    result = {
        "step": 20,
        "tracked": {**entry, "std_nats": 0.25, "lag_nats": 0.5, "half_width_nats": 0.5, "flags": ["ess"]},
        "exact": entry,
        "reverse_ais": {**entry, "three_sigma_nats": [3.5, 4.5], "ess": 17.0},
        "evidence": {**entry, "statement": "log Z is at least 5.00: the chains miss a mode", "reasons": ["because"]},
    }
    # A line for each estimate that there is
    assert report.table(result) == [
        ["log Z by", "log Z", "interval", "valid", "test"],
        ["tracked", "4.000", "± 0.50", "-2.500", "-3.000"],
        ["exact", "4.000", "", "-2.500", "-3.000"],
        ["reverse ais", "4.000", "3.5 to 4.5", "-2.500", "-3.000"],
        ["evidence", "4.000", "", "-2.500", "-3.000"],
    ]
    # Large numbers stay within the width of a terminal
    large = dict.fromkeys(entry, -12345.678) | {"three_sigma_nats": [-12345.678, -12340.0], "ess": 1.0}
    wide = dict.fromkeys(("tracked", "reverse_trajectory_ais"), large) | {"evidence": result["evidence"]}
    check_width(within("\n".join([aligned(report.table(wide)), *report.notes(wide, {}, 50)])))
    # What is said besides, in order
    unit, intervals, *said, errors = report.notes(result, report.logged_errors(RECORDS), 50)
    assert unit == "log-likelihoods: nats per row, mean over the rows"
    assert said == [
        "effective chains of 50: reverse ais 17",
        "the filter is flagged: ess",
        "evidence: log Z is at least 5.00: the chains miss a mode",
        "why: because",
    ]
    assert errors.startswith("tracked against exact log Z: rmse 1.458, largest error 2.000 nats over 2 updates; 95 %")
    assert report.notes({}, {}, 50) == [unit, intervals]


def test_runs_are_named_by_what_distinguishes_them() -> None:
    settings = "--dataset=mnist\n--hidden=25\n--learning_rate=0.001\n--learning_rate_decay=1e4\n--seed=0\n--track\n"
    assert report.title(settings) == "mnist, 25 hidden units, rate 0.001, decay 1e4"
    assert report.title("--dataset=digits\n--data=some/where/table.csv\n--hidden=5\n") == "table.csv, 5 hidden units"
