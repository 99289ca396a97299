import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpflow_deep_runs.sweeps import folder as history

TIME = "2026-01-01T00:00:00+00:00"
LINES: list[history.Event] = [
    {"run": "a", "event": "started", "time": TIME},
    {"run": "a", "event": "stopped", "time": TIME, "seconds": 3.0},
    {"run": "b", "event": "started", "time": TIME},
    {"run": "a", "event": "started", "time": TIME},
    {"run": "b", "event": "failed", "time": TIME, "seconds": 1.0},
    {"run": "a", "event": "done", "time": TIME, "seconds": 4.0},
    {"run": "c", "event": "started", "time": TIME},
]


def test_seconds_are_those_of_all_starts_of_what_is_done() -> None:
    assert history.seconds_of(LINES) == {"a": 7.0}


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert history.read(path) == []
    history.append(path, "a", "started", is_resumed=False, error=None)
    history.append(path, "b", "failed", error='the "end"\nof it')
    first, second = history.read(path)
    assert (first["run"], first["event"], first["is_resumed"]) == ("a", "started", False)
    assert "error" not in first
    assert second["error"] == 'the "end"\nof it'


def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history.append(path, "a", "started")
    whole = path.read_bytes()
    for end in range(len(whole), 0, -1):
        path.write_bytes(whole + whole[: end - 1])
        assert len(history.read(path)) == 1
        history.mend(path)
        assert path.read_bytes() == whole


def test_the_end_of_a_run_is_its_last_write(tmp_path: Path) -> None:
    """Whoever looks whether the folder is free writes into its lock: that is no work of the run."""
    now = datetime.now(timezone.utc)
    time = (now - timedelta(seconds=100)).isoformat(timespec="seconds")
    start = history.Event(run="a", event="started", time=time)
    (tmp_path / "checkpoints").mkdir()
    for name, age in (("scalars.jsonl", 60.0), ("checkpoints/state", 40.0), (".lock", 0.0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now.timestamp() - age, now.timestamp() - age))
    assert 60.0 <= history.seconds_since(start, tmp_path) <= 61.0  # the line has whole seconds
    assert history.seconds_since(start, tmp_path / "absent") == 0.0
