"""The tables of our own pages are those of results/."""

from pathlib import Path

from experiment.report.pages import problems
from experiment.report.results import read_all

ROOT = Path(__file__).resolve().parent.parent


def test_pages_and_results_agree() -> None:
    """What is found here is mended by `make results`."""
    assert problems(ROOT) == []


def test_there_are_results() -> None:
    stored = read_all(ROOT / "results")
    assert len(stored) > 30
    assert {"uci", "kin8nm", "rbm_density", "ebp_text", "darn_likelihood", "compression_lenet5"} <= stored.keys()
