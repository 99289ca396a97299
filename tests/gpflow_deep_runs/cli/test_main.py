"""gpflow_deep_runs.cli.main: exit status and message of each way in which a script ends, and absl around it."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from absl import flags as absl_flags
from absl import logging

from gpflow_deep_runs.cli import call
from gpflow_deep_runs.cli.flags import group
from gpflow_deep_runs.run import Interrupted, Settings
from tests.gpflow_deep_runs.run.toy import train
from tests.processes import LIMIT_SECONDS, limited

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _absl_as_before() -> Iterator[None]:
    """Undo what --verbosity sets for the process."""
    before = logging.get_verbosity()
    yield
    absl_flags.FLAGS["verbosity"].unparse()
    logging.set_verbosity(before)


@dataclass(frozen=True)
class Flags:
    """Do something.

    :param steps: how many.
    """

    steps: int = 3

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")


@dataclass(frozen=True)
class RunFlags:
    """Make a run."""

    run: Settings = group()


def ending_with(error: BaseException | None) -> Callable[[Flags], None]:
    def main(flags: Flags) -> None:
        print("ran", flags.steps)
        if error is not None:
            raise error

    return main


def explain(error: Exception) -> tuple[str, int] | None:
    return (f"a worker is lost: {error}", 7) if isinstance(error, ConnectionError | ZeroDivisionError) else None


# ---------------------------------------------------------------------------------------------- how a script ends


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (None, 0, ""),
        (ValueError("labels must be 0 to 9."), 2, "train.py: error: labels must be 0 to 9.\n"),
        (OSError("no model at here.npz"), 2, "train.py: error: no model at here.npz\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "here.npz"),
            2,
            "train.py: error: here.npz: no such file or directory; check the path.\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "train.py: error: no space left on device; free some space.\n",
        ),
        (
            OSError(errno.EDQUOT, "Disk quota exceeded", "r"),
            2,
            "train.py: error: r: disk quota exceeded; free some space.\n",
        ),
        (
            OSError("checkpoint of step 3 could not be written to r: [Errno 28] No space left on device: 'x'. More."),
            2,
            "train.py: error: checkpoint of step 3 could not be written to r: No space left on device: 'x'. More.\n",
        ),
        (
            ValueError("r/provenance.json cannot be read ([Errno 13] Permission denied); start again."),
            2,
            "train.py: error: r/provenance.json cannot be read (Permission denied); start again.\n",
        ),
        (
            FloatingPointError("the bound is nan after step 7; lower --learning_rate."),
            1,
            "train.py: error: the bound is nan after step 7; lower --learning_rate.\n",
        ),
        (KeyboardInterrupt(), 130, "train.py: stopped.\n"),
        (
            Interrupted(5, "SIGINT"),
            130,
            "train.py: training was stopped by SIGINT after step 5; continue it with --resume.\n",
        ),
        (
            Interrupted(5, "SIGTERM"),
            143,
            "train.py: training was stopped by SIGTERM after step 5; continue it with --resume.\n",
        ),
        (
            Interrupted(5, "max_seconds"),
            0,
            "train.py: training was stopped by max_seconds after step 5; continue it with --resume.\n",
        ),
        (ZeroDivisionError("task 1"), 7, "train.py: error: a worker is lost: task 1\n"),
        (ConnectionResetError("task 1"), 7, "train.py: error: a worker is lost: task 1\n"),  # before that of an OSError
    ],
)  # fmt: skip
def test_ends(capsys: pytest.CaptureFixture[str], error: BaseException | None, status: int, message: str) -> None:
    assert call(ending_with(error), ["/somewhere/train.py", "--steps=4"], explain=explain) == status
    output, errors = capsys.readouterr()
    assert output == "ran 4\n"
    assert errors == message


def test_errors_nobody_explains_pass_through() -> None:
    for error in (ZeroDivisionError("a bug"), TypeError("a bug"), KeyError("a bug")):
        with pytest.raises(type(error), match="a bug"):
            call(ending_with(error), ["train.py"])


@pytest.mark.parametrize("error", [ValueError("labels"), OSError("labels"), FloatingPointError("labels")])
def test_all_errors_pass_through_when_verbose(error: Exception) -> None:
    with pytest.raises(type(error), match="labels"):
        call(ending_with(error), ["train.py", "--verbosity=1"])
    assert call(ending_with(error), ["train.py", "--verbosity=0"]) in (1, 2)


def test_only_warnings_are_logged_unless_asked() -> None:
    seen: list[int] = []

    def main(flags: Flags) -> None:
        seen.append(logging.get_verbosity())

    call(main, ["train.py"])
    call(main, ["train.py", "--verbosity=0"])
    assert seen == [logging.WARNING, logging.INFO]


# ---------------------------------------------------------------------------------------------- before it begins


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stpes=3"], "Unknown command line flag 'stpes'. Did you mean: steps ?; see --help."),
        (["--steps=0"], "--steps must be at least 1, got 0."),
        (["data.csv"], "all arguments must be flags, --name=value, got 'data.csv'; see --help."),
        (["--flagfile=/absent"], "--flagfile=/absent: no such file or directory."),
    ],
)
def test_wrong_flags_are_one_line_and_nothing_runs(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    def main(flags: Flags) -> None:
        pytest.fail("must not run")

    assert call(main, ["/somewhere/train.py", *arguments]) == 2
    assert capsys.readouterr() == ("", f"train.py: error: {message}\n")


def test_help_is_printed_and_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def main(flags: Flags) -> None:
        pytest.fail("must not run")

    assert call(main, ["/somewhere/train.py", "--help"]) == 0
    output, errors = capsys.readouterr()
    assert output.startswith("train.py: Do something.\n\n  --steps (3)\n      how many.\n")
    assert errors == ""


def test_a_folder_is_refused_before_the_program_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And so before it has read any data."""

    def main(flags: RunFlags) -> None:
        pytest.fail("must not run")

    (tmp_path / "thesis.tex").write_text("text")
    assert call(main, ["train.py", f"--run_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err == (
        f"train.py: error: --run_dir={tmp_path} must be a new or empty folder, it holds other files; give a new one.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_only_a_program_that_makes_a_run_speaks_of_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    errors: list[BaseException] = [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device", "r/x")]

    def main(flags: RunFlags) -> None:
        raise errors.pop(0)

    assert call(main, ["train.py", f"--run_dir={tmp_path}"]) == 130
    assert capsys.readouterr().err == "train.py: stopped; continue from the last checkpoint with --resume.\n"
    assert call(main, ["train.py", f"--run_dir={tmp_path}"]) == 2
    assert capsys.readouterr().err == (
        "train.py: error: r/x: no space left on device; free some space, then continue with --resume.\n"
    )


# ---------------------------------------------------------------------------------------------- several commands


@dataclass(frozen=True)
class Other:
    """Do something else.

    :param output: where to.
    """

    output: str


def test_a_program_of_several_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has flags of its own; what is wrong is said with the name of the command."""
    given: list[str] = []
    commands: dict[str, Any] = {"encode": ending_with(None), "decode": lambda flags: None}

    def decode(flags: Other) -> None:
        given.append(flags.output)

    commands["decode"] = decode
    assert call(commands, ["codec.py", "encode", "--steps=2"]) == 0
    assert call(commands, ["codec.py", "decode", "--output=x"]) == 0
    assert given == ["x"]
    assert capsys.readouterr() == ("ran 2\n", "")

    assert call(commands, ["/somewhere/codec.py", "decode"]) == 2
    assert capsys.readouterr().err == "codec.py decode: error: --output must be given; see --help.\n"
    assert call(commands, ["codec.py", "decode", "--steps=2"]) == 2
    assert "codec.py decode: error: Unknown command line flag 'steps'" in capsys.readouterr().err
    for arguments, got in [([], ""), (["encdoe"], "encdoe"), (["--steps=2"], "--steps=2")]:
        assert call(commands, ["codec.py", *arguments]) == 2
        assert capsys.readouterr().err == (
            f"codec.py: error: say encode or decode, then flags, --name=value, got {got!r}; see --help.\n"
        )
    assert call(commands, ["codec.py", "--help"]) == 0
    output = capsys.readouterr().out
    assert "codec.py encode: Do something." in output
    assert "codec.py decode: Do something else." in output
    assert "--output (required)" in output


# ---------------------------------------------------------------------------------------------- lost output


_PRINTING = """
import sys
from dataclasses import dataclass
import gpflow_deep_runs.early
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import group
from gpflow_deep_runs.run import Settings


@dataclass(frozen=True)
class Flags:
    '''Make a run.'''

    run: Settings = group()


@dataclass(frozen=True)
class Plain:
    '''Make something else.'''

    run_dir: str


def training(flags: Flags) -> None:
    lines(flags.run.run_dir)


def other(flags: Plain) -> None:
    lines(flags.run_dir)


def lines(path: str) -> None:
    for number in range(20_000):  # more than any buffer holds
        print("step", number)
        print("step", number, file=sys.stderr, flush=True)
    with open(path, "w") as file:
        assert file.fileno() > 2
        file.write("done")
    print("step", number, flush=True)


if __name__ == "__main__":
    cli.run({"training": training, "other": other})
"""


@pytest.fixture(scope="module")
def printing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("printing") / "printing.py"
    path.write_text(_PRINTING)
    return path


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param("2>&1 | head -n 1", id="pipe"),
        pytest.param(">/dev/full 2>/dev/full", id="full"),
        pytest.param(">&- 2>&-", id="closed"),
    ],
)
def test_a_lost_output_ends_no_training(tmp_path: Path, printing: Path, lost: str) -> None:
    """Whether its reader has gone, its disk is full, or it was never there."""
    command = f"{sys.executable} {printing} training --run_dir={tmp_path / 'run'}; echo $? > {tmp_path / 'status'}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-c", f"({command}) {lost}"], env=environment, capture_output=True, timeout=LIMIT_SECONDS)
    assert (tmp_path / "run").read_text() == "done"
    assert (tmp_path / "status").read_text() == "0\n"


def test_a_program_whose_output_is_its_result_says_that_it_is_lost(tmp_path: Path, printing: Path) -> None:
    command = f"{sys.executable} {printing} other --run_dir={tmp_path / 'run'} >/dev/full 2>/dev/null"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], env=environment, timeout=LIMIT_SECONDS)
    assert done.returncode == 2
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------- as an absl program

_SCRIPT = """
import time
from dataclasses import dataclass
from pathlib import Path
from absl import logging
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import group
from gpflow_deep_runs.run import Devices, Settings, devices, open_run
import tensorflow as tf
from tests.gpflow_deep_runs.run import toy


@dataclass(frozen=True)
class Flags:
    '''Train a toy.'''

    run: Settings = group(num_steps=50)
    devices: Devices = group()
    own: bool = False


def main(flags: Flags) -> None:
    strategy = flags.devices.prepare()
    print(cli.flags.text(flags), end="")
    print(logging.get_verbosity(), tf.config.threading.get_intra_op_parallelism_threads(), strategy, flush=True)
    logging.info("told")
    logging.warning("%d rows are odd", 3)
    training = toy.Toy()

    def slow(first, count):
        print("step", first, flush=True)
        time.sleep(0.05)
        return training.advance(first, count)

    with open_run(flags.run, cli.flags.text(flags), toy.Data()) as run:
        toy.fit(run, training, advance=slow)


if __name__ == "__main__":
    cli.run(main, explain=devices.explain)
"""


def test_a_script_as_a_user_calls_it(tmp_path: Path) -> None:
    """By absl's app: its flags and --flagfile work, its own flags stay out of the text, TensorFlow's start is silent,
    and Ctrl-C saves the step that is running and ends with 130 after one line."""
    (tmp_path / "toy_script.py").write_text(_SCRIPT)
    (tmp_path / "flags.txt").write_text("--own\n--verbosity=0\n--num_steps=100000\n--noprogress\n--log_every=1\n")
    run_dir = tmp_path / "run"
    command = [sys.executable, str(tmp_path / "toy_script.py"), f"--flagfile={tmp_path / 'flags.txt'}", "--threads=1"]
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    with subprocess.Popen(
        [*command, f"--run_dir={run_dir}"],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = []
            with limited(process):
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    if line == "step 2\n":
                        process.send_signal(signal.SIGINT)
                        break
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert lines[:13] == [
        "--batch_size=10000", "--checkpoint_every=1000", "--eval_every=1000", "--log_every=1", "--noprogress",
        "--num_steps=100000", "--own", "--seed=0", "--strategy=none", "--threads=1",
        "0 1 None", "toy: made up", "rows: {'train': 5}",
    ]  # fmt: skip
    ran = [line for line in [*lines[13:], *output.splitlines()] if line]
    assert ran == [f"step {step}" for step in range(len(ran))]
    told, warned, *by_tensorflow, end = errors.splitlines()
    assert (told, warned) == ("told", "warning: 3 rows are odd")  # words, without times and places
    assert all(line.startswith("Sharding callback") for line in by_tensorflow), errors  # as --verbosity=0 asks for
    assert end == f"toy_script.py: training was stopped by SIGINT after step {len(ran)}; continue it with --resume."
    whole, _ = train(tmp_path / "whole", num_steps=len(ran) + 2, eval_every=1000, checkpoint_every=1000)
    flags = (run_dir / "flags.txt").read_text()
    again, _ = train(run_dir, num_steps=len(ran) + 2, eval_every=1000, checkpoint_every=1000, resume=True, flags=flags)
    assert again.calls[0] == (len(ran), 1)
    assert again.bits() == whole.bits()
