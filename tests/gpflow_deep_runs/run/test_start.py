"""gpflow_deep_runs.run.start: a run from its folder to its result, continued, interrupted, failed; held by one
process."""

import itertools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gpflow_deep_base.page import Line, Panel, Panels, Part, Picture, Table, png
from gpflow_deep_base.storage.locks import LostFolder, lock
from gpflow_deep_runs.run import Best, Fitted, Interrupted, Run, Settings, Shown, checkpoints, folder, open_run
from gpflow_deep_runs.run.final import metrics_of
from tests.gpflow_deep_runs.run.events import hparams
from tests.gpflow_deep_runs.run.toy import FLAGS, Data, Toy, fit, settings, train, two_workers
from tests.processes import limited

ROOT = Path(__file__).resolve().parents[3]
PROVENANCE: dict[str, Any] = {}


class Whole(NamedTuple):
    """A run of 6 steps without a break."""

    path: Path
    toy: Toy
    fitted: Fitted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    path = tmp_path_factory.mktemp("start") / "whole"
    return Whole(path, *train(path))


def assert_same_files(run_dir: Path, other: Path, *names: str) -> None:
    for name in names or ("scalars.jsonl", "best.npz"):
        assert (run_dir / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of the working tree is not asked for anew in each run."""
    record = PROVENANCE or folder.provenance("")
    PROVENANCE.update(record)
    monkeypatch.setattr(folder, "provenance", lambda sha256, **extra: {**record, "data_sha256": sha256, **extra})


def steps(run_dir: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run_dir / "scalars.jsonl").read_text().splitlines()]


def tensors(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Tag -> (step, array) of what TensorBoard finds in a folder."""
    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    reader.Reload()
    return {
        tag: [(event.step, tf.make_ndarray(event.tensor_proto)) for event in reader.Tensors(tag)]
        for tag in reader.Tags()["tensors"]
        if reader.SummaryMetadata(tag).plugin_data.plugin_name != "hparams"
    }


# ---------------------------------------------------------------------------------------------- settings


def test_one_command_starts_and_continues(tmp_path: Path, whole: Whole) -> None:
    """As a batch system gives it again and again: killed before the first checkpoint, then after one, then done."""

    def killed(first: int, count: int) -> float:
        raise KeyboardInterrupt

    run_dir = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(run_dir, advance=killed, resume="auto")
    assert (run_dir / "flags.txt").exists()
    toy = Toy()

    def stopped(first: int, count: int) -> float:
        if first == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
        return toy.advance(first, count)

    with pytest.raises(Interrupted):
        train(run_dir, toy=toy, advance=stopped, resume="auto")
    assert steps(run_dir) == [1, 2, 3, 4]
    for _ in range(2):
        again, fitted = train(run_dir, resume="auto")
        assert fitted._replace(seconds=0.0) == whole.fitted._replace(seconds=0.0)
        np.testing.assert_array_equal(again.position, whole.toy.position)
    assert_same_files(run_dir, whole.path)
    assert len(json.loads((run_dir / "provenance.json").read_text())["resumed"]) == 2
    with pytest.raises(ValueError, match="--resume must be true, false or auto, got 'perhaps'"):
        settings(run_dir, resume="perhaps")


@pytest.mark.parametrize("name", ["num_steps", "batch_size", "log_every", "eval_every", "checkpoint_every"])
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_counts_out_of_range_name_the_flag(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"--{name} must be between 1 and 2\*\*31 - 1, got {value}\."):
        settings(Path("r"), **{name: value})


def test_seconds_are_not_negative_and_a_folder_has_a_name() -> None:
    for name, value in itertools.product(("checkpoint_seconds", "max_seconds"), (-1.0, float("nan"))):
        with pytest.raises(ValueError, match=f"--{name} must not be negative, got {value}"):
            settings(Path("r"), **{name: value})
    with pytest.raises(ValueError, match="--run_dir must name a folder"):
        Settings(run_dir="")


def test_the_folder_is_looked_at_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="it holds other files"):
        settings(tmp_path).check_folder()
    with pytest.raises(ValueError, match="holds no run to resume"):
        settings(tmp_path / "absent", resume=True).check_folder()
    settings(tmp_path / "new").check_folder()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    monkeypatch.setenv("TF_CONFIG", "{}")  # of several workers, one will have made the folder when another looks
    settings(tmp_path).check_folder()


# ---------------------------------------------------------------------------------------------- a whole run


def test_a_run_from_its_folder_to_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy, fitted = train(tmp_path / "run", finish=True)
    assert fitted.step == 6
    assert steps(tmp_path / "run") == [1, 2, 3, 4, 5, 6]

    again, noted = Toy(), {}
    for step in range(1, 7):
        loss = again.advance(step - 1, 1)
        noted[step] = {"step": step, "train/loss": loss}
        if step % 2 == 0:
            noted[step] |= again.evaluate(step)
    log = (tmp_path / "run" / "scalars.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in log] == list(noted.values())
    assert toy.bits() == again.bits()
    best = min((step for step in noted if step % 2 == 0), key=lambda step: noted[step]["valid/distance"])
    assert fitted.best == Best(best, noted[best]["valid/distance"], num_worse=(6 - best) // 2)

    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result.pop("wall_seconds") > 0
    assert result == {
        "dataset": "toy",
        "seed": 0,
        "rows": {"train": 5},
        "test": {"distance": noted[6]["valid/distance"]},
        "flags": FLAGS.splitlines(),
    }
    assert (tmp_path / "run" / "flags.txt").read_text() == FLAGS
    record = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert (record["data_sha256"], record["seed"], record["data_source"]) == ("abc", 0, "made up")
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-0000000004", "step-0000000006"]
    assert capsys.readouterr().out == (
        f"toy: made up\nrows: {{'train': 5}}\n\ndistance {fitted.best.value}\nwritten to {tmp_path / 'run'}\n"
    )


class Columns:
    """How the columns of a table were read."""

    def table(self) -> list[list[str]]:
        return [["column", "read as", "becomes"], ["a", "number", "a"], ["colour", "category", "2 columns"]]

    def to_json(self) -> dict[str, Any]:
        return {"columns": ["a", "colour"]}


def test_how_a_table_was_read_is_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_run(settings(tmp_path), FLAGS, Data(schema=Columns())):
        lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "",
        "column  read as   becomes",
        "a       number    a",
        "colour  category  2 columns",
        "",
        "To read columns otherwise: --ignore, --categorical, --numeric, --dates,",
        "    --na_values.",
        "",
    ]
    assert json.loads((tmp_path / "columns.json").read_text()) == {"columns": ["a", "colour"]}


def test_what_tensorboard_shows_of_a_run(tmp_path: Path) -> None:
    """Scalars with speed, flags and versions as text; what an evaluation shows at evaluations only; and the end."""
    shown: list[int] = []
    toy = Toy()

    def show() -> Shown:
        shown.append(len(toy.calls))
        return Shown({"filters": np.zeros([1, 2, 2])}, {"position": toy.position})

    train(tmp_path / "run", toy=toy, finish=True, options={"show": show})
    found = tensors(tmp_path / "run" / "tensorboard" / "run")
    assert shown == [2, 4, 6]
    assert [step for step, _ in found["~filters"]] == [step for step, _ in found["~position"]] == [2, 4, 6]
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in found["~speed/steps_per_second"]] == [1, 2, 3, 4, 5, 6]
    assert all(value > 0 for _, value in found["~speed/steps_per_second"])
    assert found["flags"][0][1].item().decode() == "    --batch_size=5\n    --nofloat32\n    --seed=0"
    versions = found["versions"][0][1].item().decode()
    assert f"    tensorflow {tf.__version__}\n" in versions
    assert versions.startswith(f"    python {platform.python_version()}\n")
    assert {tag for tag in found if not tag.startswith("~")} == {
        "flags",
        "versions",
        "headline/train/loss",
        "headline/valid/distance",
        "train/loss",
        "valid/distance",
    }
    final = tensors(tmp_path / "run" / "tensorboard" / "run" / "final")
    assert set(final) == {"~final/2_rmse", "report"}


def test_flags_are_hparams_and_scores_of_one_name_for_all_models_their_metrics(tmp_path: Path) -> None:
    flags = "--hidden=5,4\n--jit\n--learning_rate=0.01\n--noskip\n--prior=\n--seed=3\n"
    metrics: dict[str, float | None] = {"rmse": float(np.float32(2.0)), "log_density_nats": -1.0, "crps": None}
    with open_run(settings(tmp_path / "run"), flags, Data(), changed="--hidden=5,4\n--noskip\n--eval_every=7\n") as run:
        fit(run, Toy())
        run.finish({"test": {"rmse": 2.0}}, text="table", metrics=metrics, chosen={"num_layers": 2})
    final = tmp_path / "run" / "tensorboard" / "run" / "final"
    assert hparams(final) == {"hidden": "5,4", "num_layers": 2, "skip": False}
    numbers = {tag: values for tag, values in tensors(final).items() if tag != "report"}
    assert {tag: (step, float(value)) for tag, ((step, value),) in numbers.items()} == {
        "~final/1_log_density_nats": (6, -1.0),
        "~final/2_rmse": (6, 2.0),
    }
    with pytest.raises(ValueError, match=r"metrics may be log_density_nats, rmse, .*, got accuracy"):
        metrics_of({"accuracy": 1.0})


def test_a_page_says_what_was_found_and_what_made_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [Table("Layers", [["layer", "<b>"], ["1", "&"]])]
    with open_run(settings(tmp_path / "run"), FLAGS, Data(), changed="--hidden=5\n") as run:
        fit(run, Toy())
        run.finish({}, text="the <table>", verdict="a < b", parts=parts)
    assert capsys.readouterr().out.endswith(f"\nthe <table>\na < b\nwritten to {tmp_path / 'run'}\n")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for text in ("a &lt; b", "the &lt;table&gt;", "<th>&lt;b&gt;</th>", "<td>&amp;</td>", "--hidden=5\n", "tensorflow"):
        assert text in page
    assert "http" not in re.sub(r"Data</h2>.*?</pre>", "", page, flags=re.DOTALL)


def test_plots_and_pictures_are_files_and_pictures_are_shown(tmp_path: Path) -> None:
    parts: list[Part] = [
        Picture("Some samples", png(np.full([2, 3], 7, np.uint8))),
        Panels("Log-likelihood", [Panel("p", [Line([0], [1])])]),
    ]
    with open_run(settings(tmp_path / "run"), FLAGS, Data()) as run:
        fit(run, Toy())
        run.finish({}, text="table", parts=parts)
    assert {path.name for path in (tmp_path / "run" / "plots").iterdir()} == {"some_samples.png", "log_likelihood.svg"}
    assert "~plots/some_samples" in tensors(tmp_path / "run" / "tensorboard" / "run" / "final")


def test_the_result_can_be_written_again(tmp_path: Path) -> None:
    """As --resume of a finished run does: the second result is the one that is there."""
    train(tmp_path, finish=True)
    first = json.loads((tmp_path / "result.json").read_text())
    toy, fitted = train(tmp_path, finish=True, resume=True)
    assert toy.calls == []
    assert fitted.step == 6
    second = json.loads((tmp_path / "result.json").read_text())
    assert {**second, "wall_seconds": 0} == {**first, "wall_seconds": 0}
    final = tensors(tmp_path / "tensorboard" / "run" / "final")
    assert {tag: len(values) for tag, values in final.items()} == {"~final/2_rmse": 1, "report": 1}


def test_best_file_is_that_of_the_best_evaluation(tmp_path: Path) -> None:
    """Kept before the checkpoint that names its step."""
    toy = Toy()
    kept: list[int] = []

    def keep(path: Path) -> None:
        kept.append(len(toy.calls))
        np.savez(path, position=toy.position.numpy())

    with open_run(settings(tmp_path, num_steps=40), FLAGS, Data()) as run:
        fitted = fit(run, toy, keep=keep)
        assert run.best_file == tmp_path / "best.npz"
        assert run.records()[0]["step"] == 1
    assert kept[-1] == fitted.best.step < 40
    with np.load(tmp_path / "best.npz") as stored:
        distance = float(tf.norm(stored["position"] - 3.0))
    assert distance == fitted.best.value


# ---------------------------------------------------------------------------------------------- continued


@pytest.mark.parametrize(
    ("how", "stop_at", "saved"),
    [("seconds", 0, 1), *(("signal", n, n) for n in range(1, 6)), ("error", 2, 2), ("error", 3, 2), ("error", 5, 4)],
)
def test_a_resumed_run_equals_one_without_a_break(
    tmp_path: Path, whole: Whole, how: str, stop_at: int, saved: int
) -> None:
    """Same log, same parameters, same choice of the best, same best model; whether the break was foreseen or not."""
    toy = Toy()

    def advance(first: int, count: int) -> float:
        if how == "signal" and first + count == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        if how == "error" and first == stop_at:
            raise RuntimeError("a bug")
        return toy.advance(first, count)

    with pytest.raises(RuntimeError if how == "error" else Interrupted):
        train(tmp_path, toy=toy, advance=advance, max_seconds=0.0 if how == "seconds" else None)
    second, found = train(tmp_path, resume=True)
    assert second.calls[0][0] == saved
    assert found[:3] == whole.fitted[:3]
    assert second.bits() == whole.toy.bits()
    assert_same_files(tmp_path, whole.path)


def test_early_stopping_survives_a_break(tmp_path: Path) -> None:
    options = {"patience": 2}
    whole, expected = train(tmp_path / "whole", num_steps=60, options=options)
    assert expected.is_stopped
    assert expected.step < 60
    with pytest.raises(Interrupted):
        train(tmp_path / "run", num_steps=60, options={**options, "max_seconds": 0.0})
    second, found = train(tmp_path / "run", num_steps=60, resume=True, options=options)
    assert found[:3] == expected[:3]
    assert second.bits() == whole.bits()
    assert_same_files(tmp_path / "run", tmp_path / "whole")
    third, again = train(tmp_path / "run", num_steps=60, resume=True, options=options)
    assert again[:3] == expected[:3]
    assert third.calls == []


def test_more_steps_than_before(tmp_path: Path, whole: Whole) -> None:
    """A run of 4 steps that is given 6 logs what one of 6 does, with the evaluation at 4 that is due in both; also in
    TensorBoard, each event once."""
    train(tmp_path, num_steps=4)
    second, _ = train(tmp_path, resume=True)
    assert second.bits() == whole.toy.bits()
    assert_same_files(tmp_path, whole.path)
    found = tensors(tmp_path / "tensorboard" / "run")
    assert [step for step, _ in found["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert len(found["flags"]) == len(found["versions"]) == 1


def test_objects_whose_shapes_change_are_restored_by_the_paper(tmp_path: Path, whole: Whole) -> None:
    """`restore` gets the folder and the loop's own objects, and says which step it found."""
    train(tmp_path, num_steps=4)
    toy = Toy()
    asked: list[Path] = []

    def restore(path: Path, own: Mapping[str, Any]) -> int | None:
        asked.append(path)
        return checkpoints.restore(path, **toy.objects, **own)

    train(tmp_path, toy=toy, resume=True, options={"restore": restore})
    assert asked == [tmp_path / "checkpoints"]
    assert toy.calls[0] == (4, 1)
    assert toy.bits() == whole.toy.bits()


def test_a_hook_after_each_checkpoint_and_more_scalars(tmp_path: Path) -> None:
    saved: list[list[str]] = []

    def after() -> None:
        saved.append(sorted(path.name[-1] for path in (tmp_path / "checkpoints").glob("step-*")))

    train(tmp_path, options={"saved": after, "also": [(3, lambda step: {"more": float(step)})]})
    assert saved == [["2"], ["2", "4"], ["4", "6"]]
    lines = [json.loads(line) for line in (tmp_path / "scalars.jsonl").read_text().splitlines()]
    assert {line["step"]: line["more"] for line in lines if "more" in line} == {3: 3.0, 6: 6.0}


def test_a_line_after_the_end_of_a_fit(tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as info, open_run(settings(tmp_path), FLAGS, Data()) as run:
        fit(run, Toy(), max_seconds=0.0)
    with open_run(settings(tmp_path, resume=True), FLAGS, Data()) as run:
        run.log(info.value.step, {"test/distance": 2.0})
    assert steps(tmp_path) == [1, 1]
    assert (1, 2.0) in [(step, float(value)) for step, value in tensors(tmp_path / "tensorboard/run")["test/distance"]]


# ---------------------------------------------------------------------------------------------- runs within the run


def test_a_run_within_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder of its own, beside the other in TensorBoard, each with its own checkpoints, flags and result."""
    toys = {"gp": Toy(), "": Toy()}
    with open_run(settings(tmp_path / "run", num_steps=4), FLAGS, Data(), name="dgp") as run:
        capsys.readouterr()
        child = run.child("gp", "--seed=0\n--kernel=linear\n")
        assert (child.path, child.settings, child.is_chief) == (tmp_path / "run" / "gp", run.settings, True)
        fit(child, toys["gp"])
        child.finish({"test": {"rmse": 1.0}})
        assert capsys.readouterr().out == ""  # without a text it prints nothing
        fit(run, toys[""])
        run.finish({"test": {"rmse": 2.0}}, text="table")
    assert toys["gp"].bits() == toys[""].bits()
    for path in (tmp_path / "run", tmp_path / "run" / "gp"):
        assert steps(path) == [1, 2, 3, 4]
        assert len(list((path / "checkpoints").iterdir())) == 2
    shown = tmp_path / "run" / "tensorboard"
    assert sorted(path.relative_to(shown).as_posix() for path in shown.rglob("*") if path.is_dir()) == [
        "dgp",
        "dgp/final",
        "gp",
        "gp/final",
    ]
    assert hparams(shown / "gp" / "final") == {"seed": 0.0, "kernel": "linear"}
    assert hparams(shown / "dgp" / "final") == {"batch_size": 5.0, "float32": False, "seed": 0.0}
    results = [json.loads((tmp_path / "run" / name).read_text()) for name in ("gp/result.json", "result.json")]
    assert [result["test"]["rmse"] for result in results] == [1.0, 2.0]
    assert not (tmp_path / "run" / "gp" / "flags.txt").exists()  # it is no run that could be resumed on its own


def test_a_deadline_is_shared_among_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("gpflow_deep_runs.run.start.time.monotonic", lambda: now[0])
    with open_run(settings(tmp_path, max_seconds=90.0), FLAGS, Data()) as run:
        now[0] += 30.0
        assert run.share_of_seconds(3) == 20.0
        now[0] += 100.0
        assert run.share_of_seconds(2) == 0.0
        assert Run(settings(tmp_path), FLAGS, Data(), run.folder).share_of_seconds(2) is None


# ---------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("stop_at", [0, 1])
def test_a_run_that_failed_before_its_first_checkpoint_can_be_started_again(
    tmp_path: Path, whole: Whole, stop_at: int
) -> None:
    """With other flags, too; what it left is kept in failed-1."""
    toy = Toy()

    def advance(first: int, count: int) -> float:
        if first == stop_at:
            raise FloatingPointError("diverged")
        return toy.advance(first, count)

    with pytest.raises(FloatingPointError):
        train(tmp_path / "run", advance=advance)
    assert steps(tmp_path / "run") == list(range(1, stop_at + 1))
    settings(tmp_path / "run").check_folder()
    again, _ = train(tmp_path / "run", flags=FLAGS.replace("seed=0", "seed=1"))
    assert again.bits() == whole.toy.bits()
    assert_same_files(tmp_path / "run", whole.path)
    assert (tmp_path / "run" / "failed-1" / "flags.txt").read_text() == FLAGS
    assert steps(tmp_path / "run" / "failed-1") == list(range(1, stop_at + 1))


# ---------------------------------------------------------------------------------------------- several workers


def test_only_the_chief_makes_and_holds_the_folder(tmp_path: Path) -> None:
    with open_run(settings(tmp_path / "run"), FLAGS, Data(), two_workers(1, 2, {"worker": 2})) as run:
        assert not run.is_chief
        run.child("gp")
        assert not (tmp_path / "run").exists()
    with open_run(settings(tmp_path / "run"), FLAGS, Data(), two_workers(0, 2, {"worker": 2})) as run:
        assert run.is_chief
        assert (tmp_path / "run" / "flags.txt").exists()
        with open_run(settings(tmp_path / "run"), FLAGS, Data(), two_workers(1, 2, {"worker": 2})):
            pass


def test_clocks_of_workers_differ(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="--max_seconds could stop several workers at different steps"),
        open_run(settings(tmp_path / "run", max_seconds=5.0), FLAGS, Data(), two_workers(0, 2, {"worker": 2})),
    ):
        pass
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------- one process

_OWNER = """
import sys, time
from pathlib import Path
from gpflow_deep_runs.run import open_run
from tests.gpflow_deep_runs.run.toy import FLAGS, Data, Toy, fit, settings, train
saved, unsaved = Path(sys.argv[1]), Path(sys.argv[2])
outer, inner = Toy(), Toy()

def slow(first, count):
    print("step", first, flush=True)
    time.sleep(0.05)
    return inner.advance(first, count)

def long(first, count):
    if first == 1:  # one step is logged, and no checkpoint written
        train(saved, toy=inner, advance=slow, num_steps=100_000)
    return outer.advance(first, count)

with open_run(settings(unsaved, checkpoint_every=1000, eval_every=1000), FLAGS, Data()) as run:
    fit(run, outer, advance=long)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that trains in the folder `saved`, and holds `unsaved`, where it has made a step but no checkpoint."""
    command = [sys.executable, "-c", _OWNER, str(tmp_path / "saved"), str(tmp_path / "unsaved")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with limited(process):
                for line in process.stdout:
                    if line == "step 5\n":  # there is a checkpoint of step 4
                        break
            yield process
        finally:
            process.kill()


def test_a_folder_belongs_to_one_process_until_it_ends(
    tmp_path: Path, whole: Whole, owner: "subprocess.Popen[str]"
) -> None:
    """A second process is told who has it, in one line, and changes nothing; after SIGKILL, --resume continues the run,
    and a run without a checkpoint can be started again."""
    assert owner.poll() is None
    words = f"is in use by process {owner.pid} on {platform.node()}; wait for its end, or give another --run_dir."
    for name in ("saved", "unsaved"):
        for resume in (False, True):
            given = settings(tmp_path / name, resume=resume)
            with pytest.raises(ValueError, match="is in use") as info:
                given.check_folder()
            assert str(info.value) == f"--run_dir={tmp_path / name} {words}"
            toy = Toy()
            with pytest.raises(ValueError, match="is in use") as info:
                train(tmp_path / name, toy=toy, resume=resume)
            assert str(info.value) == f"--run_dir={tmp_path / name} {words}"
            assert toy.calls == []
    assert owner.poll() is None  # it goes on
    owner.send_signal(signal.SIGKILL)
    assert owner.wait(timeout=60) == -signal.SIGKILL

    last = max(int(path.name.removeprefix("step-")) for path in (tmp_path / "saved/checkpoints").glob("step-*"))
    assert last >= 4
    second, _ = train(tmp_path / "saved", num_steps=last + 3, resume=True)
    other, _ = train(tmp_path / "whole", num_steps=last + 3)
    assert second.calls[0] == (last, 1)
    assert second.bits() == other.bits()
    assert_same_files(tmp_path / "saved", tmp_path / "whole")

    again, _ = train(tmp_path / "unsaved")
    assert again.bits() == whole.toy.bits()
    assert steps(tmp_path / "unsaved" / "failed-1") == [1]
    assert_same_files(tmp_path / "unsaved", whole.path)


@pytest.mark.parametrize("child", [None, "gp"])
@pytest.mark.parametrize("change", ["renamed", "removed", "replaced"])
def test_a_folder_that_is_lost_ends_the_run_at_once(tmp_path: Path, change: str, child: str | None) -> None:
    """Nothing is made anew, and what was renamed can be continued under its new name."""
    run_dir, moved, toy = tmp_path / "run", tmp_path / "moved", Toy()

    def advance(first: int, count: int) -> float:
        if first == 3:
            run_dir.rename(moved)
            if change == "removed":
                shutil.rmtree(moved)
            elif change == "replaced":
                run_dir.mkdir()
        return toy.advance(first, count)

    with pytest.raises(LostFolder, match=r"--run_dir=.*run was renamed, removed or replaced by others"):
        train(run_dir, toy=toy, advance=advance, child=child, log_every=100)
    assert toy.calls[-1] == (3, 1)
    if change == "replaced":
        assert list(run_dir.iterdir()) == []
    else:
        assert not run_dir.exists()
    if change != "removed":
        whole, _ = train(tmp_path / "whole", child=child, log_every=100)
        again, _ = train(moved, child=child, resume=True, log_every=100)
        assert again.calls[0] == (2, 1)
        assert again.bits() == whole.bits()


def test_a_folder_in_use_is_refused_before_tensorflow_starts(tmp_path: Path) -> None:
    """By a script whose TensorFlow cannot be imported: the line comes first. Once the folder is free, it is that."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('TensorFlow was imported')")
    script, path = Path(__file__).resolve().parents[3] / "scripts" / "train_darn.py", tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{script.parents[1]}"}

    def start(*flags: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(script), f"--run_dir={path}", *flags]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    with lock(path):
        done = start("--resume")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"train_darn.py: error: --run_dir={path} is in use by process {os.getpid()} on {platform.node()}; wait for "
        "its end, or give another --run_dir."
    ]
    assert "holds no run to resume" in start("--resume").stderr
    assert "TensorFlow was imported" in start("--dataset=digits").stderr
