"""The folder of a sweep: its file, what it was made with, its runs, and what happened to each of them.

SWEEP/sweep.toml     the file as used last; earlier ones are sweep-1.toml, sweep-2.toml, ...
      sweep.json     the flags of each run; versions, commit and command of each start of the sweep
      history.jsonl  one line for each start and end of a job
      runs/NAME/     the folder of each run, as if its script had been called by hand
      logs/NAME.log  what its script wrote to the console
      table.txt, table.md, table.json
      .lock          who holds the folder
"""

import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from experiment.files import make_folder, write_json, write_text
from experiment.locks import LOCK, lock, refuse_if_held
from experiment.sweeps.runs import PlannedRun, arguments
from experiment.sweeps.spec import Sweep

__all__ = ["SweepDir"]

FREE = ("checkpoint_every", "checkpoint_seconds", "data_dir", "log_every", "progress", "threads")
"""Flags that may change between two starts of a sweep: no result depends on them."""


class SweepDir:
    """Paths and records of one sweep; see the module's docstring. Writing needs its lock: :meth:`opened`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()

    @property
    def record_file(self) -> Path:
        """Flags of the runs, and what the sweep was made with."""
        return self.path / "sweep.json"

    @property
    def history_file(self) -> Path:
        """Starts and ends of jobs."""
        return self.path / "history.jsonl"

    def run_dir(self, name: str) -> Path:
        """The folder of a run."""
        return self.path / "runs" / name

    def log_file(self, name: str) -> Path:
        """What a run wrote to the console."""
        return self.path / "logs" / f"{name}.log"

    @contextmanager
    def opened(self, sweep: Sweep, runs: Sequence[PlannedRun], about: Mapping[str, Any]) -> Iterator[None]:
        """Hold the folder, new or of an earlier start, and record the file and what it is run with.

        :param about: versions, commit and so on of this start.
        :raises ValueError: if another process has the folder, it holds something else than a sweep, or the file has
            other flags for a run that has results or checkpoints there.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"--sweep_dir must be a folder, got the file {self.path}; give another --sweep_dir.")
        refuse_if_held(self.path, flag="sweep_dir")
        self._refuse_other_files()
        with lock(self.path, flag="sweep_dir"):
            record = self.record()
            changed = self._changed(record, sweep, runs)
            make_folder(self.path / "runs")
            make_folder(self.path / "logs")
            self._mend_history()
            for name in changed:
                self.note(name, "changed")
            self._keep_text(sweep.text)
            known = {**record.get("runs", {}), **{run.name: arguments(run.flags) for run in runs}}
            starts = [*record.get("starts", []), {"time": _now(), **about}]
            write_json(self.record_file, {"script": sweep.script, "runs": known, "starts": starts})
            yield

    def record(self) -> dict[str, Any]:
        """What sweep.json holds; empty if there is none.

        :raises ValueError: if it is damaged.
        """
        if not self.record_file.exists():
            return {}
        try:
            return dict(json.loads(self.record_file.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.record_file} cannot be read ({error}); start in a new --sweep_dir.") from error

    def result(self, name: str) -> dict[str, Any] | None:
        """The result.json of a run; None if there is none that is whole."""
        try:
            found = json.loads((self.run_dir(name) / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def continues(self, name: str) -> bool:
        """Whether there is something of a run to continue: a checkpoint. Its script takes the folder anew otherwise."""
        folder = self.run_dir(name)
        found = itertools.chain(folder.rglob("result.json"), folder.rglob("step-*"))
        return any(not path.relative_to(folder).parts[0].startswith("failed-") for path in found)

    def newest(self) -> dict[str, dict[str, Any]]:
        """The last line of history.jsonl of each run."""
        return {line["run"]: line for line in self.history()}

    def history(self) -> list[dict[str, Any]]:
        """The lines of history.jsonl, without one that a killed process left unfinished."""
        if not self.history_file.exists():
            return []
        lines = self.history_file.read_text(encoding="utf-8", errors="replace").split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def note(self, name: str, event: str, **more: Any) -> None:
        """Add a line to history.jsonl; it is on disk when this returns."""
        line = json.dumps({"run": name, "event": event, "time": _now(), **more}) + "\n"
        with open(self.history_file, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def holder(self, name: str) -> str | None:
        """Which process has the folder of a run, in words; None if it is free."""
        try:
            refuse_if_held(self.run_dir(name))
        except ValueError as error:
            return str(error).partition(" in use by ")[2].partition(";")[0]
        return None

    def strangers(self, runs: Sequence[PlannedRun]) -> list[str]:
        """Runs of the folder that are not of these."""
        return sorted(set(self.record().get("runs", {})) - {run.name for run in runs})

    def _changed(self, record: Mapping[str, Any], sweep: Sweep, runs: Sequence[PlannedRun]) -> list[str]:
        """Names of runs that have other flags now, but nothing that they invalidate."""
        if record.get("script", sweep.script) != sweep.script:
            raise ValueError(
                f"--sweep_dir={self.path} holds runs of {record['script']}, the file is for {sweep.script}; "
                f"give a new --sweep_dir."
            )
        changed = []
        for run in runs:
            before, now = _by_name(record.get("runs", {}).get(run.name)), _by_name(arguments(run.flags))
            if before is None or before == now:
                continue
            if self.continues(run.name):
                names = sorted(set(before.items()) ^ set(now.items()))[0][0]  # type: ignore[union-attr]
                raise ValueError(
                    f"the file has other flags for {run.name} than when it was run in {self.path}: "
                    f"{before.get(names, f'no --{names}')} is now {now.get(names, 'not there')}. "  # type: ignore[union-attr]
                    f"Give a new --sweep_dir, or remove {self.run_dir(run.name)} to run it again."
                )
            changed.append(run.name)
        return changed

    def _refuse_other_files(self) -> None:
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        own = {LOCK, "runs", "logs"}
        if "sweep.json" not in names and any(
            name not in own and not name.startswith((".tmp-", "sweep")) for name in names
        ):
            raise ValueError(
                f"--sweep_dir={self.path} must be a new or empty folder or that of a sweep, it holds other files; "
                f"give another --sweep_dir."
            )

    def _keep_text(self, text: str) -> None:
        file = self.path / "sweep.toml"
        if file.exists() and file.read_text(encoding="utf-8") != text:
            number = next(n for n in itertools.count(1) if not (self.path / f"sweep-{n}.toml").exists())
            write_text(self.path / f"sweep-{number}.toml", file.read_text(encoding="utf-8"))
        write_text(file, text)

    def _mend_history(self) -> None:
        """Drop a last line that was cut short, so that the next one begins a line."""
        if self.history_file.exists():
            text = self.history_file.read_text(encoding="utf-8", errors="replace")
            if text and not text.endswith("\n"):
                write_text(self.history_file, text[: text.rfind("\n") + 1])


def _by_name(words: Sequence[str] | None) -> dict[str, str] | None:
    """Flags by name, without those that may change; None stays None."""
    if words is None:
        return None
    names = {word: word.lstrip("-").partition("=")[0] for word in words}
    return {name: word for word, name in names.items() if name.removeprefix("no") not in FREE and name not in FREE}


def _now() -> str:
    return datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="seconds")
