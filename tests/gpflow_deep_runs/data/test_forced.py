from typing import Any

import pytest

from gpflow_deep_runs.data.table.spec import Forced, forced_columns

NAMES = ["a", "b", "when", "when:dmy", "x:y"]


def test_values_of_flags() -> None:
    found = forced_columns(
        NAMES, where="F", ignore=["a"], categorical=["x:y"], numeric=["b:comma"], dates=["when:%H:%M %d.%m.%Y"]
    )
    assert found == {
        "a": Forced("ignored"),
        "x:y": Forced("category"),
        "b": Forced("number", "comma"),
        "when": Forced("date", "%H:%M %d.%m.%Y"),
    }
    assert forced_columns(NAMES, where="F", dates=["when:dmy"]) == {"when:dmy": Forced("date")}
    assert forced_columns(NAMES, where="F", dates=["when:dmy:mdy"]) == {"when:dmy": Forced("date", "mdy")}
    assert forced_columns(NAMES, where="F") == {}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"ignore": ["z"]}, "--ignore must name columns of F, got 'z'; it has 'a', 'b'"),
        ({"ignore": ["a:dmy"]}, "--ignore must name columns of F, got 'a:dmy'"),
        ({"numeric": ["z:comma"]}, "--numeric must name columns of F, got 'z:comma'"),
        ({"ignore": ["a"], "numeric": ["a"]}, "'a' must be in one flag once, got --ignore and --numeric"),
        ({"dates": ["a", "a:dmy"]}, "'a' must be in one flag once"),
        ({"numeric": ["a:dot"]}, "--numeric=a:HOW must have point or comma .* got 'dot'"),
        ({"dates": ["a:dym"]}, "--dates=a:HOW must have dmy, mdy, ymd, local or a strptime format .*: it has no year"),
        ({"dates": ["a:%Y-%Q"]}, "it has %Q"),
    ],
)
def test_impossible_values(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forced_columns(NAMES, where="F", **flags)
