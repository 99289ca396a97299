"""JSON as dataclasses, and as text for people."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from gpflow_deep_runs.report.structure import built, dumped, read_json


@dataclass(frozen=True)
class Inner:
    """A part."""

    number: float

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"must be at least 0, got {self.number}.")


@dataclass(frozen=True)
class Outer:
    """A whole."""

    name: str
    kind: Literal["a", "b"]
    inner: tuple[Inner, ...]
    by_name: Mapping[str, int | str | Inner | tuple[float, ...]]
    flag: bool = False
    note: str | None = None


GOOD: dict[str, Any] = {
    "name": "x",
    "kind": "b",
    "inner": [{"number": 1}, {"number": 2.5}],
    "by_name": {"i": 1, "s": "t", "o": {"number": 3}, "l": [1, 2.5]},
    "note": None,
}


def test_built() -> None:
    by_name: dict[str, Any] = {"i": 1, "s": "t", "o": Inner(3), "l": (1, 2.5)}
    assert built(Outer, GOOD, "file") == Outer("x", "b", (Inner(1), Inner(2.5)), by_name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "file: name: must be text, got 1."),
        ({"kind": "c"}, "file: kind: must be 'a' or 'b', got \"c\"."),
        ({"inner": {}}, "file: inner: must be a list, got {}."),
        ({"inner": [{"number": 1}, {"number": True}]}, "file: inner[1].number: must be a number, got true."),
        ({"inner": [{"number": -1}]}, "file: inner[0]: must be at least 0, got -1."),
        ({"inner": [{}]}, "file: inner[0]: 'number' is missing."),
        ({"by_name": {"z": None}}, "file: by_name.z: must be an integer or text or an object or a list, got null."),
        ({"by_name": {"z": 1.5}}, "file: by_name.z: must be an integer or text or an object or a list, got 1.5."),
        ({"flag": 1}, "file: flag: must be true or false, got 1."),
        ({"nam": "x"}, "file: 'nam' is no part of it; perhaps name."),
    ],
)
def test_faults_are_named_with_their_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the whole message is compared)
        built(Outer, GOOD | change, "file")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n "a": 1,\n}', r"its JSON is damaged: .*line 3 column 1"),
        (b'{"a": "\xff"}', "its JSON is not UTF-8"),
        (b" " * 1_000_001, "must have at most 1,000,000 bytes"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_json(path)
    assert str(error.value).startswith(str(path))


def test_dumped_is_json_on_few_lines() -> None:
    value = {"short": {"a": [1, 2.5, "ü"]}, "long": [{"name": "n" * 30, "text": "t" * 30}] * 3, "empty": []}
    text = dumped(value)
    assert json.loads(text) == value
    assert text.split("\n")[:3] == ["{", '  "short": {"a": [1, 2.5, "ü"]},', '  "long": [']
    assert len(text.split("\n")) == 9  # one line for each object of the list
    assert max(map(len, text.split("\n"))) < 120
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumped({"a": float("nan")})
