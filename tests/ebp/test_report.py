"""`ebp.report`: each cell of the table, the bars, and what is said of a posterior, against NumPy."""

import numpy as np
import pytest

from ebp import EBPNetwork, report
from ebp.study.results import PUBLISHED, summary
from gpflow_deep_base.text import aligned, within
from tests.terminal import check_width

RESULTS = {
    "real D": {**summary(np.array([[[10.0, 20.0]], [[14.0, 20.0]]])), "seconds_per_epoch": 0.126},
    "binary 3 votes": {**summary(np.array([[[5.0, 4.0]], [[6.0, 3.0]]])), "seconds_per_epoch": 2.0},
    "bp_ce": {**summary(np.array([[[8.0, 9.0]]])), "folds_at_edge_of_grid": 0, "seconds_per_fold": 12.0},
    "bp_clipped": {**summary(np.array([[[40.0, 50.0]]])), "folds_at_edge_of_grid": 2, "seconds_per_fold": 1.0},
    "arow": {**summary(np.array([[[7.5, 7.25]]])), "folds_at_edge_of_grid": 1, "seconds_per_fold": 0.5},
}


def test_table() -> None:
    """Means of two seeds have a standard error; single numbers have none. "bp" is not the clipped one."""
    assert report.table(RESULTS, {"real D": 11.3, "bp": 8.888, "arow": 7.0}) == [
        ["", "last epoch", "best epoch", "published", "seconds"],
        ["EBP real D", "20.00 ± 0.00", "12.00 ± 2.00", "11.30", "0.13"],
        ["EBP binary 3 votes", "3.50 ± 0.50", "3.50 ± 0.50", "", "2.00"],
        ["BP, cross-entropy", "9.00", "8.00", "8.89", "12.00"],
        ["BP, clipped to signs", "50.00", "40.00", "", "1.00"],
        ["AROW", "7.25", "7.25", "7.00", "0.50"],
    ]
    check_width(within("\n".join([aligned(report.table(RESULTS, {"real D": 11.3})), *report.notes(RESULTS)])))
    assert report.table(RESULTS)[0] == ["", "last epoch", "best epoch", "seconds"]


def test_notes() -> None:
    assert report.notes(RESULTS) == [
        "test error in percent, mean ± standard error over seeds; seconds of an epoch (EBP) or of tuning and training",
        "in some folds the best value was at the edge of its grid: BP, clipped to signs; AROW",
    ]
    (line,) = report.notes({"bp_ce": RESULTS["bp_ce"]})
    assert "over folds" in line


def test_bars() -> None:
    labels, bars, published = report.bars(RESULTS, {"real D": 11.3, "bp": 8.8})
    assert labels == ["EBP real D", "EBP binary 3 votes", "BP, cross-entropy", "BP, clipped to signs", "AROW"]
    np.testing.assert_allclose(bars["last epoch"].heights, [20, 3.5, 9, 50, 7.25])
    np.testing.assert_allclose(bars["last epoch"].spreads, [0, 0.5, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(bars["best epoch"].heights, [12, 3.5, 8, 40, 7.25])
    np.testing.assert_allclose(bars["best epoch"].spreads, [2, 0.5, 0, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(published, [11.3, np.nan, 8.8, np.nan, np.nan])
    assert list(bars) == ["last epoch", "best epoch"]


def test_published_names_are_methods_of_results() -> None:
    names = {f"{weights} {output}" for weights in ("real", "binary") for output in "DP"} | {"arow", "bp"}
    assert all(set(errors) <= names for errors in PUBLISHED.values())


def test_posterior(rng: np.random.Generator) -> None:
    """Entropy in nats over all weights; decided: variance below a hundredth of the prior's, 1 for signs."""
    network = EBPNetwork((30, 20, 2), ["binary", "real"], head="multiclass", dtype="float64")
    for h in network.h:
        h.assign(rng.normal(scale=3.0, size=h.shape))
    found = report.posterior_scalars(network)
    assert list(found) == ["layer_1/entropy_nats", "layer_1/decided_percent", "layer_2/entropy_nats"]
    p = 1 / (1 + np.exp(-2 * network.h[0].numpy()))
    entropy = -np.mean(p * np.log(p) + (1 - p) * np.log1p(-p))
    assert found["layer_1/entropy_nats"] == pytest.approx(entropy, rel=1e-9)
    decided = [4 * q * (1 - q) < 0.01 for q in p.ravel()]
    assert found["layer_1/decided_percent"] == pytest.approx(100 * np.mean(decided), rel=1e-12)
    assert 10 < found["layer_1/decided_percent"] < 90
    assert found["layer_2/entropy_nats"] == pytest.approx(network.entropy()[1], rel=1e-12)


def test_histograms_take_some_of_many_weights(rng: np.random.Generator) -> None:
    network = EBPNetwork((500, 450, 1))
    shapes = report.posterior_shapes(network)
    assert list(shapes) == ["layer_1/h", "layer_2/h"]
    np.testing.assert_array_equal(shapes["layer_1/h"], network.h[0].numpy().reshape(-1)[::3])  # of 225,000
    np.testing.assert_array_equal(shapes["layer_2/h"], network.h[1].numpy().reshape(-1))
