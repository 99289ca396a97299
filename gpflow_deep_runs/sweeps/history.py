"""What happened to the runs of a sweep: a file of JSON lines that survives kills and power failures."""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpflow_deep_base.files import files_below, parse_json, write_text
from gpflow_deep_base.storage.locks import LOCK

__all__ = ["append", "mend", "newest", "now", "read", "rename", "seconds_of", "seconds_since", "starts_of"]

Line = Mapping[str, Any]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines, without one at the end that a killed process left unfinished.

    :raises ValueError: naming a line that is damaged.
    """
    if not path.exists():
        return []
    return list(_lines(path, path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]))


def _lines(path: Path, lines: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            entry = parse_json(line)
            _ = entry["run"], entry["event"], datetime.fromisoformat(entry["time"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} line {number} is not a line of a sweep ({error}); remove it.") from error
        yield entry


def append(path: Path, run: str, event: str, **more: Any) -> None:
    """Add a line; it is on disk when this returns. What is None is left out."""
    line = {
        "run": run,
        "event": event,
        "time": now(),
        **{name: value for name, value in more.items() if value is not None},
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Drop an unfinished line at the end, so that the next one begins a line."""
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        if text and not text.endswith("\n"):
            write_text(path, text[: text.rfind("\n") + 1])


def rename(path: Path, names: Mapping[str, str]) -> None:
    """Give runs new names."""
    if names and path.exists():
        lines = [{**line, "run": names.get(line["run"], line["run"])} for line in read(path)]
        write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def newest(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last line of each run."""
    return {line["run"]: line for line in lines}


def starts_of(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The starts of each run."""
    starts: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if line["event"] == "started":
            starts.setdefault(line["run"], []).append(line)
    return starts


def seconds_of(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Wall time of the processes of each run that is done, all its starts together.

    Where nobody saw the end, as the sweep had been killed, the time to the last write into the folder of the run.
    """
    seconds: dict[str, float] = {}
    for line in lines:
        seconds[line["run"]] = seconds.get(line["run"], 0.0) + line.get("seconds", 0.0)
    return {name: seconds[name] for name, last in newest(lines).items() if last["event"] == "done"}


def seconds_since(start: Line, folder: Path) -> float:
    """Seconds from a line to the last write into a folder; its lock is also written by who only looks at it."""
    times = [facts.st_mtime for path, facts in files_below(folder).items() if path.name != LOCK]
    return max(0.0, max(times, default=0.0) - datetime.fromisoformat(start["time"]).timestamp())


def now() -> str:
    """The time, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
