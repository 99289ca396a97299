"""One run: its folder, its seeds, what it writes, and the loop.

with open_run(settings, text_of_flags, data) as run:
    fitted = run.fit(advance, state=lambda: {"trainer": trainer}, scalars=..., evaluate=..., rule=lowest("valid/nll"))
    run.finish(result, text=table, parts=[Panels("Curves", panels)])
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import tensorflow as tf

from gpflow_deep_base.files import make_folder, read_jsonl, sync_file, write_bytes, write_json, write_text
from gpflow_deep_base.page import Panels, Part, Picture, Text, page, sheet
from gpflow_deep_base.seeds import seed_words
from gpflow_deep_base.stopping import Best
from gpflow_deep_base.storage.locks import Held, lock
from gpflow_deep_base.text import aligned, within
from gpflow_deep_runs import run_dir
from gpflow_deep_runs.run import checkpoints, devices, folder
from gpflow_deep_runs.run.final import hparams_of, metrics_of, write_final
from gpflow_deep_runs.run.loop import Every, Fitted, Observed, fit
from gpflow_deep_runs.run.selection import Rule, newest
from gpflow_deep_runs.run.writer import Shown, Writer
from gpflow_deep_runs.run_dir import RunDir

__all__ = ["About", "Columns", "Run", "Settings", "open_run"]

_OVERRULED = "To read columns otherwise: --ignore, --categorical, --numeric, --dates, --na_values."


class Columns(Protocol):
    """How the columns of a table were read."""

    def table(self) -> Sequence[Sequence[str]]:
        """For a user to check, as rows of text below a header."""

    def to_json(self) -> Mapping[str, object]:
        """For a program to read new rows alike."""


class About(Protocol):
    """What a run says about its data: `Rows`, a stream, or anything else that has these."""

    @property
    def name(self) -> str:
        """Short name."""

    @property
    def source(self) -> str:
        """Where the data come from, and what was done to them."""

    @property
    def sha256(self) -> str:
        """Checksum of everything that the run uses."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Number of rows of each part."""

    @property
    def schema(self) -> Columns | None:
        """How the columns of a table were read; None if the data are no table of the user's own."""


@dataclass(frozen=True)
class Settings:
    """How a run is run; none of it says what is computed, but `seed`, `num_steps` and `batch_size`.

    :param run_dir: folder of the run; new or empty, or an earlier run with --resume.
    :param resume: continue the run in --run_dir from its newest checkpoint; auto: if there is one, else start it, for
        jobs that a batch system starts again.
    :param seed: seed of all randomness except the split of the data.
    :param num_steps: number of parameter updates.
    :param batch_size: rows in a minibatch; all rows if there are fewer.
    :param log_every: steps between lines of training scalars.
    :param eval_every: steps between evaluations on validation data.
    :param checkpoint_every: steps between checkpoints.
    :param checkpoint_seconds: also write a checkpoint when this time has passed since the last one.
    :param max_seconds: stop and save a checkpoint after this time.
    :param progress: show a bar on standard error if that is a terminal, else a line a minute.
    """

    run_dir: str
    resume: bool | Literal["auto"] = False
    seed: int = 0
    num_steps: int = 20_000
    batch_size: int = 10_000
    log_every: int = 100
    eval_every: int = 1_000
    checkpoint_every: int = 1_000
    checkpoint_seconds: float | None = None
    max_seconds: float | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        # Numbers that no run can have, each with the name of its flag.
        seed_words(self.seed)  # refuses what is no seed
        for name in ("num_steps", "batch_size", "log_every", "eval_every", "checkpoint_every"):
            if not 1 <= getattr(self, name) < 2**31:
                raise ValueError(f"--{name} must be between 1 and 2**31 - 1, got {getattr(self, name)}.")
        for name in ("checkpoint_seconds", "max_seconds"):
            if (value := getattr(self, name)) is not None and not value >= 0:
                raise ValueError(f"--{name} must not be negative, got {value}.")
        # A folder that can be had is looked for later, by `check_folder`.
        if not self.run_dir:
            raise ValueError("--run_dir must name a folder, got an empty name.")
        if not isinstance(self.resume, bool) and self.resume != "auto":
            raise ValueError(f"--resume must be true, false or auto, got {self.resume!r}.")

    @property
    def is_resumed(self) -> bool:
        """Whether an earlier run in --run_dir is continued; of `auto` what is there decides."""
        return run_dir.is_resumed(self.run_dir, self.resume)

    def check_folder(self) -> None:
        """Refuse --run_dir before anything is read or computed; see `run_dir.check_free`. Of several workers, the chief
        will do that when it opens the run."""
        if "TF_CONFIG" not in os.environ:
            run_dir.check_free(self.run_dir, resume=self.resume)


@contextmanager
def open_run(
    settings: Settings,
    flags: str,
    data: About,
    strategy: tf.distribute.Strategy | None = None,
    *,
    name: str = "run",
    free: Collection[str] = (),
    changed: str | None = None,
) -> Iterator["Run"]:
    """Make or continue the folder of a run, and hold its lock until the end of the `with` statement.

    :param flags: one flag a line, as `cli.flags.text` gives them.
    :param data: what is said about the data; a data set itself will do.
    :param name: what TensorBoard calls the run, such as the name of the model.
    :param free: flags that may differ when the run is resumed, besides `run_dir.FREE_ON_RESUME`.
    :param changed: those of `flags` that differ from their defaults, as `cli.flags.changed` gives them, for reports;
        None: all.
    :raises ValueError: as `folder.open_folder`; if another process has the folder; and for --max_seconds with several
        workers, whose clocks differ.
    """
    path = Path(settings.run_dir).expanduser()
    worker = devices.worker_of(strategy)
    if worker.count > 1 and settings.max_seconds is not None:
        raise ValueError("--max_seconds could stop several workers at different steps; give --num_steps alone.")
    # Only the chief writes, so that only it has the folder and its lock.
    if not worker.is_chief:
        yield Run(settings, flags, data, RunDir(path, name), strategy, changed=changed)
        return
    run_dir.check_free(path, resume=settings.resume)
    with lock(path) as held:
        # Looked at again under the lock: the folder may have changed meanwhile.
        is_resumed = run_dir.is_resumed(path, settings.resume)
        record = folder.provenance(data.sha256, seed=settings.seed, data_source=data.source)
        opened = folder.open_folder(path, name=name, flags_text=flags, provenance=record, resume=is_resumed, free=free)
        # Users see at once which rows were read, and how.
        print(within(f"{data.name}: {data.source}\nrows: {dict(data.sizes)}"), flush=True)
        if data.schema is not None:
            write_json(opened.columns_file, data.schema.to_json())
            print(f"\n{aligned(data.schema.table(), is_text=True)}\n\n{within(_OVERRULED)}\n", flush=True)
        versions = folder.versions_text(record)
        yield Run(settings, flags, data, opened, strategy, versions=versions, held=held, changed=changed)


class Run:
    """The run that :func:`open_run` opened."""

    def __init__(
        self,
        settings: Settings,
        flags: str,
        data: About,
        path: RunDir,
        strategy: tf.distribute.Strategy | None = None,
        *,
        versions: str = "",
        held: Held | None = None,
        changed: str | None = None,
    ) -> None:
        self.settings = settings
        self.flags = flags
        self.changed = flags if changed is None else changed
        self.data = data
        self.strategy = strategy
        self._folder = path
        self._versions = versions
        self._held = held
        self.is_chief = devices.worker_of(strategy).is_chief
        self._start = time.monotonic()
        self._step = tf.Variable(0, dtype=tf.int64)

    @property
    def folder(self) -> RunDir:
        """The paths of the run. Whoever asks is about to write, so it is looked whether they lead there still.

        :raises LostFolder: if the folder that was opened was renamed, removed or replaced.
        """
        self._check_folder()
        return self._folder

    @property
    def path(self) -> Path:
        """The folder of the run; checked as :attr:`folder` is."""
        return self.folder.path

    def _check_folder(self) -> None:
        if self._held is not None:
            self._held.check()

    def share_of_seconds(self, count: int) -> float | None:
        """Seconds for the first of `count` children that share what is left of --max_seconds; None without a limit."""
        limit = self.settings.max_seconds
        return None if limit is None else max(0.0, limit - (time.monotonic() - self._start)) / count

    def child(self, name: str, flags: str | None = None, changed: str | None = None) -> "Run":
        """A run within the run, in the folder of that name; TensorBoard shows it beside this one.

        :param flags: those of the child, one a line, where they differ from those of the run.
        :param changed: those of them that differ from their defaults.
        """
        # It has its own folder and shares the rest: settings, data, lock and devices.
        path = RunDir(self.path / name, name, home=self.folder.home or self.path)
        for subfolder in (path.checkpoint_dir, path.tensorboard_dir, path.plots_dir) if self.is_chief else ():
            make_folder(subfolder)
        # A child that is trained as the run is has its flags.
        flags = self.flags if flags is None else flags
        return Run(
            self.settings,
            flags,
            self.data,
            path,
            self.strategy,
            versions=self._versions,
            held=self._held,
            changed=changed,
        )

    def fit(
        self,
        advance: Callable[[int, int], Observed],
        *,
        state: Callable[[], Mapping[str, Any]],
        scalars: Callable[[Observed], Mapping[str, float]],
        evaluate: Callable[[int], Mapping[str, float]],
        rule: Rule = newest,
        patience: int | None = None,
        is_done: Callable[[int], bool] = lambda step: False,
        keep: Callable[[Path], None] = lambda path: None,
        show: Callable[[], Shown] | None = None,
        also: Sequence[tuple[int, Callable[[int], Mapping[str, float]]]] = (),
        restore: Callable[[Path, Mapping[str, object]], int | None] | None = None,
        saved: Callable[[], None] = lambda: None,
        steps_per_call: int = 1,
        max_seconds: float | None = None,
    ) -> Fitted:
        """Train from the newest checkpoint to `num_steps`; log, evaluate and save, each at its own steps.

        :param advance: `(first, count)` makes these steps; what it returns goes to `scalars`.
        :param state: gives all that changes, by name, for checkpoints.
        :param scalars: what to log of the last steps.
        :param evaluate: what to log of an evaluation after a step. Of what both log, the first scalars of train/ and
            valid/ are shown beside the progress.
        :param rule: which evaluation is the best.
        :param patience: stop after so many in a row that were no better.
        :param is_done: whether so many steps are all that have to be made.
        :param keep: writes the model, which is the best so far, to a file.
        :param show: pictures and histograms at evaluations, for TensorBoard.
        :param also: pairs (every, function of the step): more scalars to log.
        :param restore: in place of `checkpoints.restore`, for objects whose shapes change: (folder, own objects) to the
            step of the checkpoint, or None.
        :param saved: called after each checkpoint.
        :param steps_per_call: the most steps of one call of `advance`.
        :param max_seconds: in place of that of the settings.
        :raises Interrupted: as `loop.fit`, after saving a checkpoint.
        :raises FloatingPointError: of `advance` and `rule`: training has diverged.
        """
        settings = self.settings
        # Go on from the newest checkpoint: all that changes, the best evaluation and the step.
        best = tf.Variable(np.array(Best(), np.float64))
        run_variables = {"best": best, "step": self._step}
        if restore is None:
            restored = checkpoints.restore(self.folder.checkpoint_dir, **state(), **run_variables)
        else:
            restored = restore(self.folder.checkpoint_dir, run_variables)
        # Workers that do not see the same checkpoints would train from different steps.
        devices.check_same_step(self.strategy, int(self._step))
        with Writer.of_chief(self.folder, self.is_chief, resume_step=restored) as writer:
            if writer is not None and restored is None:
                writer.text(0, "flags", self.flags)
                writer.text(0, "versions", self._versions)

            last_logged = int(self._step), time.monotonic()

            def log(step: int, line: Mapping[str, float]) -> None:
                nonlocal last_logged
                if writer is None:
                    return
                self._check_folder()
                writer.scalars(step, line)
                # Speed since the last line; what a picture takes is not counted.
                last_step, last_time = last_logged
                seconds = max(time.monotonic() - last_time, 1e-9)
                writer.rates(step, {"speed/steps_per_second": (step - last_step) / seconds})
                # Pictures are shown after an evaluation.
                if show and (step % settings.eval_every == 0 or step == settings.num_steps or is_done(step)):
                    writer.show(step, show())
                last_logged = step, time.monotonic()

            def save(step: int, found: Best) -> None:
                self._check_folder()
                # Variables hold what a resumed run needs of the loop itself.
                self._step.assign(step)
                best.assign(np.array(found, np.float64))
                if writer is not None:
                    # Scalars reach the disk before the checkpoint of their step, from which a resumed run goes on.
                    writer.sync()
                    checkpoints.save(self.folder.checkpoint_dir, step, **state(), **run_variables)
                    saved()

            return fit(
                advance,
                num_steps=settings.num_steps,
                every=Every(
                    settings.log_every, settings.eval_every, settings.checkpoint_every, settings.checkpoint_seconds
                ),
                scalars=scalars,
                evaluate=evaluate,
                also=also,
                rule=rule,
                first=int(self._step),
                best=_best_of(best),
                patience=patience,
                is_done=is_done,
                keep=lambda: self._keep(keep),
                log=log,
                save=save,
                agree=partial(devices.values_of_chief, self.strategy),
                steps_per_call=steps_per_call,
                progress=settings.progress and self.is_chief and not is_done(int(self._step) + 1),  # no bar of a step
                max_seconds=settings.max_seconds if max_seconds is None else max_seconds,
            )

    def _keep(self, keep: Callable[[Path], None]) -> None:
        if not self.is_chief:
            return
        keep(self.best_file)
        if self.best_file.exists():  # it has to be there when the checkpoint that names its step is
            sync_file(self.best_file)

    @property
    def best_file(self) -> Path:
        """The model of the best evaluation, which `keep` wrote."""
        return self.path / "best.npz"

    def records(self) -> list[dict[str, Any]]:
        """What was logged, one dictionary for each step."""
        return read_jsonl(self.folder.scalars_file)

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        """One more line of scalars after :meth:`fit`, for a run whose time was up before its last step."""
        with Writer.of_chief(self.folder, self.is_chief, resume_step=step) as writer:
            if writer is not None:
                writer.scalars(step, scalars)
                writer.sync()

    def finish(
        self,
        result: Mapping[str, object],
        *,
        text: str = "",
        metrics: Mapping[str, float | None] = MappingProxyType({}),
        chosen: Mapping[str, bool | float | str] = MappingProxyType({}),
        verdict: str = "",
        parts: Sequence[Part] = (),
    ) -> None:
        """Write result.json, report.html and the plots; show the pictures in TensorBoard, and print the text.

        :param result: what the run reports.
        :param text: the report; "" prints nothing, for a child of another run, which has no page.
        :param metrics: what runs are compared by, by the names of `final.METRICS`.
        :param chosen: settings that no flag gave, by the names of the flags: they are compared, too.
        :param verdict: what it comes to, in a sentence, for the top of report.html, and the last line of the text.
        :param parts: what report.html shows below it, each plot and picture also a file in plots/. The text is shown,
            too, unless one of them is called "Scores".
        """
        text = within(text)
        # Plots first, as result.json says that a run is complete.
        pictures = self._write_plots(parts)
        # What the run reports, between what it was made of and how long it took.
        numbers = {
            "dataset": self.data.name,
            "seed": self.settings.seed,
            "rows": dict(self.data.sizes),
            **result,
            "wall_seconds": time.monotonic() - self._start,
            "flags": self.flags.splitlines(),
        }
        write_json(self.folder.result_file, numbers)
        # For TensorBoard, settings and scores side by side with other runs.
        write_final(
            self.folder,
            int(self._step),
            hparams={**hparams_of(self.changed), **chosen},
            numbers=metrics_of(metrics),
            text=text,
            images=pictures,
        )
        # The page, and on the console the text with what of the verdict is not in it.
        if text:
            self._write_page(verdict, text, parts)
            said = " ".join(text.split())
            new = [within(line) for line in verdict.splitlines() if " ".join(line.split()) not in said]
            print("\n" + "\n".join([text, *new, f"written to {self.path}"]), flush=True)

    def _write_plots(self, parts: Sequence[Part]) -> dict[str, bytes]:
        """Plots as SVG and pictures as PNG files, named by their titles; the pictures, by tag."""
        pictures: dict[str, bytes] = {}
        for part in parts:
            name = re.sub(r"\W+", "_", part.title).strip("_").lower()
            if isinstance(part, Panels):
                write_text(self.folder.plots_dir / f"{name}.svg", sheet(part.panels))
            elif isinstance(part, Picture):
                write_bytes(self.folder.plots_dir / f"{name}.png", part.png)
                pictures[f"plots/{name}"] = part.png
        return pictures

    def _write_page(self, verdict: str, text: str, parts: Sequence[Part]) -> None:
        """report.html: what was printed, plots and pictures, and what made it."""
        scores = [] if any(part.title == "Scores" for part in parts) else [Text("Scores", text)]
        provenance_parts = [
            Text("Settings that differ from their defaults", self.changed or "none\n"),
            Text("Data", within(f"{self.data.name}: {self.data.source}\nrows: {dict(self.data.sizes)}\n")),
            Text("Versions", self._versions),
        ]
        content = page(f"{self.data.name}: {self._folder.path.name}", verdict, [*scores, *parts, *provenance_parts])
        write_text(self.folder.path / "report.html", content)


def _best_of(saved: tf.Variable) -> Best:
    step, value, num_worse, std, is_trusted = saved.numpy()
    return Best(int(step), float(value), int(num_worse), float(std), bool(is_trusted))
