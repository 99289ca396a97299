"""A small file of results for tests."""

from typing import Any


def document(**changes: Any) -> dict[str, Any]:
    """Two data sets, a linear model and a GP on three splits, and a published number."""
    columns = [{"title": "data set", "cell": "{dataset}"}, {"title": "linear", "cell": "{linear:.2f}"}]
    columns += [{"title": "GP", "cell": "{gp:.2f}"}, {"title": "published", "cell": "{published_gp:.1f}"}]
    paired = [columns[0], {"title": "GP - linear", "cell": "{gp - linear:.2f}"}]
    return {
        "title": "small",
        "origin": "run",
        "date": "2026-11-22",
        "commit": "c0ffee" + "0" * 34,
        "machine": "two cores",
        "published": "a paper",
        "repetitions": ["split 0", "split 1", "split 2"],
        "runs": [{"command": "train.py --dataset=boston", "of": "all", "seconds": 12.5}],
        "units": {"linear": "nats", "gp": "nats", "published_gp": "nats"},
        "tables": {
            "scores": {"title": "scores", "columns": columns},
            "differences": {"title": "paired differences", "columns": paired},
        },
        "rows": [
            {
                "dataset": "boston",
                "linear": {"values": [-2.7, -2.8, -2.9]},
                "gp": {"values": [-2.3, -2.5, -2.7]},
                "published_gp": -2.4,
            },
            {"dataset": "energy", "linear": {"value": -2.5, "se": 0.04, "n": 3}, "gp": -0.78},
        ],
        **changes,
    }
