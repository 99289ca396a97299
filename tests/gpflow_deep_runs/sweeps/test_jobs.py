"""Each run exactly once, whoever is killed when: with a training of a fraction of a second."""

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from gpflow_deep_runs.sweeps import Program, Status, SweepDir, expand, jobs, work
from tests.gpflow_deep_runs.sweeps import sweeping, training
from tests.gpflow_deep_runs.sweeps.sweeping import (
    num_checkpoints,
    pid_of,
    process_of,
    scores,
    starts,
    sweep_of,
    swept,
    wait_for,
)

EXPECTED = {"split0-a": 1.0, "split0-b": 2.0, "split1-a": 11.0, "split1-b": 12.0}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "HELD_SECONDS", 0.1)


@pytest.fixture
def folder(tmp_path: Path) -> SweepDir:
    return SweepDir(tmp_path / "sweep")


def test_all_runs_are_done_once(folder: SweepDir) -> None:
    report, said = swept(folder, sweep_of(), jobs=2)
    assert sorted(report.done) == sorted(EXPECTED)
    assert (report.failed, report.stopped, list(report.left), report.signal) == ({}, {}, [], None)
    assert scores(folder, sweep_of()) == EXPECTED
    assert [line for line in said if line.startswith("started")] == [f"started: {name}" for name in EXPECTED]
    assert sum(line.startswith("done: ") for line in said) == 4
    events = [(line["run"], line["event"]) for line in folder.history()]
    assert sorted(events) == sorted((name, event) for name in EXPECTED for event in ("started", "done"))
    again, said = swept(folder, sweep_of(), jobs=2)
    assert sorted(again.done) == sorted(EXPECTED)
    assert said == []
    assert all(starts(folder, name) == [0] for name in EXPECTED)


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_at_a_time_as_were_asked_for(folder: SweepDir, count: int) -> None:
    seen: list[Status] = []

    def look(status: Status) -> None:
        seen.append(status)
        if len(status.running) == count and all(job.line.startswith("step 3 of 4") for job in status.running):
            sweeping.release(folder)

    sweep = sweep_of(splits="[0, 1]", num_steps=4, settings="a = {hold = 0}\nb = {hold = 0, offset = 1}")
    swept(folder, sweep, jobs=count, show=look)
    assert max(len(status.running) for status in seen) == count
    for status in seen:
        assert len(status.done) + len(status.running) + len(status.left) == 4


HELD = "a = {offset = 1, hold = %d}\nb = {offset = 2, hold = %d}"


def test_a_sweep_that_is_killed_is_continued(folder: SweepDir) -> None:
    """Its jobs save and end by themselves; what is done stays, what was begun goes on from its checkpoint."""
    sweep = sweep_of(num_steps=5, settings=HELD % (1, 1))
    with process_of(folder, sweep, jobs=2) as process:
        sweeping.wait_for_hold(folder, "split1-a", "split1-b")
        pids = [pid_of(folder, name) for name in ("split1-a", "split1-b")]
        process.kill()
        process.wait()
    wait_for(lambda: not any(map(sweeping.is_running, pids)))
    assert "stopped; continue it with --resume." in folder.log_file("split1-a").read_text()
    sweeping.release(folder)
    report, said = swept(folder, sweep, jobs=2)
    assert sorted(report.done) == sorted(EXPECTED)
    assert said[:2] == ["continued: split1-a", "continued: split1-b"]
    assert scores(folder, sweep) == EXPECTED
    assert [starts(folder, name) for name in EXPECTED] == [[0], [0], [0, 3], [0, 3]]
    ends = [line for line in folder.history() if line["run"] == "split1-a" and "seconds" in line]
    assert [line["event"] for line in ends] == ["stopped", "done"]
    assert ends[0]["is_estimate"] is True
    assert 0.0 <= ends[0]["seconds"] < sweeping.PATIENCE_SECONDS


def test_all_killed_at_once(folder: SweepDir) -> None:
    """As by a power failure: nobody can say or save anything."""
    sweep = sweep_of(num_steps=5, splits="[0]", settings="a = {hold = 0}")
    with process_of(folder, sweep, jobs=1) as process:
        sweeping.wait_for_hold(folder, "split0-a")
        pid = pid_of(folder, "split0-a")
        process.kill()
        os.killpg(os.getpgid(pid), signal.SIGKILL)
        process.wait()
    wait_for(lambda: not sweeping.is_running(pid))
    with open(folder.path / "history.jsonl", "a") as file:
        file.write('{"run": "split0-a", "ev')  # a line that was being written
    sweeping.release(folder)
    report, _ = swept(folder, sweep)
    assert list(report.done) == ["split0-a"]
    assert starts(folder, "split0-a") == [0, 3]
    assert [line["event"] for line in folder.history()] == ["started", "stopped", "started", "done"]


def test_a_job_that_is_killed_is_continued_by_the_next_start(folder: SweepDir) -> None:
    sweep = sweep_of(num_steps=5, splits="[0]", settings="a = {hold = 0}\nb = {offset = 2}")
    with process_of(folder, sweep, jobs=1) as process:
        sweeping.wait_for_hold(folder, "split0-a")
        sweeping.kill(pid_of(folder, "split0-a"))
        out, _ = process.communicate()
    report = json.loads(out.splitlines()[-1])
    assert report["stopped"] == {"split0-a": "by SIGKILL"}
    assert report["done"] == ["split0-b"]
    assert report["failed"] == {}
    sweeping.release(folder)
    again, _ = swept(folder, sweep)
    assert sorted(again.done) == ["split0-a", "split0-b"]
    assert starts(folder, "split0-a") == [0, 3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_passed_on_and_the_jobs_save(folder: SweepDir, number: signal.Signals) -> None:
    sweep = sweep_of(num_steps=5, settings=HELD % (0, 0))
    with process_of(folder, sweep, jobs=2) as process:
        sweeping.wait_for_hold(folder, "split0-a", "split0-b")
        process.send_signal(number)
        out, err = process.communicate(timeout=sweeping.PATIENCE_SECONDS)
    report = json.loads(out.splitlines()[-1])
    assert report["signal"] == number.name, err
    assert report["stopped"] == {"split0-a": "by SIGTERM", "split0-b": "by SIGTERM"}
    assert report["left"] == ["split1-a", "split1-b"]
    assert f"{number.name}: 2 running to be saved and stopped; once more kills them." in out
    for name in ("split0-a", "split0-b"):
        assert "stopped; continue it with --resume." in folder.log_file(name).read_text()


def test_a_second_signal_kills(folder: SweepDir) -> None:
    """A job that leaves SIGTERM alone ends all the same, and both processes of it."""
    sweep = sweep_of(num_steps=5, splits="[0]", settings="a = {stubborn = 1, hold = 0}")
    with process_of(folder, sweep, jobs=1) as process:
        sweeping.wait_for_hold(folder, "split0-a")
        pid = pid_of(folder, "split0-a")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines[1].startswith("SIGINT")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=sweeping.PATIENCE_SECONDS)
    assert json.loads(out.splitlines()[-1])["stopped"] == {"split0-a": "by SIGKILL"}
    wait_for(lambda: not sweeping.is_running(pid))


def test_what_failed_is_reported_and_started_again_only_on_request(folder: SweepDir) -> None:
    sweep = sweep_of(settings="good = {offset = 1}\nbad = {fail = 1}", splits="[0]")
    error = "FloatingPointError: the bound is nan after step 1."
    report, said = swept(folder, sweep)
    assert (list(report.done), report.failed) == (["split0-good"], {"split0-bad": error})
    assert f"failed: split0-bad, {error}" in said
    again, said = swept(folder, sweep)
    assert (again.failed, said) == ({"split0-bad": error}, [])
    assert starts(folder, "split0-bad") == [0]
    (folder.run_dir("split0-bad") / "mended").touch()
    mended, said = swept(folder, sweep, retry=True)
    assert sorted(mended.done) == ["split0-bad", "split0-good"]
    assert starts(folder, "split0-bad") == [0, 1]


def test_an_end_without_a_result_is_a_failure(folder: SweepDir) -> None:
    sweep = sweep_of(splits="[0]", settings="a = {offset = 1}")
    runs = expand(sweep)
    with folder.opened(sweep, runs, {}):
        silent = work(folder, runs, Program(["/bin/sh", "-c", "exit 0"]), say=lambda line: None)
    assert silent.failed == {"split0-a": "ended with status 0 and wrote nothing"}


def test_a_run_in_use_is_waited_for(folder: SweepDir) -> None:
    """Another process has the folder of a run, which the first sweep left behind: it is not a failure."""
    sweep = sweep_of(splits="[0]")
    folder.run_dir("split0-a").mkdir(parents=True)
    (folder.run_dir("split0-a") / ".lock").write_text("process 123 on elsewhere\n")
    descriptor = os.open(folder.run_dir("split0-a"), os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def free(status: Status) -> None:
        if "split0-b" in status.done:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    try:
        report, said = swept(folder, sweep, show=free)
    finally:
        os.close(descriptor)
    assert sorted(report.done) == ["split0-a", "split0-b"]
    assert said[0] == "waiting: split0-a is in use by process 123 on elsewhere"
    assert said.index("started: split0-b") < said.index("started: split0-a")


def test_an_error_within_the_sweep_leaves_no_job(folder: SweepDir) -> None:
    def broken(status: Status) -> None:
        if num_checkpoints(folder, "split0-a") == training.HELD_STEP:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        swept(folder, sweep_of(num_steps=5, settings="a = {hold = 0}"), show=broken)
    assert not sweeping.is_running(pid_of(folder, "split0-a"))
    assert folder.newest()["split0-a"]["event"] == "stopped"


def test_local_flags_and_environment_reach_the_job(folder: SweepDir) -> None:
    sweep = sweep_of(splits="[0]", settings="a = {offset = 1}")
    runs = expand(sweep)
    words = ["/bin/sh", "-c", 'echo "$GREETING $@" > "${1#--run_dir=}.txt"', "sh"]
    with folder.opened(sweep, runs, {}):
        program = Program(words, {"data_dir": "there", "offset": 7}, {"GREETING": "hello"})
        work(folder, runs, program, say=lambda line: None)
    path = folder.run_dir("split0-a")
    expected = f"hello --run_dir={path} --num_steps=3 --split=0 --offset=7 --data_dir=there\n"
    assert path.with_suffix(".txt").read_text() == expected


def test_jobs_must_be_at_least_one(folder: SweepDir) -> None:
    with pytest.raises(ValueError, match="--jobs must be at least 1, got 0"):
        work(folder, [], sweeping.PROGRAM, jobs=0)
