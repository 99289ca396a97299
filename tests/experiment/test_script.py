"""experiment.script: exit status and message of each way in which a training script ends."""

import pytest
from absl import flags
from absl.testing import flagsaver

from experiment.loop import Interrupted
from experiment.script import TrainingFailed, own_words, run_program, run_script


@pytest.fixture(autouse=True)
def _flags_are_parsed() -> None:
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["script"])


def explain(error: Exception) -> tuple[str, int] | None:
    return (f"diverged: {error}", 3) if isinstance(error, TrainingFailed) else None


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (None, 0, ""),
        (ValueError("labels must be 0 to 9."), 2, "train.py: error: labels must be 0 to 9.\n"),
        (OSError("no such file"), 2, "train.py: error: no such file\n"),
        (TrainingFailed("step 7"), 3, "train.py: error: diverged: step 7\n"),
        (KeyboardInterrupt(), 130, "train.py: stopped; continue from the last checkpoint with --resume.\n"),
        (Interrupted(5, "SIGTERM"), 143, None),
        (Interrupted(5, "max_seconds"), 0, None),
    ],
)
def test_ends(
    capsys: pytest.CaptureFixture[str], error: BaseException | None, status: int, message: str | None
) -> None:
    def run_all(began: float) -> None:
        assert began > 0
        if error is not None:
            raise error

    assert run_script(["/somewhere/train.py"], run_all, explain) == status
    output, errors = capsys.readouterr()
    assert output == ""
    if message is None:
        assert errors.startswith("train.py: ")
        assert "after step 5" in errors
        assert "--resume" in errors
    else:
        assert errors == message


def test_errors_nobody_explains_pass_through() -> None:
    def run_all(began: float) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_script(["train.py"], run_all, explain)


def test_all_errors_pass_through_when_verbose() -> None:
    def run_all(began: float) -> None:
        raise ValueError("labels")

    with flagsaver.as_parsed(verbosity="1"), pytest.raises(ValueError, match="labels"):
        run_script(["train.py"], run_all, explain)


def test_positional_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script(["train.py", "data.csv"], lambda began: pytest.fail("must not run")) == 2
    assert "all arguments must be flags, --name=value, got 'data.csv'" in capsys.readouterr().err


def test_a_program_says_its_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        raise OSError("no model at here.npz")

    assert run_program(["/somewhere/predict.py"], lambda: None) == 0
    assert run_program(["/somewhere/predict.py"], run) == 2
    assert capsys.readouterr().err == "predict.py: error: no model at here.npz\n"


def test_a_program_has_nothing_to_resume() -> None:
    def run() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_program(["predict.py"], run)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "Graph execution error:\n\nDetected at node X\nNo space left\n\t [[{{node X}}]] [Op:__inference_f_1]",
            "No space left",
        ),
        ("out of memory", "out of memory"),
        ("[[{{node X}}]]", ""),
    ],
)
def test_own_words(message: str, words: str) -> None:
    assert own_words(message) == words
