"""The folder of a sweep, and the history of its runs, which survives kills and power failures.

SWEEP/sweep.toml     the file as used last; earlier ones are sweep-1.toml, sweep-2.toml, ...
      sweep.json     the flags of each run; versions, commit and command of each start of the sweep
      history.jsonl  one line for each start and end of a run
      runs/NAME/     the folder of each run, as if its script had been called by hand
      logs/NAME.log  what its script wrote to the console
      table.txt, table.md, table.json
      .lock          who holds the folder
"""

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict

from gpflow_deep_base.files import (
    entries,
    files_below,
    leftovers,
    make_folder,
    parse_json,
    sync_folder,
    write_json,
    write_text,
)
from gpflow_deep_base.storage.locks import LOCK, Held, lock, refuse_if_held
from gpflow_deep_runs.run_dir import flag_name
from gpflow_deep_runs.sweeps.spec import PlannedRun, Sweep, arguments

__all__ = ["SweepDir", "seconds_of"]

FREE = ("checkpoint_every", "checkpoint_seconds", "data_dir", "log_every", "progress", "threads")
"""Flags that may change between two starts of a sweep: no result depends on them."""


class _Event(TypedDict):
    run: str
    event: str
    time: str


class Event(_Event, total=False):
    """A line of history.jsonl: a run was started, stopped or changed, is done, or has failed."""

    seconds: float
    is_estimate: bool
    is_resumed: bool
    code: int
    error: str
    machine: str
    local: list[str]


class Record(TypedDict, total=False):
    """What sweep.json holds: nothing as long as there is none."""

    script: str
    runs: dict[str, list[str]]
    starts: list[dict[str, object]]


OWN_FILES = re.compile(r"\.tmp-.*|sweep(-\d+)?\.toml|sweep\.json|history\.jsonl|runs|logs|" + re.escape(LOCK))


class SweepDir:
    """Paths and records of one sweep; see the module's docstring. Writing needs its lock: :meth:`opened`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        self._record_file = self.path / "sweep.json"
        self._history = self.path / "history.jsonl"
        self._held: Held | None = None

    def run_dir(self, name: str) -> Path:
        """The folder of a run."""
        return self.path / "runs" / name

    def log_file(self, name: str) -> Path:
        """What a run wrote to the console."""
        return self.path / "logs" / f"{name}.log"

    @contextmanager
    def opened(
        self,
        sweep: Sweep,
        runs: Sequence[PlannedRun],
        about: Mapping[str, object],
        full_flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> Iterator[None]:
        """Hold the folder, new or of an earlier start, and record the file and what it is run with.

        :param about: versions, commit and so on of this start.
        :param full_flags: of each run by name, with those that the file leaves at their defaults, as its flags.txt will
            have them. A run that was made under another name, before the file got a new axis, is found by them.
        :raises ValueError: if another process has the folder, it holds something else than a sweep, or the file has
            other flags for a run that has results or checkpoints there.
        """
        # Refuse a folder that is in use, or not that of a sweep.
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"--sweep_dir must be a folder, got the file {self.path}; give another --sweep_dir.")
        refuse_if_held(self.path, flag="sweep_dir")
        names = [path.name for path in entries(self.path)]
        if "sweep.json" not in names and not all(OWN_FILES.fullmatch(name) for name in names):
            raise ValueError(
                f"--sweep_dir={self.path} must be a new or empty folder or that of a sweep, it holds other files; "
                f"give another --sweep_dir."
            )
        with lock(self.path, flag="sweep_dir") as self._held:
            for leftover in leftovers(self.path):  # by a sweep that was killed
                leftover.unlink()
            # What may not differ from the record is refused before anything is written.
            record = self.record()
            changed = self.changed(sweep, runs)
            recorded: Mapping[str, list[str]] = record.get("runs", {})
            for folder in ("runs", "logs"):
                make_folder(self.path / folder)
            # Runs keep their results under the name that the file gives them now.
            mend(self._history)
            renamed = self._renamed(recorded, runs, full_flags)
            for name in changed:
                self.note(name, "changed")
            # Record the file, the flags of all runs, and this start.
            self._keep_text(sweep.text)
            kept_runs = {name: flags for name, flags in recorded.items() if name not in renamed}
            planned_runs = {run.name: arguments(run.flags) for run in runs}
            starts = [*record.get("starts", []), {"time": _now(), **about}]
            new = Record(script=sweep.script, runs=kept_runs | planned_runs, starts=starts)
            write_json(self._record_file, new)
            yield

    def record(self) -> Record:
        """What sweep.json holds; empty if there is none.

        :raises ValueError: if it is damaged.
        """
        if not self._record_file.exists():
            return {}
        try:
            record: Record = parse_json(self._record_file.read_bytes())
            if not isinstance(record, dict):
                raise ValueError("it is no object of JSON")
            return record
        except ValueError as error:
            raise ValueError(f"{self._record_file} cannot be read ({error}); give a new --sweep_dir.") from error

    def history(self) -> list[Event]:
        """The lines of history.jsonl."""
        return read(self._history)

    def newest(self) -> dict[str, Event]:
        """The last line of history.jsonl of each run."""
        return {line["run"]: line for line in self.history()}

    def note(self, name: str, event: str, **more: object) -> None:
        """Add a line to history.jsonl.

        :raises LostFolder: if the folder of the sweep was renamed, removed or replaced meanwhile.
        """
        if self._held is not None:
            self._held.check()
        append(self._history, name, event, **more)

    def settle(self, name: str) -> None:
        """Note the end of a run whose sweep was killed before it saw that end."""
        last = self.newest().get(name)
        if last is not None and last["event"] == "started":
            # Nobody saw the end: the last write into its folder tells when it was.
            seconds = round(seconds_since(last, self.run_dir(name)), 3)
            event = "stopped" if self.result(name) is None else "done"
            self.note(name, event, seconds=seconds, is_estimate=True)

    def result(self, name: str, file: str = "result.json") -> dict[str, object] | None:
        """The result.json, or another JSON file, of a run; None if there is none that is whole."""
        try:
            content = parse_json((self.run_dir(name) / file).read_bytes())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def is_begun(self, name: str) -> bool:
        """Whether a run can be continued: it has a checkpoint. Otherwise its script starts it anew in its folder."""
        # Checkpoints of a part of the run count, those of failed starts do not.
        folder = self.run_dir(name)
        progress_files = entries(folder, "result.json", below=True) + entries(folder, "step-*", below=True)
        return any(not path.relative_to(folder).parts[0].startswith("failed-") for path in progress_files)

    def holder(self, name: str) -> str | None:
        """Which process has the folder of a run, in words; None if it is free."""
        try:
            refuse_if_held(self.run_dir(name))
        except ValueError as error:
            return str(error).partition(" in use by ")[2].partition(";")[0]
        return None

    def strangers(self, runs: Sequence[PlannedRun]) -> list[str]:
        """Recorded runs that are not of these."""
        return sorted(set(self.record().get("runs", {})) - {run.name for run in runs})

    def changed(self, sweep: Sweep, runs: Sequence[PlannedRun], *, is_new_allowed: bool = True) -> list[str]:
        """Names of runs that have other flags now than in the folder, where nothing was made with the former yet.

        :param is_new_allowed: False: refuse a folder that holds no sweep.
        :raises ValueError: if something was made with other flags, or all runs there are of another script.
        """
        record = self.record()
        if not (is_new_allowed or self._record_file.exists()):
            raise ValueError(f"--sweep_dir={self.path} holds no sweep yet; run it first, or give its folder.")
        if record.get("script", sweep.script) != sweep.script:
            raise ValueError(
                f"--sweep_dir={self.path} holds runs of {record['script']}, the file is for {sweep.script}; "
                f"give another --sweep_dir."
            )
        changed = []
        # A flag may change as long as nothing was made with its former value.
        for run in runs:
            planned = _by_name(arguments(run.flags))
            words = record.get("runs", {}).get(run.name)
            stored = planned if words is None else _by_name(words)
            differing = [name for name in {**stored, **planned} if stored.get(name) != planned.get(name)]
            if differing and self.is_begun(run.name):
                former, now = (flags.get(differing[0], f"without --{differing[0]}") for flags in (stored, planned))
                raise ValueError(
                    f"--sweep_dir={self.path} has the run {run.name} {former}, the file has it {now}; give a "
                    f"new --sweep_dir, or remove {self.run_dir(run.name)} to run it again."
                )
            if differing:
                changed.append(run.name)
        return changed

    def _renamed(
        self,
        recorded: Mapping[str, Sequence[str]],
        runs: Sequence[PlannedRun],
        full_flags: Mapping[str, Sequence[str]],
    ) -> dict[str, str]:
        """Former -> new name of runs that the file calls otherwise than when they were made; they are renamed."""
        # The same flags under another name are the same run.
        names_by_flags = {_key(words): name for name, words in full_flags.items() if name not in recorded}
        names = {}
        for former in sorted(recorded.keys() - {run.name for run in runs}):
            file = self.run_dir(former) / "flags.txt"
            name = names_by_flags.get(_key(file.read_text(encoding="utf-8").splitlines())) if file.is_file() else None
            if name is not None and not self.run_dir(name).exists() and self.holder(former) is None:
                names[former] = name
                os.replace(self.run_dir(former), self.run_dir(name))
                if self.log_file(former).exists():
                    os.replace(self.log_file(former), self.log_file(name))
        # The folders are renamed on disk before the history says so.
        if names:
            sync_folder(self.path / "runs")
            lines = [{**line, "run": names.get(line["run"], line["run"])} for line in self.history()]
            write_text(self._history, "".join(json.dumps(line) + "\n" for line in lines))
        return names

    def _keep_text(self, text: str) -> None:
        file = self.path / "sweep.toml"
        if file.exists() and (former := file.read_text(encoding="utf-8")) != text:
            number = next(n for n in itertools.count(1) if not (self.path / f"sweep-{n}.toml").exists())
            write_text(self.path / f"sweep-{number}.toml", former)
        write_text(file, text)


def _by_name(words: Sequence[str]) -> dict[str, str]:
    """Flags by name, without those that may change. Of booleans, `no` is left out of the name."""
    return {flag_name(word): word for word in words if flag_name(word) not in FREE}


def _key(words: Sequence[str]) -> frozenset[str]:
    return frozenset(_by_name([word for word in words if word.strip()]).values())


def read(path: Path) -> list[Event]:
    """The lines of a history, without one at the end that a killed process left unfinished.

    :raises ValueError: naming a line that is damaged.
    """
    entries_of_runs = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            entry = parse_json(line)
            datetime.fromisoformat(entry["time"])
            if not isinstance(entry["run"], str) or not isinstance(entry["event"], str):
                raise ValueError("run and event must be texts")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} line {number} is not a line of a sweep ({error}); remove it.") from error
        entries_of_runs.append(entry)
    return entries_of_runs


def append(path: Path, run: str, event: str, **more: object) -> None:
    """Add a line to a history; it is on disk when this returns. What is None is left out."""
    given = {name: value for name, value in more.items() if value is not None}
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"run": run, "event": event, "time": _now(), **given}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def mend(path: Path) -> None:
    """Drop an unfinished line at the end of a history, so that the next one begins a line."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if text and not text.endswith("\n"):
        write_text(path, text[: text.rfind("\n") + 1])


def seconds_of(lines: Sequence[Event]) -> dict[str, float]:
    """Wall time of the processes of each run that is done, all its starts together.

    Where nobody saw the end, as the sweep had been killed, the time to the last write into the folder of the run.
    """
    seconds: dict[str, float] = {}
    for line in lines:
        seconds[line["run"]] = seconds.get(line["run"], 0.0) + line.get("seconds", 0.0)
    newest_events = {line["run"]: line["event"] for line in lines}
    return {name: seconds[name] for name, event in newest_events.items() if event == "done"}


def seconds_since(start: Event, folder: Path) -> float:
    """Seconds from a line to the last write into a folder; its lock is also written by who only looks at it."""
    times = [facts.st_mtime for path, facts in files_below(folder).items() if path.name != LOCK]
    return max(0.0, max(times, default=0.0) - datetime.fromisoformat(start["time"]).timestamp())


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
