"""What the benchmarks share: their start, files of results, tables, functions that take turns, and rivals.

def define_flags(fv):
    flags.DEFINE_integer("repetitions", 15, "Timed calls.", flag_values=fv)
    bench.define_common(fv)                                                   # --threads and --output

def main(FLAGS):
    times = bench.time_in_turn({"ours": ours, "theirs": theirs}, FLAGS.repetitions)
    rows = [{"method": name, **bench.compared(1e3 * each.wall, ...)} for name, each in times.items()]
    bench.print_table(rows, {"method": "{method}", "min ms": "{min_ms:.1f}"})
    bench.write({"metrics": rows}, "none: drawn with seed 0")

if __name__ == "__main__":
    bench.run(define_flags, main)
"""

import contextlib
import json
import os
import platform
import re
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from absl import app, flags

from gpflow_deep_base.files import read_jsonl, write_json, write_text
from gpflow_deep_base.numbers.scores import standard_error

if TYPE_CHECKING:
    from sklearn.base import ClassifierMixin

    from ebp.network.coding import Matrix
    from gpflow_deep_runs.data.rows import Rows
    from gpflow_deep_runs.data.views import View

flags.disclaim_key_flags()  # --help shows those of `define_common` as the script's own

KNOWN_DATA = "of each data set: as gpflow_deep_runs.data.sets checks"
"""What stands for the checksum of known data sets."""

PLACES = {"data_dir", "fasta", "output", "case", "dgpsi", "folder", "run_dir", "gpflux", "gpytorch", "trieste"}

Result = TypeVar("Result")
Row: TypeAlias = dict[str, Any]
"""Values of a table's row by name."""
Document: TypeAlias = Mapping[str, Any]
"""What a file of results holds, and rows that stay as they are."""


# The start of a script, and its flags.


def define_common(
    fv: flags.FlagValues, *, threads: int = 0, output: str = "Write the results to this JSON file."
) -> None:
    """Define --threads and --output.

    :param threads: the default.
    :param output: what is said of it.
    """
    flags.DEFINE_integer("threads", threads, "CPU threads; 0 lets the libraries choose.", 0, flag_values=fv)
    flags.DEFINE_string("output", None, output, flag_values=fv)


def run(
    define_flags: Callable[[flags.FlagValues], None],
    main: Callable[[flags.FlagValues], None],
    *,
    required: Sequence[str] = (),
    sets_threads: bool = True,
) -> None:
    """Read the flags, set TensorFlow's threads and call `main` with the flags.

    :param required: flags that have to be given.
    :param sets_threads: whether --threads is TensorFlow's.
    """
    define_flags(flags.FLAGS)
    flags.mark_flags_as_required(required)

    def start(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f"no arguments besides flags, got {argv[1:]}")
        # Threads before anything makes a tensor.
        if sets_threads:
            from gpflow_deep_runs.run.devices import apply_threads

            apply_threads(flags.FLAGS.threads)
        main(flags.FLAGS)

    app.run(start)


def settings() -> Row:
    """The script's flags by name, but for those that say where data, results and programs are."""
    script_flags = flags.FLAGS.get_flags_for_module(sys.argv[0])
    return {flag.name: flag.value for flag in script_flags if flag.name not in PLACES}


def load(dataset: str, data_dir: str | None, view: "View | Literal['continuous']", **options: Any) -> "Rows":
    """Rows of a known data set, see `gpflow_deep_runs.data.views.load`."""
    from gpflow_deep_runs.data import views

    return views.load(views.Source(dataset=dataset, data_dir=data_dir), view, **options)


# Files of results.

_STARTED = time.monotonic()


def keep(document: Document, data: str, *, path: str | os.PathLike[str] | None = None, **extra: object) -> None:
    """Write what there is so far, with the flags and all else that it depends on.

    :param document: "metrics": rows, and what else there is.
    :param data: checksum of the data, or what checks them.
    :param path: --output if it is not given; nothing is written without either.
    :param extra: further entries of the provenance.
    """
    if path := path or flags.FLAGS.output:
        from gpflow_deep_runs.run.folder import provenance

        # What it cost so far, as a long measurement may be stopped.
        spent = {"seconds": time.monotonic() - _STARTED, "cpu_seconds": cpu_seconds()}
        record = provenance(data, cpus=os.cpu_count(), **spent, **extra)
        write_json(path, {"flags": settings(), **document, "provenance": record})


def write(document: Document, data: str, **extra: Any) -> None:
    """As :func:`keep`, and say so."""
    keep(document, data, **extra)
    if flags.FLAGS.output:
        print(f"\nwrote {flags.FLAGS.output}")


def write_rows(rows: Iterable[Document], data: str, **extra: Any) -> list[Row]:
    """Print rows as they come, and :func:`keep` all so far after each, as a long measurement may be stopped."""
    written_rows: list[Row] = []
    for row in rows:
        written_rows.append(dict(row))
        print(*(f"{name}={value}" for name, value in row.items()), flush=True)
        keep({"metrics": written_rows}, data, **extra)
    return written_rows


def kept() -> list[Row]:
    """The rows that an earlier call left in --output."""
    path = Path(flags.FLAGS.output or "")
    return json.loads(path.read_text(encoding="utf-8"))["metrics"] if path.is_file() else []


def kept_lines() -> list[Row]:
    """What :func:`keep_lines` of an earlier call left in --output."""
    path = Path(flags.FLAGS.output or "")
    return read_jsonl(path) if path.is_file() else []


def keep_lines(lines: Iterable[Document]) -> None:
    """Write rows to --output, if that is given, a JSON line each."""
    if flags.FLAGS.output:
        write_text(flags.FLAGS.output, "".join(f"{json.dumps(line)}\n" for line in lines))


# What is printed.


def print_table(rows: Sequence[Document], columns: Mapping[str, str]) -> None:
    """A line for each row, with cells to the right.

    :param columns: title -> template of a cell, such as "{min_ms:.1f}"; empty where a row lacks what it shows.
    """
    lines = [list(columns), *([_cell(template, row) for template in columns.values()] for row in rows)]
    # As wide as the widest cell of each column.
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def _cell(template: str, row: Document) -> str:
    shown = {re.split(r"[.\[]", name)[0] for _, name, _, _ in string.Formatter().parse(template) if name}
    return "" if any(row.get(name) is None for name in shown) else template.format_map(row)


def print_row(row: Document, columns: Mapping[str, str]) -> None:
    """A line of a table in Markdown, with cells as in :func:`print_table`."""
    print_markdown([_cell(template, row) for template in columns.values()])


def print_markdown(cells: Sequence[str]) -> None:
    """A line of a table in Markdown."""
    print(f"| {' | '.join(cells)} |", flush=True)


def print_titles(*titles: str) -> None:
    """The head of a table in Markdown."""
    print_markdown(titles)
    print("|---" * len(titles) + "|", flush=True)


def print_machine() -> None:
    """On what it was computed."""
    machine = platform.processor() or platform.machine()
    print(f"{machine}, Python {platform.python_version()}, {flags.FLAGS.threads} threads")


def means(rows: Sequence[Mapping[str, float]]) -> str:
    """Of each quantity of repetitions the mean and its standard error."""
    return "  ".join(f"{name} {mean_and_error([row[name] for row in rows])}" for name in rows[0])


def mean_and_error(values: Sequence[float]) -> str:
    """The mean and its standard error."""
    return f"{np.mean(values):.4f} ± {standard_error(values):.4f}"


# Times.


class Times(NamedTuple):
    """Seconds of each call by the clock and of this process's CPU, [repetitions] each, and the last result."""

    wall: np.ndarray
    cpu: np.ndarray
    last: Any


def cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def in_turn(
    functions: Mapping[str, Callable[[int], Result]], repetitions: int, *, warm_up: int = 1
) -> dict[str, list[Result]]:
    """Results of functions, called in turn with the number of the repetition, so that all see the same load.

    :param warm_up: calls of each before, whose results are left out.
    """
    names = list(functions)
    results: dict[str, list[Result]] = {name: [] for name in names}
    # Each repetition begins with another function.
    for i in range(warm_up + repetitions):
        shift = i % len(names)
        for name in names[shift:] + names[:shift]:
            results[name].append(functions[name](i))
    return {name: calls[warm_up:] for name, calls in results.items()}


def time_in_turn(
    functions: Mapping[str, Callable[[int], object]], repetitions: int, *, warm_up: int = 1
) -> dict[str, Times]:
    """Times of functions, called as by :func:`in_turn`."""

    def timed(function: Callable[[int], object]) -> Callable[[int], tuple[float, float, object]]:
        def call(i: int) -> tuple[float, float, object]:
            wall = time.perf_counter()
            cpu = time.process_time()
            result = function(i)
            return time.perf_counter() - wall, time.process_time() - cpu, result

        return call

    # A call is its wall time, its CPU time and its result.
    calls_of = in_turn({name: timed(function) for name, function in functions.items()}, repetitions, warm_up=warm_up)
    return {
        name: Times(np.array([call[0] for call in calls]), np.array([call[1] for call in calls]), calls[-1][2])
        for name, calls in calls_of.items()
    }


def compared(times: np.ndarray, reference: np.ndarray, unit: str) -> Row:
    """Minimum and median of times [repetitions], and how many times as long the reference takes.

    :param unit: of both, for the names: "min_ms".
    :return: also the ratio of the minima, and the quartiles of the ratios of neighbouring calls.
    """
    return {
        f"min_{unit}": float(np.min(times)),
        f"median_{unit}": float(np.median(times)),
        "ratio_of_minima": float(np.min(reference) / np.min(times)),
        "ratio_quartiles": np.percentile(reference / times, [25, 50, 75]).tolist(),
    }


# Other processes.


def answer_of(python: str, program: str, argument: str, **environment: str) -> Any:
    """What a program of another Python prints, as JSON behind ANSWER.

    :raises RuntimeError: if it fails, with the end of what it printed.
    """
    words = [python, "-c", program, argument]
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0 or "ANSWER" not in done.stdout:
        raise RuntimeError(f"the rival's process failed ({python}):\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.rsplit("ANSWER", 1)[1])


class Rival:
    """A program that answers each line of JSON with a line of JSON, until the end of a `with` block."""

    def __init__(self, *words: object, **environment: str) -> None:
        """Start it."""
        self._name = str(words[0])
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [*map(str, words)], stdin=pipe, stdout=pipe, text=True, env={**os.environ, **environment}
        )

    def __enter__(self) -> "Rival":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, question: object) -> Any:
        """What it answers.

        :raises RuntimeError: as :meth:`answer`.
        """
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Any:
        """The next line that it prints; libraries may print lines that are no JSON before it.

        :raises RuntimeError: if the program has ended.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                return json.loads(line)
        self._process.communicate()
        raise RuntimeError(f"{self._name} has ended (exit code {self._process.returncode}).")


# What several benchmarks of classifiers measure.


def classifier_scores(
    make: Callable[[], "ClassifierMixin"], X: "Matrix", y: np.ndarray, X_test: "Matrix", y_test: np.ndarray
) -> dict[str, float]:
    """Error in percent, CPU seconds of the fit; of models with probabilities log loss, calibration error in percent."""
    from gpflow_deep_base.numbers.scores import label_scores

    # The error, and the time of the fit alone.
    start = time.process_time()
    model = make().fit(X, y)
    metrics = {"cpu_s": time.process_time() - start, "error": 100.0 * float(np.mean(model.predict(X_test) != y_test))}
    # Scores of probabilities, where the model has them.
    if hasattr(model, "predict_proba"):
        log_p = np.log(np.maximum(model.predict_proba(X_test), np.finfo(np.float64).tiny))
        classes = np.searchsorted(model.classes_, y_test)
        scores = label_scores(log_p, classes)
        metrics |= {"log_loss": scores["log_loss"], "calibration_error": scores["calibration"]}
    return metrics


# What several benchmarks of deep GPs measure.


class Standardised(NamedTuple):
    """Rows in the units that models are trained in, and the log of the scale of the targets."""

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray
    log_scale: float = 0.0


def standardised(dataset: str, data_dir: str | None, split: int = 0, **options: Any) -> Standardised:
    """Training and test rows of a split, with mean 0 and deviation 1 of the training rows' columns."""
    from gpflow_deep import Units

    # Units are those of the training rows, for all rows.
    data = load(dataset, data_dir, "supervised", split=split, **options)
    units = Units.fit(data.train.X, data.train.Y, "gaussian")
    train = units.transform(data.train.X, data.train.Y)
    test = units.transform(data.test.X, data.test.Y)
    return Standardised(*train, *test, float(np.log(np.std(data.train.Y))))
