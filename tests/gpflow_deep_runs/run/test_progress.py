"""gpflow_deep_runs.run.progress: a bar in a terminal, a line a minute elsewhere, nothing if that is asked for."""

import contextlib
import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpflow_deep_runs.run import fit
from gpflow_deep_runs.run.progress import Progress, headline
from tests.gpflow_deep_runs.run.toy import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("gpflow_deep_runs.run.progress.time.monotonic", found)
    return found


def test_a_line_a_minute_with_scalars_and_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """60 steps a minute: 100 steps from step 20 take 100 s, of which 40 are left after 60."""
    with Progress(20, 120, is_shown=True) as shown:
        for step in range(21, 121):
            clock.seconds += 1.0
            scalars = {}
            if step % 10 == 0:
                scalars["train/loss"] = 100.0 / step
            if step % 25 == 0:
                scalars["valid/nll_nats"] = 1.23456789
            shown.advance(step, scalars)
    assert capsys.readouterr() == ("", "step 80 of 120; loss 1.25, valid nll 1.2346; 40 s left\n")


def test_no_line_before_a_minute_and_one_for_each(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Counted from the last line, not from the start: a long step makes one line, and not two."""
    with Progress(0, 100, is_shown=True) as shown:
        for step, seconds in enumerate([30, 29, 0.5, 0.5, 200, 59, 1, 60], start=1):
            clock.seconds += seconds
            shown.advance(step, {})
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" of ")[0] for line in lines] == ["step 4", "step 5", "step 7", "step 8"]
    assert lines[0] == "step 4 of 100; 24 min 0 s left"  # 96 steps of 15 s


def test_speed_is_that_of_this_process(clock: Clock) -> None:
    """A run that is resumed at step 900 has made 10 steps in a minute, not 910; nothing is known before the first."""
    with Progress(900, 1000, is_shown=False) as shown:
        assert shown.line() == "step 900 of 1000; ? left"
        clock.seconds += 60.0
        shown.advance(910, {})
        assert shown.line() == "step 910 of 1000; 9 min 0 s left"


def test_a_newer_scalar_of_a_part_takes_the_place_of_the_older() -> None:
    """Whatever its name: of a longer report only the first tag of each part is shown."""
    with Progress(0, 10, is_shown=False) as shown:
        shown.advance(1, {"train/loss": 1.0, "valid/nll": 2.0, "valid/error": 9.0})
        shown.advance(2, {"valid/error": 3.0, "speed": 7.0})
        shown.advance(3, {"train/loss": 0.5})
        shown.advance(4, {"gradient/norm": 5.0})
        assert shown.line().split("; ")[1] == "loss 0.5, valid error 3"


@pytest.mark.parametrize("num_steps", [0, 5])
def test_no_bar_of_no_steps(
    num_steps: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress(0, num_steps, is_shown=True) as shown:
        shown.advance(num_steps, {})
    assert (f"{num_steps}/{num_steps}" in capsys.readouterr().err) == (num_steps > 0)


def test_a_bar_has_room_beside_its_scalars() -> None:
    """Names of parts of a run are not said, nor a name twice."""
    with Progress(0, 300, is_shown=False) as shown:
        shown.advance(
            100, {"b/seed_0_fold_1/train/log_evidence_nats": -0.0985, "b/seed_0_fold_1/test/error_percent": 3}
        )
        assert shown.line().split("; ")[1] == "log_evidence -0.0985, test error 3"
        shown.advance(200, {"train/log_likelihood_nats": -8.0508, "valid/log_likelihood_nats": -8.1102})
        assert "log_likelihood -8.0508, valid -8.1102" in shown.line()


@pytest.mark.parametrize(
    ("scalars", "tags"),
    [
        ({}, []),
        ({"speed": 1.0, "layer_1/variance": 2.0}, []),
        ({"train/elbo": 1.0, "train/kl": 2.0}, ["train/elbo"]),
        ({"valid/rmse": 1.0, "train/elbo": 2.0, "test/rmse": 3.0}, ["train/elbo", "valid/rmse"]),
        ({"test/rmse": 3.0, "train/elbo": 2.0}, ["train/elbo", "test/rmse"]),
        ({"gp/train/elbo": 1.0, "gp/valid/rmse": 2.0, "gp/test/rmse": 3.0}, ["gp/train/elbo", "gp/valid/rmse"]),
        ({"pretrain/loss": 1.0, "invalid/x": 2.0, "latest/y": 3.0}, []),
    ],
)
def test_the_first_scalar_of_training_and_of_validation(scalars: dict[str, float], tags: list[str]) -> None:
    """That of the test part stands in where there is no validation part."""
    assert list(headline(scalars)) == tags
    assert all(headline(scalars)[tag] == scalars[tag] for tag in tags)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Standard error is a terminal; at the end the list holds what was written to it."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))  # 80 columns
    written: list[str] = []
    with open(slave, "w", encoding="utf-8", buffering=1) as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", file)
        yield written
        file.flush()
        os.set_blocking(master, False)
        pieces = []
        with contextlib.suppress(BlockingIOError):  # a terminal hands over what was written piece by piece
            while piece := os.read(master, 1 << 16):
                pieces.append(piece)
        written.append(b"".join(pieces).decode())
    os.close(master)


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as written, Progress(0, 40, is_shown=True) as shown:
        shown.advance(10, {"train/elbo_nats": 0.25, "valid/log_likelihood_nats": -4.7727})
        shown.advance(30, {"train/elbo_nats": -18589.0})
    last = [shown for shown in written[0].split("\r") if shown.strip()][-1]
    assert "30/40" in last
    assert "elbo -18589, valid log_likelihood -4.7727" in last
    assert len(last.rstrip()) <= 80
    assert last.count("█") >= 6  # a bar that can be seen
    assert "left" not in written[0]  # no line of the other kind


def test_what_is_shown_where(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A training: nothing without `progress`, even in a terminal; a bar in it; elsewhere lines, the first after a
    minute, so that a short run writes nothing."""

    def train(progress: bool) -> None:
        fit(lambda first, count: None, num_steps=3, progress=progress)

    with terminal(monkeypatch) as quiet:
        train(False)
        print("end", file=sys.stderr)
    assert quiet == ["end\r\n"]
    with terminal(monkeypatch) as bar:
        train(True)
    assert "3/3" in bar[0]
    for progress in (False, True):
        train(progress)
    assert capsys.readouterr().err == ""
