import json
from typing import Any

import numpy as np
import pytest

from gpflow_deep_runs.sweeps import as_json, as_markdown, as_text, expand, mean_of, parse, tabulate

TEXT = """
script = "train_dgp.py"
[axes]
dataset = ["boston", "energy"]
split = [0, 1, 2, 3]
[settings]
two = {num_layers = 2}
three = {num_layers = 3}
[table]
baseline = "GP"
[table.columns]
GP = {setting = "two", model = "gp"}
DGP2 = {setting = "two", model = "dgp"}
DGP3 = {setting = "three", model = "dgp"}
[table.numbers]
"log-likelihood" = "models.{model}.test.ll"
seconds = {path = "seconds", digits = 0, differences = false}
"""
SWEEP = parse(TEXT)


def results_of(rng: np.random.Generator) -> dict[str, dict[str, Any] | None]:
    return {
        run.name: {
            "models": {name: {"test": {"ll": float(rng.normal())}} for name in ("gp", "dgp")},
            "seconds": int(rng.integers(100)),
        }
        for run in expand(SWEEP)
    }


def ll(results: Any, dataset: str, setting: str, model: str) -> np.ndarray:
    return np.array([results[f"{dataset}-split{s}-{setting}"]["models"][model]["test"]["ll"] for s in range(4)])


def test_means_errors_and_paired_differences(rng: np.random.Generator) -> None:
    results = results_of(rng)
    cells: Any = {(c.number.name, c.row["dataset"], c.column.name): c for c in tabulate(SWEEP, results)}
    assert len(cells) == 2 * 2 * 3
    columns = {"GP": ("two", "gp"), "DGP2": ("two", "dgp"), "DGP3": ("three", "dgp")}
    for dataset in ("boston", "energy"):
        base = ll(results, dataset, *columns["GP"])
        for column, of in columns.items():
            cell, numbers = cells["log-likelihood", dataset, column], ll(results, dataset, *of)
            rounding: Any = {"rtol": 1e-13, "atol": 1e-13}  # sums of four numbers of order one
            np.testing.assert_allclose(cell.mean.mean, numbers.mean(), **rounding)
            np.testing.assert_allclose(cell.mean.standard_error, numbers.std(ddof=1) / 2, **rounding)
            assert (cell.mean.n, cell.mean.n_planned) == (4, 4)
            assert [(v.point["split"], v.number) for v in cell.values] == list(enumerate(numbers))
            if column == "GP":
                assert cell.difference is None
            else:
                assert cell.difference is not None
                np.testing.assert_allclose(cell.difference.mean, (numbers - base).mean(), **rounding)
                np.testing.assert_allclose(cell.difference.standard_error, (numbers - base).std(ddof=1) / 2, **rounding)
            assert cells["seconds", dataset, column].difference is None


def test_pairs_are_of_the_same_split_whatever_the_order() -> None:
    """Numbers that differ by 1 in each split, far more between splits: the difference is 1 with no spread."""
    text = TEXT.replace("split = [0, 1, 2, 3]", "split = [3, 0]\nseed = [7, 5]")
    sweep = parse(text)
    results = {}
    for run in expand(sweep):
        point: Any = run.point
        level = 100.0 * point["split"] + 10.0 * point["seed"]
        shift = 1.0 if run.setting == "three" else 0.0
        results[run.name] = {"models": {m: {"test": {"ll": level + shift}} for m in ("gp", "dgp")}, "seconds": 0}
    (cell,) = [
        c for c in tabulate(sweep, results) if (c.row["dataset"], c.column.name) == ("boston", "DGP3") and c.difference
    ]
    assert cell.difference == (1.0, 0.0, 4, 4)
    assert next(value.point for value in cell.values) == {"split": 3, "seed": 7}


def test_what_is_missing_is_said(rng: np.random.Generator) -> None:
    results = results_of(rng)
    results["boston-split1-two"] = None
    del results["boston-split2-three"]
    for split in range(4):
        results[f"energy-split{split}-three"] = None
    results["energy-split0-two"]["models"]["dgp"]["test"]["ll"] = None  # type: ignore[index]  # null: it was NaN
    cells = {(c.row["dataset"], c.column.name): c for c in tabulate(SWEEP, results) if c.number.digits == 3}
    assert (cells["boston", "DGP2"].mean.n, cells["boston", "DGP2"].mean.n_planned) == (3, 4)
    assert cells["boston", "DGP3"].mean.n == 3
    assert cells["boston", "DGP3"].difference is not None
    assert cells["boston", "DGP3"].difference.n == 2  # splits 0 and 3 have both
    assert cells["energy", "DGP2"].mean.n == 3
    assert cells["energy", "DGP3"].mean == (None, None, 0, 4)
    text = as_text(tabulate(SWEEP, results), "GP")
    lines = [line for line in text.splitlines() if line.startswith(("boston", "energy"))]
    assert lines[0].count("(3 of 4)") == 3
    assert lines[1].split()[-1] == "missing"
    assert lines[2].count("(3 of 4)") == 1
    assert lines[2].count("(2 of 4)") == 1
    assert lines[3].count("missing") == 1


def test_text_markdown_and_json_say_the_same() -> None:
    text = TEXT.replace("split = [0, 1, 2, 3]", "split = [0, 1]").replace('"boston", "energy"', '"boston"')
    sweep = parse(text)
    values: Any = {"gp": (1.0, 2.0), "dgp": (2.0, 4.0)}
    results = {
        run.name: {
            "models": {m: {"test": {"ll": v[run.point["split"]]}} for m, v in values.items()},
            "seconds": 10.4,
        }
        for run in expand(sweep)
    }
    cells = tabulate(sweep, results)
    assert as_text(cells, "GP") == (
        "log-likelihood, mean ± standard error over split\n"
        "dataset             GP           DGP2           DGP3\n"
        "boston   1.500 ± 0.500  3.000 ± 1.000  3.000 ± 1.000\n"
        "\n"
        "log-likelihood minus that of GP, mean of paired differences ± standard error over split\n"
        "dataset           DGP2           DGP3\n"
        "boston   1.500 ± 0.500  1.500 ± 0.500\n"
        "\n"
        "seconds, mean ± standard error over split\n"
        "dataset      GP    DGP2    DGP3\n"
        "boston   10 ± 0  10 ± 0  10 ± 0\n"
    )
    markdown = as_markdown(cells, "GP").splitlines()
    assert markdown[:5] == [
        "log-likelihood, mean ± standard error over split:",
        "",
        "| dataset | GP | DGP2 | DGP3 |",
        "|---|---|---|---|",
        "| boston | 1.500 ± 0.500 | 3.000 ± 1.000 | 3.000 ± 1.000 |",
    ]
    found = json.loads(json.dumps(as_json(cells)))
    assert found[2] == {
        "number": "log-likelihood",
        "path": "models.dgp.test.ll",
        "row": {"dataset": "boston"},
        "column": "DGP3",
        "mean": 3.0,
        "standard_error": 1.0,
        "n": 2,
        "n_planned": 2,
        "difference": {"mean": 1.5, "standard_error": 0.5, "n": 2, "n_planned": 2},
        "values": [
            {"split": 0, "run": "boston-split0-three", "value": 2.0},
            {"split": 1, "run": "boston-split1-three", "value": 4.0},
        ],
    }


def test_one_number_has_no_standard_error() -> None:
    assert mean_of([3.0]) == (3.0, None, 1, 1)
    assert mean_of([None, 3.0]) == (3.0, None, 1, 2)
    assert mean_of([]) == (None, None, 0, 0)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("models.{model}.test.rmse", "result.json of boston-split0-two has no 'models.gp.test.rmse'; .*there are ll"),
        ("seconds.total", "in place of 'total' there is 5"),
        ("models.{model}", "'models.gp' in result.json of boston-split0-two must be a number, got {'test'"),
        ("is_finished", "must be a number, got True"),
    ],
)
def test_a_path_that_is_not_there(path: str, message: str, rng: np.random.Generator) -> None:
    sweep = parse(TEXT.replace("models.{model}.test.ll", path))
    results = {name: {**(result or {}), "seconds": 5, "is_finished": True} for name, result in results_of(rng).items()}
    with pytest.raises(ValueError, match=message):
        tabulate(sweep, results)


def test_a_file_without_a_table() -> None:
    with pytest.raises(ValueError, match=r"has no \[table\]"):
        tabulate(parse('script = "train_dgp.py"'), {})
