"""`scripts/train_dgp.py --stream`: runs, resumed runs, and what is left after kills, full disks and lost workers."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep import Predictor
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.streams.scan import StreamSpec
from gpflow_deep_runs.data.supply import Division, load
from gpflow_deep_runs.data.views import Source, TableSpec
from scripts import predict_dgp
from scripts.train_dgp import main
from tests.scripts.running import SCRIPTS, Finished, called, environment, workers

SMALL = [
    "--stream",
    "--target=y",
    "--data=data/*.parquet",
    "--num_inducing=5",
    "--num_predict_samples=4",
    "--batch_size=20",
    "--shuffle_rows=100",
    "--decay_share=0",  # else the rate would fall before the end of a run that goes on
    "--stream_sample=50",
    "--noprogress",
    "--log_every=1",
    "--num_layers=1",
]
STEPS = 8
SAMPLED = StreamSpec(stream=True, stream_sample=50, shuffle_rows=100)


def write_shards(folder: Path, rng: np.random.Generator) -> None:
    folder.mkdir()
    for number in range(3):
        x = rng.normal(size=(150, 2))
        table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(x[:, 0]) + 0.1 * rng.normal(size=150)})
        table.to_parquet(folder / f"part{number}.parquet", row_group_size=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shards, and with damaged ones."""
    folder = tmp_path_factory.mktemp("stream")
    write_shards(folder / "data", np.random.default_rng(0))
    good = pd.read_parquet(folder / "data" / "part0.parquet")
    for name, table in {
        "nan": good.assign(b=np.where(np.arange(150) == 40, np.nan, good["b"])),
        "infinite": good.assign(b=np.where(np.arange(150) == 40, np.inf, good["b"])),
        "changed": good.rename(columns={"b": "c"}),
        "text": good.assign(b="no number"),
    }.items():
        (folder / name).mkdir()
        good.to_parquet(folder / name / "part0.parquet", row_group_size=30)
        table.to_parquet(folder / name / "part1.parquet", row_group_size=30)
    (folder / "broken").mkdir()
    good.to_parquet(folder / "broken" / "part0.parquet")
    (folder / "broken" / "part1.parquet").write_bytes((folder / "broken" / "part0.parquet").read_bytes()[:500])
    return folder


ERRORS: list[tuple[list[str], str]] = [
    (["--data=nan"], r"the stream 'nan' has missing values in 'b' \(1\); give --missing=impute"),
    (["--data=infinite"], r"part1.parquet row 40 \(from 0\): 'b' must be a number, got inf .*--bad_rows=drop"),
    (["--data=changed"], "part1.parquet must have the columns of the stream .* lacks 'b'"),
    (
        ["--data=text"],
        r"'b' of text/part1.parquet must hold numbers, .* first 'no number' in row 0 .*first rows of a stream",
    ),
    (["--data=broken"], "part1.parquet cannot be read: .*get it again or leave it out"),
    (["--data=nowhere"], "'nowhere' must name .parquet files, but there are none"),
    (["--target=z"], "--target must name columns of data/part0.parquet to part2.parquet, got 'z'"),
    (["--max_rows=10"], "--max_rows is for data in memory"),
    (["--stream_preset=taxi"], "--target describes your own table; leave it out, or --stream_preset"),
    (["--batch_size=1000"], "a stream must have at least the 1000 training rows of a batch"),
    (["--strategy=multi_worker"], "needs the environment variable TF_CONFIG"),
]


def call(folder: Path, name: str, *arguments: str) -> Finished:
    """The script, called in this process and in `folder`, with --run_dir=`name`."""
    return called(main, "train_dgp.py", folder, [f"--run_dir={name}", *SMALL, *arguments])


@pytest.fixture(scope="module")
def once(folder: Path) -> Finished:
    return call(folder, "once", f"--num_steps={STEPS}")


def result(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "result.json").read_text()))


def elbos(path: Path) -> list[tuple[int, float]]:
    """Step and bound of each line of training scalars."""
    lines = [json.loads(line) for line in (path / "scalars.jsonl").read_text().splitlines()]
    return [(line["step"], line["train/elbo_nats"]) for line in lines if "train/elbo_nats" in line]


def assert_same_run(one: Path, two: Path) -> None:
    """The same parameters, scores and bounds in every bit, and no step twice or missing."""
    with np.load(one / "model.npz") as a, np.load(two / "model.npz") as b:
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    first, second = (result(path)["models"]["gp"] for path in (one, two))
    assert first["test"] == second["test"]
    assert elbos(one) == elbos(two)
    assert [step for step, _ in elbos(one)] == list(range(1, first["num_steps"] + 1))


def test_run(folder: Path, once: Finished) -> None:
    assert (once.code, once.err) == (0, "")
    assert "stream: 3 parquet files" in once.out
    found = result(folder / "once")
    counts = found["stream_rows"]
    assert sum(counts.values()) == 450
    assert found["rows"]["train"] == counts["train"]
    assert found["rows"]["test"] == min(50, counts["test"])
    assert all(np.isfinite(value) for value in found["models"]["gp"]["test"].values())
    lines = [json.loads(line) for line in (folder / "once" / "scalars.jsonl").read_text().splitlines()]
    assert 0 <= lines[0]["train/input_wait_seconds"] <= lines[-1]["train/input_wait_seconds"]


def test_scales_are_those_of_all_training_rows(folder: Path, once: Finished) -> None:
    """Not of the sample in memory; and scores are in the units of the target, whose deviation is about 0.7."""
    assert once.code == 0
    stored = json.loads((folder / "once" / "inputs.json").read_text())
    source, spec = Source(data=str(folder / "data" / "*.parquet")), StreamSpec(stream=True)
    stream = load(source, Division(), spec, table=TableSpec(target=("y",)), seed=0).stream
    assert stream is not None
    everything = stream.samples["train"]  # 100,000 rows would fit
    assert len(everything.X) == stream.counts["train"] > 50
    np.testing.assert_allclose(stored["x_scale"]["mean"], everything.X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(stored["y_scale"]["scale"], everything.Y.std(axis=0), rtol=1e-12)
    predictor = Predictor.load(folder / "once")
    test = load(source, Division(), SAMPLED, table=TableSpec(target=("y",)), seed=0).rows.test
    found, expected = result(folder / "once")["models"]["gp"]["test"], predictor.score(*test)
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def test_a_mixed_table_is_trained_resumed_and_predicted(folder: Path) -> None:
    """Semicolons, decimal commas, levels, missing values: read as in memory, and new rows alike."""
    rng = np.random.default_rng(1)
    (folder / "mixed").mkdir()
    for number in range(2):
        frame = pd.DataFrame({"a": rng.normal(size=150), "c": rng.choice(["red", "blue"], 150)})
        frame["y"] = frame["a"] + (frame["c"] == "red")
        frame.loc[::9, "a"] = np.nan
        frame.to_csv(folder / "mixed" / f"part{number}.csv", index=False, sep=";", decimal=",")
    convert(f"{folder}/mixed/*.csv", folder / "converted", rows_per_group=30)
    flags = ["--data=converted", "--missing=impute", "--compare="]
    first = call(folder, "mixed_once", *flags, f"--num_steps={STEPS}")
    assert first.code == 0, first.err
    assert re.search(r"a +number +34 missing; .* a, a=missing\n", first.out)
    assert re.search(r"c +category +2 levels: blue, red +c=blue, c=red\n", first.out)
    assert call(folder, "mixed_halves", *flags, "--num_steps=5").code == 0
    assert call(folder, "mixed_halves", *flags, f"--num_steps={STEPS}", "--resume").code == 0
    assert_same_run(folder / "mixed_once", folder / "mixed_halves")
    (folder / "new.csv").write_text("c;y;a\nred;1,5;0,5\nblue;0;\n")
    asked = [f"--run_dir={folder / 'mixed_once'}", f"--data={folder / 'new.csv'}", f"--output={folder / 'out.csv'}"]
    assert called(predict_dgp.main, "predict_dgp.py", folder, asked).code == 0
    assert np.isfinite(pd.read_csv(folder / "out.csv").to_numpy()).all()


def test_resumed_run_is_the_same_in_every_bit(folder: Path, once: Finished) -> None:
    assert call(folder, "halves", "--num_steps=5").code == 0
    assert call(folder, "halves", f"--num_steps={STEPS}", "--resume").code == 0
    assert_same_run(folder / "once", folder / "halves")


def test_damaged_rows_can_be_dropped(folder: Path) -> None:
    assert call(folder, "drop", "--data=nan", "--bad_rows=drop", "--num_steps=1").code == 0
    assert result(folder / "drop")["stream_rows"]["bad"] == 1


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[message for _, message in ERRORS])
def test_errors_are_one_line_before_anything_is_written(number: int, folder: Path) -> None:
    arguments, message = ERRORS[number]
    code, _, err = call(folder, "error", *arguments)
    assert code == 2
    assert re.fullmatch(rf"train_dgp\.py: error: .*{message}.*\n", err), err
    assert not (folder / "error").exists()


# What follows kills processes. Each is forked from one that has imported TensorFlow but not started it.

_FORKS = """
import json, os, resource, sys
from gpflow_deep_runs import cli
from gpflow_deep_runs.run import devices
from scripts import predict_dgp
from scripts.train_dgp import main
path = sys.argv[1]
print("READY", flush=True)
for line in sys.stdin:
    call = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.environ.update(call["environment"])
        file = os.open(call["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        if call["limit"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (call["limit"], call["limit"]))
        try:
            code = cli.call(main, [path, *call["arguments"]], explain=devices.explain)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Forks:
    """Calls of `train_dgp.py`, one after the other, each in a process of its own."""

    def __init__(self, server: "subprocess.Popen[str]", folder: Path) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._stdin: IO[str] = server.stdin
        self._stdout: IO[str] = server.stdout
        self.log = folder / "log.txt"

    def start(self, arguments: list[str], limit: int = 0, **variables: str) -> int:
        """The number of the new process."""
        call = {"arguments": arguments, "limit": limit, "environment": variables, "log": str(self.log)}
        self._stdin.write(json.dumps(call) + "\n")
        self._stdin.flush()
        return int(self._stdout.readline())

    def wait(self) -> int:
        """Its exit status, negative for a signal."""
        return int(self._stdout.readline())

    def run(self, arguments: list[str], limit: int = 0) -> tuple[int, str]:
        """Exit status and output."""
        self.start(arguments, limit)
        return self.wait(), self.log.read_text()


@contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    server = subprocess.Popen(
        [sys.executable, "-c", _FORKS, str(SCRIPTS / "train_dgp.py")],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == "READY\n"
        try:
            yield Forks(server, folder)
        finally:
            assert server.stdin is not None
            server.stdin.close()


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def assert_checkpoints_are_whole(path: Path) -> None:
    """All files that the manifest of each checkpoint lists are there, with their checksums."""
    for checkpoint in (path / "checkpoints").glob("step-*"):
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        assert manifest["files"]
        for name, sha256 in manifest["files"].items():
            assert hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() == sha256, checkpoint / name


@pytest.mark.slow
def test_killed_at_twenty_random_moments(folder: Path, rng: np.random.Generator) -> None:
    """Checkpoints at every step, so that many kills fall into writing one; in the end nothing is lost."""
    call = [*SMALL, "--num_steps=150", "--checkpoint_every=1"]
    scalars = folder / "killed" / "scalars.jsonl"
    kills = 0
    with forks(folder) as processes:
        assert processes.run(["--run_dir=whole", *call])[0] == 0
        while kills < 20:
            resume = ["--resume"] if (folder / "killed" / "flags.txt").exists() else []
            before = num_lines(scalars)
            pid = processes.start(["--run_dir=killed", *call, *resume])
            deadline = time.monotonic() + 1200
            while num_lines(scalars) < before + rng.integers(1, 4) and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.1))
            os.kill(pid, signal.SIGKILL)
            assert processes.wait() == -signal.SIGKILL, processes.log.read_text()
            kills += 1
            assert "damaged" not in processes.log.read_text()
            assert_checkpoints_are_whole(folder / "killed")
        code, log = processes.run(["--run_dir=killed", *call, "--resume"])
        assert code == 0, log
        assert "damaged" not in log
    assert_same_run(folder / "whole", folder / "killed")


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["disk", "limit"])
def test_full_disk_is_one_error_and_the_run_goes_on_later(kind: str, folder: Path, tmp_path: Path) -> None:
    """A file system of 4 MB that another file fills; or a limit to the size of a file, for those without root."""
    call = [*SMALL, "--checkpoint_every=2"]
    with small_disk(tmp_path / "disk") if kind == "disk" else _here(tmp_path) as disk, forks(folder) as processes:
        run, ballast = disk / "run", disk / "ballast"
        code, log = processes.run([f"--run_dir={run}", *call, "--num_steps=4"])
        assert code == 0, log
        if kind == "disk":
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            ballast.write_bytes(b"\0" * (free - 8192))
        code, log = processes.run(
            [f"--run_dir={run}", *call, f"--num_steps={STEPS}", "--resume"], 2000 * (kind != "disk")
        )
        assert code == 2, log
        assert len(re.findall(r"^train_dgp\.py: error: ", log, re.MULTILINE)) == 1, log
        assert "Traceback" not in log
        assert_checkpoints_are_whole(run)
        ballast.unlink(missing_ok=True)
        code, log = processes.run([f"--run_dir={run}", *call, f"--num_steps={STEPS}", "--resume"])
        assert code == 0, log
        code, log = processes.run([f"--run_dir={tmp_path}/straight", *call, f"--num_steps={STEPS}"])
        assert code == 0, log
        assert_same_run(tmp_path / "straight", run)


@contextmanager
def _here(path: Path) -> Iterator[Path]:
    yield path


@pytest.mark.ci
@pytest.mark.slow
def test_worker_that_is_killed_loses_nothing(folder: Path) -> None:
    """One of two is killed: the other says so and ends. Both again: the same run as one without a kill."""
    call = [*SMALL, "--strategy=multi_worker", "--checkpoint_every=10"]
    path = folder / "workers"
    with workers("train_dgp.py", folder, ["--run_dir=workers", *call, "--num_steps=1000000"]) as (chief, other):
        deadline = time.monotonic() + 1200
        while not (path / "checkpoints" / "step-0000000020").exists() and time.monotonic() < deadline:
            assert chief.poll() is None, chief.communicate()
            time.sleep(0.05)
        other.kill()
        out, _ = chief.communicate(timeout=1200)
        assert chief.returncode == 1, out
        assert re.search(r"^train_dgp\.py: error: another worker has stopped .*--resume\.$", out, re.MULTILINE), out
    assert_checkpoints_are_whole(path)
    num_steps = max(step for step, _ in elbos(path)) + 5
    for name, resume in (("workers", ["--resume"]), ("workers_straight", [])):
        with workers("train_dgp.py", folder, [f"--run_dir={name}", *call, f"--num_steps={num_steps}", *resume]) as both:
            for process in both:
                out, _ = process.communicate(timeout=2400)
                assert process.returncode == 0, out
    assert_same_run(folder / "workers_straight", path)
