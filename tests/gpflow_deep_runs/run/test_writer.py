"""gpflow_deep_runs.run.writer: one JSON object a line, the same in TensorBoard, every step once."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

from gpflow_deep_runs.run.final import write_final
from gpflow_deep_runs.run.writer import Shown, Writer, description_of
from gpflow_deep_runs.run_dir import RunDir


def lines(run: RunDir) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in run.scalars_file.read_text("utf-8").splitlines()]


def events(run: RunDir) -> list[tuple[int, str, Any]]:
    """(step, tag, array) in the event files, oldest file first; what is shown once more as a headline is left out."""
    found = []
    for path in sorted(run.tensorboard_dir.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            found += [(event.step, value.tag, tf.make_ndarray(value.tensor)) for value in event.summary.value]
    return [each for each in found if not each[1].startswith("headline/")]


def scalars(run: RunDir) -> dict[tuple[int, str], float]:
    found = [((step, tag), float(array)) for step, tag, array in events(run)]
    assert len(dict(found)) == len(found), "a step appears twice"
    return dict(found)


def test_line_and_event_of_each_call(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "new")
    with Writer(run, resume_step=None) as writer:
        writer.scalars(100, {"train/elbo_nats": -1.5, "valid/nll_nats": np.float32(0.5)})
        writer.scalars(200, {"valid/nll_nats": tf.constant(2.0), "count": 3, "shape_1": np.array([4.0])})
        # each call is on disk when it returns, not when the writer is closed
        assert [line["step"] for line in lines(run)] == [100, 200]
        assert len(events(run)) == 5
    assert lines(run) == [
        {"step": 100, "train/elbo_nats": -1.5, "valid/nll_nats": 0.5},
        {"step": 200, "valid/nll_nats": 2.0, "count": 3.0, "shape_1": 4.0},
    ]
    assert scalars(run) == {
        (100, "train/elbo_nats"): -1.5,
        (100, "valid/nll_nats"): 0.5,
        (200, "valid/nll_nats"): 2.0,
        (200, "~count"): 3.0,
        (200, "~shape_1"): 4.0,
    }


def test_not_a_number_is_null_in_the_file_and_itself_in_tensorboard(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with Writer(run, resume_step=None) as writer:
        writer.scalars(1, {"valid/a": np.nan, "b": np.inf, "c": tf.constant(-np.inf), "d": 1.0})
    assert lines(run) == [{"step": 1, "valid/a": None, "b": None, "c": None, "d": 1.0}]
    shown = scalars(run)
    assert np.isnan(shown[1, "valid/a"])
    assert (shown[1, "~b"], shown[1, "~c"], shown[1, "~d"]) == (np.inf, -np.inf, 1.0)


def write_steps(run: RunDir, steps: range, *, resume_step: int | None, value: float) -> None:
    with Writer(run, resume_step=resume_step) as writer:
        for step in steps:
            writer.scalars(step, {"valid/a": value})


@pytest.mark.parametrize(("resume_step", "first"), [(4, 5), (0, 1), (None, 0), (6, 7), (100, 101)])
def test_a_resumed_run_has_each_step_once(tmp_path: Path, resume_step: int | None, first: int) -> None:
    """Steps up to the checkpoint are from the first part, later ones from the second."""
    run = RunDir(tmp_path)
    write_steps(run, range(7), resume_step=None, value=1.0)
    write_steps(run, range(first, first + 3), resume_step=resume_step, value=2.0)
    expected = {step: 1.0 for step in range(7) if step < first} | dict.fromkeys(range(first, first + 3), 2.0)
    assert {line["step"]: line["valid/a"] for line in lines(run)} == expected
    assert len(lines(run)) == len(expected)
    assert scalars(run) == {(step, "valid/a"): value for step, value in expected.items()}


@pytest.mark.parametrize("tail", ['{"step": 3, "a"', "{", "\x00\x00", '{"step": 3, "a": 1.0}', "µ".encode()[:1]])
def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path: Path, tail: str | bytes) -> None:
    run = RunDir(tmp_path)
    write_steps(run, range(1, 3), resume_step=None, value=1.0)
    with open(run.scalars_file, "ab") as file:
        file.write(tail if isinstance(tail, bytes) else tail.encode())
    write_steps(run, range(3, 4), resume_step=3, value=2.0)
    assert lines(run) == [{"step": 1, "valid/a": 1.0}, {"step": 2, "valid/a": 1.0}, {"step": 3, "valid/a": 2.0}]


def test_events_cut_short_by_a_crash_are_dropped(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_steps(run, range(1, 4), resume_step=None, value=1.0)
    (path,) = run.tensorboard_dir.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    write_steps(run, range(3, 4), resume_step=2, value=2.0)
    assert scalars(run) == {(1, "valid/a"): 1.0, (2, "valid/a"): 1.0, (3, "valid/a"): 2.0}


@pytest.mark.parametrize("damaged", ["not json", "[1]", '{"a": 1}', '{"step": "x"}', "3", ""])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damaged: str) -> None:
    run = RunDir(tmp_path)
    content = f'{{"step": 1}}\n{damaged}\n{{"step": 2}}\n'
    run.scalars_file.write_text(content)
    with pytest.raises(ValueError, match=r"scalars\.jsonl line 2 is not a JSON object with a step .*remove that line"):
        Writer(run, resume_step=1)
    assert run.scalars_file.read_text() == content


@pytest.mark.parametrize("value", [[1.0, 2.0], np.zeros(0), "1", None, 1j, np.array([["a"]])])
def test_values_that_are_not_one_number(tmp_path: Path, value: Any) -> None:
    run = RunDir(tmp_path)
    with Writer(run, resume_step=None) as writer:
        with pytest.raises(ValueError, match=r"valid/nll must be one number, got shape \["):
            writer.scalars(1, {"ok": 1.0, "valid/nll": value})
        for tag in ("", "step", 3):
            with pytest.raises(ValueError, match="a tag must be a string"):
                writer.scalars(1, {tag: 1.0})  # type: ignore[dict-item]
    assert lines(run) == []
    assert events(run) == []


def test_histogram_counts_every_value(tmp_path: Path, rng: np.random.Generator) -> None:
    run = RunDir(tmp_path)
    values = rng.normal(size=[10, 7])
    with Writer(run, resume_step=None) as writer:
        writer.show(3, Shown(histograms={"q_mu": tf.constant(values)}))
    ((step, tag, buckets),) = events(run)
    assert (step, tag) == (3, "~q_mu")
    assert buckets[:, 2].sum() == 70
    np.testing.assert_allclose([buckets[0, 0], buckets[-1, 1]], [values.min(), values.max()])


# ---------------------------------------------------------------------------------------------- as TensorBoard sees it


def shown(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> (step, value) of all scalars that TensorBoard's own reader finds in a folder, in its order."""
    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    reader.Reload()
    found = {}
    for tag in reader.Tags()["tensors"]:
        if reader.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            found[tag] = [(e.step, float(tf.make_ndarray(e.tensor_proto))) for e in reader.Tensors(tag)]
    return found


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("gpflow_deep_runs.run.writer.logging.warning", lambda text, *args: found.append(text % args))
    return found


NUM_STEPS = 12


def logged(run: RunDir, *, parts: int = 1) -> dict[str, list[tuple[int, float]]]:
    """Log some steps, each part by a process of its own, with an image and a histogram between them."""
    per_part = NUM_STEPS // parts
    for part in range(parts):
        first = part * per_part
        with Writer(run, resume_step=first or None) as writer:
            for step in range(first + 1, first + per_part + 1):
                writer.scalars(step, {"train/loss": 1.0 / step, "rate": 2.0 * step})
                writer.rates(step, {"speed/steps_per_second": 3.0})
                if step % 4 == 1:
                    writer.show(step, Shown({"filters": np.ones([1, 2, 2])}, {"weights": np.arange(step)}))
    loss = [(step, float(np.float32(1.0 / step))) for step in range(1, NUM_STEPS + 1)]
    rate = [(step, 2.0 * step) for step, _ in loss]
    return {"headline/train/loss": [*loss], "train/loss": loss, "~rate": rate}


def file_with_step(run: RunDir, step: int) -> Path:
    for path in run.tensorboard_dir.iterdir():
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            if tf.compat.v1.Event.FromString(record).step == step:
                return path
    raise AssertionError(f"no file has step {step}")


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 0x40
    path.write_bytes(content)


def cut(path: Path, share: float) -> None:
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


@pytest.mark.parametrize("parts", [1, 3])
def test_undamaged_files_stay_as_they_are(tmp_path: Path, warnings: list[str], parts: int) -> None:
    run = RunDir(tmp_path)
    expected = logged(run, parts=parts)
    before = {path.name: path.read_bytes() for path in run.tensorboard_dir.iterdir()}
    Writer(run, resume_step=NUM_STEPS).close()
    assert {name: (run.tensorboard_dir / name).read_bytes() for name in before} == before
    found = shown(run.tensorboard_dir)
    assert found.pop("~speed/steps_per_second") == [(step, 3.0) for step in range(1, NUM_STEPS + 1)]
    assert {tag: sorted(points) for tag, points in found.items()} == expected
    assert warnings == []


@pytest.mark.parametrize("damage", [flip, cut], ids=["flipped", "cut"])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_damaged_event_file_is_mended(
    tmp_path: Path, warnings: list[str], damage: Any, share: float, parts: int
) -> None:
    """Each scalar of `scalars.jsonl` is shown once, in the order of the steps: TensorBoard takes a smaller step for a
    new start, and its fast loader then forgets the larger ones before it. Later resumptions have nothing to mend."""
    run = RunDir(tmp_path)
    expected = logged(run, parts=parts)
    content = run.scalars_file.read_bytes()
    damage(file_with_step(run, 1), share)
    with Writer(run, resume_step=NUM_STEPS) as writer:
        writer.scalars(NUM_STEPS + 1, {"train/loss": 0.5})
    assert run.scalars_file.read_bytes()[: len(content)] == content
    for tag in ("train/loss", "headline/train/loss"):
        expected[tag].append((NUM_STEPS + 1, 0.5))
    found = shown(run.tensorboard_dir)
    found.pop("~speed/steps_per_second", None)  # lost: it is in no other file
    assert found == expected
    (warning,) = warnings
    assert str(run.tensorboard_dir) in warning
    assert "were damaged" in warning
    assert int(warning.split("damaged: ")[1].split()[0]) <= 2 * NUM_STEPS

    Writer(run, resume_step=NUM_STEPS + 1).close()
    assert shown(run.tensorboard_dir)["train/loss"] == expected["train/loss"]
    assert len(warnings) == 1


def test_event_files_that_are_gone_are_written_anew(tmp_path: Path, warnings: list[str]) -> None:
    run = RunDir(tmp_path)
    expected = logged(run)
    shutil.rmtree(run.tensorboard_dir)
    Writer(run, resume_step=7).close()
    assert shown(run.tensorboard_dir) == {tag: points[:7] for tag, points in expected.items()}
    assert "14 scalars are written again" in warnings[0]


def test_images_before_the_damage_stay(tmp_path: Path, warnings: list[str]) -> None:
    run = RunDir(tmp_path)
    logged(run)
    (path,) = run.tensorboard_dir.iterdir()
    cut(path, 0.5)
    Writer(run, resume_step=NUM_STEPS).close()
    assert [(step, tag) for step, tag, _ in events(run) if tag in ("~filters", "~weights")][:2] == [
        (1, "~filters"),
        (1, "~weights"),
    ]
    assert "images and histograms after the damage are lost" in warnings[0]


def test_a_process_killed_while_it_mended_leaves_nothing_twice(tmp_path: Path, warnings: list[str]) -> None:
    """The mended file is there, the damaged one not yet gone; and a file that was not whole when it was killed."""
    run = RunDir(tmp_path)
    expected = logged(run)
    (path,) = run.tensorboard_dir.iterdir()
    cut(path, 0.5)
    damaged = path.read_bytes()
    Writer(run, resume_step=NUM_STEPS).close()
    path.write_bytes(damaged)
    (run.tensorboard_dir / f".tmp-0123abcd-{path.name}").write_bytes(damaged)  # TensorBoard would read it, too
    Writer(run, resume_step=NUM_STEPS).close()
    found = shown(run.tensorboard_dir)
    assert {tag: sorted(found[tag]) for tag in expected} == expected
    assert not list(run.tensorboard_dir.glob(".tmp-*"))


def test_headline_scalars_come_first(tmp_path: Path) -> None:
    """TensorBoard sorts tags: the main ones, test/, train/ and valid/ come first, whatever the names of the others."""
    run, names = (
        RunDir(tmp_path),
        ["a/b", "Z/size", "layer_1/variance", "test/nll_nats", "train/loss", "valid/nll_nats"],
    )
    with Writer(run, resume_step=None) as writer:
        writer.scalars(1, dict.fromkeys([*names, "zeta/z", "0/step"], 1.0))
        writer.rates(1, {"speed/steps_per_second": 1.0})
    in_order = sorted(shown(run.tensorboard_dir))
    assert in_order[:2] == ["headline/train/loss", "headline/valid/nll_nats"]
    assert in_order[2:5] == ["test/nll_nats", "train/loss", "valid/nll_nats"]
    assert set(in_order[5:]) == {
        "~a/b",
        "~Z/size",
        "~layer_1/variance",
        "~zeta/z",
        "~0/step",
        "~speed/steps_per_second",
    }
    assert "speed" not in run.scalars_file.read_text()


def test_what_an_evaluation_shows(tmp_path: Path, rng: np.random.Generator) -> None:
    run = RunDir(tmp_path)
    with Writer(run, resume_step=None) as writer:
        writer.show(5, Shown({"filters": rng.uniform(size=[3, 4, 5])}, {"layer_1/mean": [1.0, 2.0]}))
        writer.show(6, Shown())
    assert sorted((step, tag) for step, tag, _ in events(run)) == [(5, "~filters"), (5, "~layer_1/mean")]
    pixels = next(tf.io.decode_png(array[2]) for _, tag, array in events(run) if tag == "~filters")
    assert pixels.shape == [2 * (4 + 1), 2 * (5 + 1), 1]  # two by two tiles, with a line before each


def test_a_new_run_has_the_name_of_its_log_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And `sync` puts the lines there."""
    synced: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    with Writer(RunDir(tmp_path / "run"), resume_step=None) as writer:
        assert synced == [str(tmp_path), str(tmp_path / "run")]
        writer.scalars(1, {"train/loss": 1.0})
        writer.sync()
    assert synced[2:] == [str(tmp_path / "run" / "scalars.jsonl")]


def test_only_the_chief_writes(tmp_path: Path) -> None:
    with Writer.of_chief(RunDir(tmp_path / "run"), False, resume_step=None) as writer:
        assert writer is None
    assert not list(tmp_path.iterdir())
    with Writer.of_chief(RunDir(tmp_path / "run"), True, resume_step=None) as writer:
        assert isinstance(writer, Writer)


# ---------------------------------------------------------------------------------------------- the end of a run


def finish(run: RunDir, *, rate: float, nll: float, text: str = "the report") -> None:
    settings: dict[str, bool | float | str] = {"learning_rate": rate, "hidden": "5,4", "jit": False}
    write_final(run, 100, hparams=settings, numbers={"test/final/nll_nats": nll}, text=text, images={})


def session_groups(logdir: Path) -> list[Any]:
    """The rows of TensorBoard's table of hparams, by its own code."""
    multiplexer = EventMultiplexer(tensor_size_guidance={"scalars": 0})
    multiplexer.AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(logdir))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider, logdir=str(logdir)))
    request = api_pb2.ListSessionGroupsRequest(allowed_statuses=range(4), start_index=0, slice_size=100)
    handler = list_session_groups.Handler(RequestContext(), context, "experiment", request)
    return list(handler.run().session_groups)


def test_two_runs_are_two_rows_of_hparams_with_their_numbers(tmp_path: Path) -> None:
    finish(RunDir(tmp_path / "a", "dgp"), rate=0.1, nll=1.5)
    finish(RunDir(tmp_path / "b", "dgp"), rate=0.2, nll=2.5)
    rows = {group.hparams["learning_rate"].number_value: group for group in session_groups(tmp_path)}
    assert rows.keys() == {0.1, 0.2}
    for rate, nll, folder in [(0.1, 1.5, "a"), (0.2, 2.5, "b")]:
        hparams = rows[rate].hparams
        assert set(hparams) == {"learning_rate", "hidden", "jit"}
        assert hparams["hidden"].string_value == "5,4"
        assert hparams["jit"].HasField("bool_value")
        assert not hparams["jit"].bool_value
        assert [(m.name.tag, m.value, m.training_step) for m in rows[rate].metric_values] == [
            ("test/final/nll_nats", nll, 100)
        ]
        assert [session.name for session in rows[rate].sessions] == [f"{folder}/tensorboard/dgp/final"]


def test_the_end_of_a_run_that_is_written_twice_is_there_once(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "a")
    logged(run)
    before = shown(run.tensorboard_dir)
    finish(run, rate=0.1, nll=9.0, text="first")
    finish(run, rate=0.1, nll=1.5, text="second\nline")
    (group,) = session_groups(tmp_path)
    assert [m.value for m in group.metric_values] == [1.5]
    assert shown(run.tensorboard_dir / "final") == {"test/final/nll_nats": [(100, 1.5)]}
    final = RunDir(tmp_path / "a", "run/final")
    assert [array.item().decode() for _, tag, array in events(final) if tag == "report"] == ["    second\n    line"]
    assert shown(run.tensorboard_dir) == before


def test_figures_of_the_end_are_shown(tmp_path: Path, rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, [5, 4, 3], dtype=np.uint8)
    content = tf.io.encode_png(pixels).numpy()
    write_final(RunDir(tmp_path / "run"), 3, hparams={}, numbers={}, text="", images={"plots/fit": content})
    found = {tag: array for _, tag, array in events(RunDir(tmp_path / "run", "run/final"))}
    np.testing.assert_array_equal(tf.io.decode_png(found["~plots/fit"][2]), pixels)


def test_a_tag_says_what_it_is() -> None:
    assert description_of("models/test/rmse") == (
        "Root mean square error, in the units of the target; lower is better; test rows."
    )
    assert description_of("layer_1/lengthscale_age").startswith("Distance along this input")  # type: ignore[union-attr]
    assert description_of("valid/own") == "Of the validation rows."
    assert description_of("own") is None
