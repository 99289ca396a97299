import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_deep_base.storage.locks import lock
from gpflow_deep_runs.sweeps import SweepDir, expand, parse
from tests.gpflow_deep_runs.sweeps.sweeping import scores, starts, sweep_of, swept


@pytest.fixture
def folder(tmp_path: Path) -> SweepDir:
    return SweepDir(tmp_path / "sweep")


def test_the_folder_holds_the_file_and_what_it_was_made_with(folder: SweepDir) -> None:
    sweep = sweep_of(splits="[0]")
    with folder.opened(sweep, expand(sweep), {"git_commit": "abc"}):
        pass
    with folder.opened(sweep, expand(sweep), {"git_commit": "def"}):
        pass
    assert (folder.path / "sweep.toml").read_text() == sweep.text
    record = json.loads((folder.path / "sweep.json").read_text())
    assert record["script"] == "training.py"
    assert record["runs"]["split0-b"] == ["--num_steps=3", "--split=0", "--offset=2"]
    assert [start["git_commit"] for start in record["starts"]] == ["abc", "def"]
    more = sweep_of(splits="[0, 1]")
    with folder.opened(more, expand(more), {}):
        pass
    assert (folder.path / "sweep.toml").read_text() == more.text
    assert (folder.path / "sweep-1.toml").read_text() == sweep.text


def test_a_second_sweep_is_refused(folder: SweepDir) -> None:
    sweep = sweep_of()
    program = f"""
from gpflow_deep_runs.sweeps import SweepDir, expand, parse
sweep = parse({sweep.text!r})
with SweepDir({str(folder.path)!r}).opened(sweep, expand(sweep), {{}}):
    print("second")
"""
    with folder.opened(sweep, expand(sweep), {}):
        before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.name != ".lock"}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        after = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.name != ".lock"}
    assert "second" not in done.stdout
    assert f"--sweep_dir={folder.path} is in use by process" in done.stderr
    assert before == after


def test_what_was_added_to_the_file_is_run_and_nothing_else(folder: SweepDir) -> None:
    swept(folder, sweep_of(splits="[0]", settings="a = {offset = 1}"))
    more = sweep_of(splits="[1, 0]", settings="b = {offset = 2}\na = {offset = 1}")
    _, said = swept(folder, more)
    assert [line for line in said if line.startswith("started")] == [
        "started: split1-b",
        "started: split1-a",
        "started: split0-b",
    ]
    assert scores(folder, more) == {"split1-b": 12.0, "split1-a": 11.0, "split0-b": 2.0, "split0-a": 1.0}


def test_what_was_taken_out_of_the_file_is_left_alone(folder: SweepDir) -> None:
    swept(folder, sweep_of(splits="[0, 1]"))
    less = sweep_of(splits="[1]")
    swept(folder, less)
    assert folder.strangers(expand(less)) == ["split0-a", "split0-b"]
    assert folder.result("split0-a") is not None
    _, said = swept(folder, sweep_of(splits="[0, 1]"))
    assert said == []


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (sweep_of(num_steps=4), "has the run split0-a --num_steps=3, the file has it --num_steps=4; give a new"),
        (sweep_of(settings="a = {offset = 3}"), "--offset=1, the file has it --offset=3"),
        (sweep_of(settings="a = {}"), "--offset=1, the file has it without --offset"),
        (sweep_of(settings="a = {offset = 1, fast = true}"), "without --fast, the file has it --fast"),
    ],
)
def test_other_flags_for_a_finished_run_are_refused(folder: SweepDir, sweep: object, message: str) -> None:
    swept(folder, sweep_of(splits="[0]", settings="a = {offset = 1}"))
    kept = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(ValueError, match=message) as caught:
        swept(folder, sweep)  # type: ignore[arg-type]
    assert f"or remove {folder.run_dir('split0-a')} to run it again" in str(caught.value)
    assert kept == {path: path.read_bytes() for path in kept}


def test_flags_that_change_no_result_may_change(folder: SweepDir) -> None:
    sweep = sweep_of(splits="[0]", settings="a = {offset = 1, data_dir = 'there', threads = 1, progress = true}")
    swept(folder, sweep)
    moved = sweep_of(splits="[0]", settings="a = {offset = 1, data_dir = 'here', progress = false}")
    assert swept(folder, moved)[1] == []


def test_a_run_that_failed_before_its_first_checkpoint_may_have_its_flags_corrected(folder: SweepDir) -> None:
    wrong = sweep_of(splits="['x']", settings="a = {offset = 1}", num_steps=0)
    report, _ = swept(folder, wrong)
    assert list(report.failed) == ["x-a"]
    corrected = parse(wrong.text.replace("num_steps = 0", "num_steps = 2"))
    report, said = swept(folder, corrected)
    assert said[0] == "started: x-a"  # it fails again, as 'x' is no number, but it was started
    assert starts(folder, "x-a") == [0, 0]


def test_runs_are_found_again_when_the_file_gets_an_axis(folder: SweepDir) -> None:
    """Seed 0 is the default, so the runs with --seed=0 are those that were made without it."""
    former = sweep_of(splits="[0, 1]", settings="a = {offset = 1}")
    swept(folder, former)
    for split in (0, 1):
        flags = ["--num_steps=3", f"--split={split}", "--offset=1", "--seed=0", "--data_dir=there"]
        (folder.run_dir(f"split{split}-a") / "flags.txt").write_text("\n".join(flags) + "\n")
    now = parse(former.text.replace("[axes]", "[axes]\nseed = [1, 0]"))
    runs = expand(now)
    full = {run.name: ["--num_steps=3", *(f"--{n}={v}" for n, v in run.point.items()), "--offset=1"] for run in runs}
    with folder.opened(now, runs, {}, full):
        done = [run.name for run in runs if folder.result(run.name) is not None]
    assert done == ["seed0-split0-a", "seed0-split1-a"]
    assert not folder.run_dir("split0-a").exists()
    assert folder.log_file("seed0-split0-a").exists()
    assert folder.newest()["seed0-split1-a"]["event"] == "done"
    assert folder.strangers(runs) == []
    _, said = swept(folder, now)
    assert [line for line in said if line.startswith("started")] == [
        "started: seed1-split0-a",
        "started: seed1-split1-a",
    ]


def test_a_folder_of_something_else_is_refused(folder: SweepDir) -> None:
    sweep = sweep_of()
    folder.path.mkdir()
    (folder.path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="must be a new or empty folder or that of a sweep, it holds other files"):
        folder.opened(sweep, expand(sweep), {}).__enter__()
    assert [path.name for path in folder.path.iterdir()] == ["thesis.tex"]
    file = SweepDir(folder.path / "thesis.tex")
    with pytest.raises(ValueError, match="must be a folder, got the file"):
        file.opened(sweep, expand(sweep), {}).__enter__()


def test_a_start_that_was_killed_before_it_had_written_leaves_a_folder_that_can_be_used(folder: SweepDir) -> None:
    with lock(folder.path):
        (folder.path / "runs").mkdir()
        (folder.path / "sweep.toml").touch()
        (folder.path / ".tmp-0123-sweep.json").touch()
    report, _ = swept(folder, sweep_of(splits="[0]", settings="a = {}"))
    assert list(report.done) == ["split0-a"]


def test_the_runs_of_another_script_are_refused(folder: SweepDir) -> None:
    swept(folder, sweep_of(splits="[0]", settings="a = {}"))
    other = parse(sweep_of().text.replace("training.py", "other.py"))
    with pytest.raises(ValueError, match=r"holds runs of training\.py, the file is for other\.py"):
        swept(folder, other)


def test_a_result_that_is_not_whole_is_none(folder: SweepDir) -> None:
    folder.run_dir("a").mkdir(parents=True)
    assert folder.result("a") is None
    for text in ('{"x": ', "", "[]", "\x00\x00", "[" * 10**5):
        (folder.run_dir("a") / "result.json").write_text(text)
        assert folder.result("a") is None
    (folder.run_dir("a") / "result.json").write_text('{"x": 1}')
    assert folder.result("a") == {"x": 1}


def test_damaged_records_are_named(folder: SweepDir) -> None:
    swept(folder, sweep_of(splits="[0]", settings="a = {}"))
    text = (folder.path / "history.jsonl").read_text()
    for line in ("???", "[]", '{"run": ["a"], "event": "done", "time": "2026-01-01T00:00:00"}'):
        (folder.path / "history.jsonl").write_text(f"{line}\n{text}")
        with pytest.raises(ValueError, match=r"history\.jsonl line 1 is not a line of a sweep .*; remove it"):
            folder.history()
    for content in ("{", "[]"):
        (folder.path / "sweep.json").write_text(content)
        with pytest.raises(ValueError, match=r"sweep\.json cannot be read"):
            folder.record()
