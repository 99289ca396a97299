"""experiment.scalars: one JSON object a line, the same in TensorBoard, every step once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from experiment.run_dir import RunDir
from experiment.scalars import ScalarWriter, read_scalars


def lines(run: RunDir) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in run.scalars_file.read_text("utf-8").splitlines()]


def events(run: RunDir) -> list[tuple[int, str, Any]]:
    """(step, tag, array) in the event files, oldest file first."""
    found = []
    for path in sorted(run.tensorboard_dir.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            found += [(event.step, value.tag, tf.make_ndarray(value.tensor)) for value in event.summary.value]
    return found


def scalars(run: RunDir) -> dict[tuple[int, str], float]:
    found = [((step, tag), float(array)) for step, tag, array in events(run)]
    assert len(dict(found)) == len(found), "a step appears twice"
    return dict(found)


def test_line_and_event_of_each_call(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "new")
    with ScalarWriter(run, resume_step=None) as writer:
        writer.write(100, {"train/elbo_nats": -1.5, "valid/nll_nats": np.float32(0.5)})
        writer.write(200, {"valid/nll_nats": tf.constant(2.0), "count": 3, "shape_1": np.array([4.0])})
        # each call is on disk when it returns, not when the writer is closed
        assert [line["step"] for line in lines(run)] == [100, 200]
        assert len(events(run)) == 5
    assert lines(run) == [
        {"step": 100, "train/elbo_nats": -1.5, "valid/nll_nats": 0.5},
        {"step": 200, "valid/nll_nats": 2.0, "count": 3.0, "shape_1": 4.0},
    ]
    assert scalars(run) == {
        (line["step"], tag): value for line in lines(run) for tag, value in line.items() if tag != "step"
    }


def test_not_a_number_is_null_in_the_file_and_itself_in_tensorboard(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with ScalarWriter(run, resume_step=None) as writer:
        writer.write(1, {"a": np.nan, "b": np.inf, "c": tf.constant(-np.inf), "d": 1.0})
    assert lines(run) == [{"step": 1, "a": None, "b": None, "c": None, "d": 1.0}]
    shown = scalars(run)
    assert np.isnan(shown[1, "a"])
    assert (shown[1, "b"], shown[1, "c"], shown[1, "d"]) == (np.inf, -np.inf, 1.0)


def write_steps(run: RunDir, steps: range, *, resume_step: int | None, value: float) -> None:
    with ScalarWriter(run, resume_step=resume_step) as writer:
        for step in steps:
            writer.write(step, {"a": value})


@pytest.mark.parametrize(("resume_step", "first"), [(4, 5), (0, 1), (None, 0), (6, 7), (100, 101)])
def test_a_resumed_run_has_each_step_once(tmp_path: Path, resume_step: int | None, first: int) -> None:
    """Steps up to the checkpoint are from the first part, later ones from the second."""
    run = RunDir(tmp_path)
    write_steps(run, range(7), resume_step=None, value=1.0)
    write_steps(run, range(first, first + 3), resume_step=resume_step, value=2.0)
    expected = {step: 1.0 for step in range(7) if step < first} | dict.fromkeys(range(first, first + 3), 2.0)
    assert {line["step"]: line["a"] for line in lines(run)} == expected
    assert len(lines(run)) == len(expected)
    assert scalars(run) == {(step, "a"): value for step, value in expected.items()}


def test_resuming_twice(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_steps(run, range(1, 6), resume_step=None, value=1.0)
    write_steps(run, range(4, 9), resume_step=3, value=2.0)
    write_steps(run, range(6, 8), resume_step=5, value=3.0)
    expected = {1: 1.0, 2: 1.0, 3: 1.0, 4: 2.0, 5: 2.0, 6: 3.0, 7: 3.0}
    assert {line["step"]: line["a"] for line in lines(run)} == expected
    assert scalars(run) == {(step, "a"): value for step, value in expected.items()}


@pytest.mark.parametrize("tail", ['{"step": 3, "a"', "{", "\x00\x00", '{"step": 3, "a": 1.0}', "µ".encode()[:1]])
def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path: Path, tail: str | bytes) -> None:
    run = RunDir(tmp_path)
    write_steps(run, range(1, 3), resume_step=None, value=1.0)
    with open(run.scalars_file, "ab") as file:
        file.write(tail if isinstance(tail, bytes) else tail.encode())
    write_steps(run, range(3, 4), resume_step=3, value=2.0)
    assert lines(run) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 1.0}, {"step": 3, "a": 2.0}]


def test_events_cut_short_by_a_crash_are_dropped(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_steps(run, range(1, 4), resume_step=None, value=1.0)
    (path,) = run.tensorboard_dir.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    write_steps(run, range(3, 4), resume_step=2, value=2.0)
    assert scalars(run) == {(1, "a"): 1.0, (2, "a"): 1.0, (3, "a"): 2.0}


@pytest.mark.parametrize("damaged", ["not json", "[1]", '{"a": 1}', '{"step": "x"}', "3", ""])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damaged: str) -> None:
    run = RunDir(tmp_path)
    content = f'{{"step": 1}}\n{damaged}\n{{"step": 2}}\n'
    run.scalars_file.write_text(content)
    with pytest.raises(ValueError, match=r"scalars\.jsonl line 2 is not a JSON object with a step .*remove that line"):
        ScalarWriter(run, resume_step=1)
    assert run.scalars_file.read_text() == content


@pytest.mark.parametrize("value", [[1.0, 2.0], np.zeros(0), "1", None, 1j, np.array([["a"]])])
def test_values_that_are_not_one_number(tmp_path: Path, value: Any) -> None:
    run = RunDir(tmp_path)
    with ScalarWriter(run, resume_step=None) as writer:
        with pytest.raises(ValueError, match=r"valid/nll must be one number, got shape \["):
            writer.write(1, {"ok": 1.0, "valid/nll": value})
        for tag in ("", "step", 3):
            with pytest.raises(ValueError, match="a tag must be a string"):
                writer.write(1, {tag: 1.0})  # type: ignore[dict-item]
    assert lines(run) == []
    assert events(run) == []


def test_images_from_files_and_arrays(tmp_path: Path, rng: np.random.Generator) -> None:
    run = RunDir(tmp_path)
    pixels = rng.integers(0, 256, [5, 4, 3], dtype=np.uint8)
    png = tmp_path / "plot.png"
    png.write_bytes(tf.io.encode_png(pixels).numpy())
    given: dict[str, Any] = {
        "path": png,
        "text": str(png),
        "uint8": pixels,
        "float": pixels / 255,
        "grey": pixels[..., 0],
    }
    with ScalarWriter(run, resume_step=None) as writer:
        for tag, image in given.items():
            writer.image(7, tag, image)
    shown = {tag: (step, tf.io.decode_png(array[2]).numpy()) for step, tag, array in events(run)}
    assert shown.keys() == given.keys()
    for tag, (step, image) in shown.items():
        assert step == 7
        # floats pass through [0, 1]: at most one level off by rounding
        expected = pixels[..., :1] if tag == "grey" else pixels
        np.testing.assert_allclose(image.astype(int), expected.astype(int), atol=1 if tag == "float" else 0)


def test_images_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("no image")
    with ScalarWriter(RunDir(tmp_path / "run"), resume_step=None) as writer:
        for path in ("no.png", "absent.png"):
            with pytest.raises(ValueError, match=f"a: .*{path} cannot be read as a PNG image"):
                writer.image(1, "a", tmp_path / path)
        for array in (np.zeros(3), np.zeros([4, 4, 2]), np.zeros([2, 2], dtype=np.int64), np.zeros([1, 4, 4, 3])):
            with pytest.raises(ValueError, match=r"a: an image must be a PNG path or an array \[H, W"):
                writer.image(1, "a", array)


def test_histogram_counts_every_value(tmp_path: Path, rng: np.random.Generator) -> None:
    run = RunDir(tmp_path)
    values = rng.normal(size=[10, 7])
    with ScalarWriter(run, resume_step=None) as writer:
        writer.histogram(3, "q_mu", tf.constant(values))
    ((step, tag, buckets),) = events(run)
    assert (step, tag) == (3, "q_mu")
    assert buckets[:, 2].sum() == 70
    np.testing.assert_allclose([buckets[0, 0], buckets[-1, 1]], [values.min(), values.max()])


def test_a_writer_closed_by_an_error_has_written(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with pytest.raises(KeyboardInterrupt), ScalarWriter(run, resume_step=None) as writer:
        writer.write(1, {"a": 1.0})
        raise KeyboardInterrupt
    assert lines(run) == [{"step": 1, "a": 1.0}]
    assert scalars(run) == {(1, "a"): 1.0}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    with ScalarWriter(run, resume_step=None) as writer:
        writer.write(1, {"loss": 2.5})
        writer.write(3, {"loss": np.nan})
    assert read_scalars(run.scalars_file) == [{"step": 1, "loss": 2.5}, {"step": 3, "loss": None}]
