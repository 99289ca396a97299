"""Rows of measurements: all that came before a stop are in the file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpflow_deep_runs.run.measurements import write_rows


def stopped_rows() -> Iterator[dict[str, Any]]:
    yield {"seed": 0, "error": 1.5}
    yield {"seed": 1, "error": 1.25}
    raise KeyboardInterrupt


def test_rows_before_a_stop_are_written_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    with pytest.raises(KeyboardInterrupt):
        write_rows(stopped_rows(), file, "checked", rival="1.0")
    written = json.loads(file.read_text())
    assert written["metrics"] == [{"seed": 0, "error": 1.5}, {"seed": 1, "error": 1.25}]
    assert (written["provenance"]["data_sha256"], written["provenance"]["rival"]) == ("checked", "1.0")
    assert capsys.readouterr().out.splitlines() == ["seed=0 error=1.5", "seed=1 error=1.25"]


def test_without_a_file_rows_are_given_back(tmp_path: Path) -> None:
    assert write_rows([{"a": 1}, {"a": 2}], None, "checked") == [{"a": 1}, {"a": 2}]
    assert not list(tmp_path.iterdir())
