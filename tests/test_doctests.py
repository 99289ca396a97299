"""The estimators and functions that people call first have an example in their docstrings, which runs."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

FIRST = [
    "gpflow_deep.DeepGPRegressor",
    "gpflow_deep.DeepGPClassifier",
    "darn.DARNDensity",
    "rbm_tracking.TrackedRBM",
    "rbm_tracking.RBMClassifier",
    "rbm_tracking.PartitionTracker",
    "ebp.EBPClassifier",
    "ebp.EBPRegressor",
    "ebp.EBPGaussianClassifier",
    "compression.fit",
    "compression.pack",
]
AT_ONCE = ["darn.encode_table", "ebp.encode_labels", "gpflow_deep_runs.data.values.encoder.TableEncoder"]
"""Those that take no second, which run with the fast tests."""


def examples(name: str) -> doctest.DocTest:
    package, _, attribute = name.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(package), attribute)) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, None, 0)


def check(name: str) -> None:
    example = examples(name)
    assert example.examples
    report = list[str]()
    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert failed == 0, "".join(report)


@pytest.mark.parametrize("name", AT_ONCE)
def test_an_example_runs_at_once(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FIRST)
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where some write a file
    check(name)
