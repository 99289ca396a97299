"""gpflow_deep_runs.run.checkpoints: whole or absent, checked by checksum, name and shape."""

import errno
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_runs.run import checkpoints
from tests.gpflow_deep_runs.recording import record_disk


class Model(tf.Module):
    def __init__(self, num_inducing: int = 3, dtype: tf.DType = tf.float64) -> None:
        super().__init__()
        self.q_mu = tf.Variable(tf.zeros([num_inducing, 1], dtype))
        self.layers = [tf.Variable(tf.zeros([2], dtype)) for _ in range(2)]


def objects(**options: Any) -> dict[str, Any]:
    model = Model(**options)
    optimizer = tf.keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer, "step": tf.Variable(0, dtype=tf.int64)}


def fill(given: dict[str, Any], value: float) -> dict[str, Any]:
    for variable in [*given["model"].variables, *given["optimizer"].variables]:
        variable.assign(tf.fill(variable.shape, tf.cast(value, variable.dtype)))
    given["step"].assign(int(value))
    return given


def values(given: dict[str, Any]) -> set[float]:
    variables = [*given["model"].variables, *given["optimizer"].variables, given["step"]]
    return {float(value) for variable in variables for value in np.ravel(np.asarray(variable))}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_to_restore(tmp_path: Path) -> None:
    given = fill(objects(), 4)
    assert checkpoints.restore(tmp_path / "absent", **given) is None
    assert checkpoints.restore(tmp_path, **given) is None
    assert values(given) == {4}


def test_round_trip_of_all_state(tmp_path: Path) -> None:
    """Model, every slot of Adam, its iteration count and the step are back."""
    saved = fill(objects(), 7)
    path = checkpoints.save(tmp_path / "new" / "folder", saved["step"], **saved)
    assert path == tmp_path / "new" / "folder" / "step-0000000007"
    restored = objects()
    assert values(restored) != {7}
    assert checkpoints.restore(tmp_path / "new" / "folder", **restored) == 7
    assert values(restored) == {7}


def test_gpflow_model_and_natural_parameters(tmp_path: Path, rng: np.random.Generator) -> None:
    """Parameters with transforms, a trainable flag and inducing variables come back bit for bit."""

    def build(Z: np.ndarray, variance: float) -> gpflow.models.SVGP:
        kernel = gpflow.kernels.Matern52(variance=variance)
        return gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(), inducing_variable=Z, num_data=10)

    saved, other = build(rng.normal(size=[4, 2]), 2.0), build(np.zeros([4, 2]), 1.0)
    checkpoints.save(tmp_path, 1, model=saved)
    assert checkpoints.restore(tmp_path, model=other) == 1
    for name, parameter in gpflow.utilities.parameter_dict(saved).items():
        restored = gpflow.utilities.parameter_dict(other)[name]
        np.testing.assert_array_equal(parameter.unconstrained_variable, restored.unconstrained_variable)
    with pytest.raises(
        ValueError, match=r"another model: model/q_mu/\S+ is float64 \[5, 1\] here but float64 \[4, 1\]"
    ):
        checkpoints.restore(tmp_path, model=build(np.zeros([5, 2]), 1.0))


def test_keeps_the_newest_and_leaves_no_other_file(tmp_path: Path) -> None:
    given = objects()
    for step in (5, 10, 15, 20):
        checkpoints.save(tmp_path, step, keep=2, **fill(given, step))
    assert names(tmp_path) == ["step-0000000015", "step-0000000020"]
    assert names(tmp_path / "step-0000000020") == ["manifest.json", "state.data-00000-of-00001", "state.index"]
    assert checkpoints.restore(tmp_path, **given) == 20
    assert values(given) == {20}


def test_same_step_is_replaced(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 5, **fill(objects(), 1))
    checkpoints.save(tmp_path, 5, **fill(objects(), 2))
    given = objects()
    assert checkpoints.restore(tmp_path, **given) == 5
    assert values(given) == {2}
    assert names(tmp_path) == ["step-0000000005"]


def test_ten_digit_steps_sort_as_numbers(tmp_path: Path) -> None:
    variable = tf.Variable(0)
    for step in (9_999_999_999, 10_000_000_000):
        checkpoints.save(tmp_path, step, variable=variable)
    assert checkpoints.restore(tmp_path, variable=variable) == 10_000_000_000


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty, Path.unlink])
@pytest.mark.parametrize("file", ["state.data-00000-of-00001", "state.index", "manifest.json"])
def test_a_damaged_newest_checkpoint_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Any, file: str
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(
        "gpflow_deep_runs.run.checkpoints.logging.warning", lambda text, *args: warnings.append(text % args)
    )
    for step in (1, 2):
        path = checkpoints.save(tmp_path, step, **fill(objects(), step))
    damage(path / file)
    given = objects()
    assert checkpoints.restore(tmp_path, **given) == 1
    assert values(given) == {1}
    assert "step 2 is damaged" in warnings[0]
    assert str(path) in warnings[0]
    assert "step 1 instead" in warnings[-1]

    shutil.rmtree(tmp_path / "step-0000000001")
    with pytest.raises(ValueError, match=f"no usable checkpoint in {tmp_path}: {path}.* new --run_dir"):
        checkpoints.restore(tmp_path, **given)
    assert values(given) == {1}


def test_checkpoints_behind_a_fall_back_are_no_spares(tmp_path: Path) -> None:
    """Of those behind it, which are damaged, none counts among the newest: all `keep` of them can be restored."""
    variable = tf.Variable(0.0)
    for step in (1, 2, 3, 8, 9):
        variable.assign(step)
        path = checkpoints.save(tmp_path, step, keep=5, variable=variable)
        if step > 3:
            empty(path / "state.index")
    assert checkpoints.restore(tmp_path, variable=variable) == 3
    checkpoints.save(tmp_path, 4, keep=2, variable=variable)
    assert names(tmp_path) == [f"step-{step:010d}" for step in (3, 4, 8, 9)]
    for step in (4, 3):  # the newest that is whole, then the one that is left without it
        assert checkpoints.restore(tmp_path, variable=variable) == step
        assert variable == 3
        shutil.rmtree(tmp_path / f"step-{step:010d}")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"num_inducing": 4}, r"model/q_mu is float64 \[4, 1\] here but float64 \[3, 1\] in the checkpoint"),
        ({"dtype": tf.float32}, r"model/\S+ is float32 \[\S+.*\] here but float64"),
    ],
)
def test_another_model_is_named_and_changes_nothing(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    checkpoints.save(tmp_path, 3, **fill(objects(), 3))
    given = fill(objects(**other), 8)
    with pytest.raises(ValueError, match=rf"is a checkpoint from another model: {message}"):
        checkpoints.restore(tmp_path, **given)
    assert values(given) == {8}


def test_missing_and_surplus_objects_are_named(tmp_path: Path) -> None:
    saved = fill(objects(), 3)
    checkpoints.save(tmp_path, 3, **saved)
    with pytest.raises(ValueError, match=r"extra is int32 \[\] here but absent in the checkpoint"):
        checkpoints.restore(tmp_path, **objects(), extra=tf.Variable(0))
    with pytest.raises(ValueError, match=r"optimizer/\S+ is absent here but "):
        checkpoints.restore(tmp_path, model=Model(), step=tf.Variable(0, dtype=tf.int64))


def test_an_optimizer_that_was_not_built_is_an_error(tmp_path: Path) -> None:
    """Its moments would be lost without a word: restored "later", when nobody asks for them."""
    checkpoints.save(tmp_path, 3, **fill(objects(), 3))
    given = {**objects(), "optimizer": tf.keras.optimizers.Adam(0.1)}
    with pytest.raises(ValueError, match=r"optimizer/\S+ is absent here .*optimizer\.build"):
        checkpoints.restore(tmp_path, **given)


def no_space(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def tf_no_space(*args: Any, **kwargs: Any) -> None:
    raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")


@pytest.mark.parametrize("step", [2, 3], ids=["same step", "later step"])
@pytest.mark.parametrize(
    ("target", "failure"),
    [
        ("tensorflow.train.Checkpoint.write", tf_no_space),
        ("gpflow_deep_runs.run.checkpoints.write_json", no_space),
        ("gpflow_deep_runs.run.checkpoints.os.replace", no_space),
    ],
)
def test_a_full_disk_leaves_the_earlier_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, target: str, failure: Any
) -> None:
    for earlier in (1, 2):
        checkpoints.save(tmp_path, earlier, **fill(objects(), earlier))
    with monkeypatch.context() as patch:
        patch.setattr(target, failure)
        with pytest.raises(OSError, match=rf"step {step} could not be written to {tmp_path}: .*[Nn]o space left"):
            checkpoints.save(tmp_path, step, **fill(objects(), 9))
    assert names(tmp_path) == ["step-0000000001", "step-0000000002"]
    given = objects()
    assert checkpoints.restore(tmp_path, **given) == 2
    assert values(given) == {2}


def test_a_rename_that_fails_half_way_puts_the_old_checkpoint_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replacing a step takes two renames of folders; the second may fail."""
    checkpoints.save(tmp_path, 2, **fill(objects(), 2))
    real = os.replace

    def second_fails(source: Any, target: Any) -> None:
        if Path(target).name.startswith("step-") and not Path(source).name.endswith("-replaced"):
            no_space()
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", second_fails)
        with pytest.raises(OSError, match="Earlier checkpoints there are intact"):
            checkpoints.save(tmp_path, 2, **fill(objects(), 9))
    given = objects()
    assert checkpoints.restore(tmp_path, **given) == 2
    assert values(given) == {2}
    assert names(tmp_path) == ["step-0000000002"]


def test_a_file_size_limit_met_for_real(tmp_path: Path) -> None:
    """The operating system itself refuses to write on: 1 MB of variables, 100 kB allowed."""
    given = {"big": tf.Variable(tf.ones([125_000], tf.float64))}
    checkpoints.save(tmp_path, 1, **given)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # Python ignores SIGXFSZ, so writes fail with EFBIG
    try:
        with pytest.raises(OSError, match=f"step 2 could not be written to {tmp_path}"):
            checkpoints.save(tmp_path, 2, **given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["step-0000000001"]
    assert checkpoints.restore(tmp_path, **given) == 1


@pytest.mark.parametrize("step", [2, 3], ids=["same step", "later step"])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty, Path.unlink])
@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
def test_a_write_that_loses_data_without_an_error_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, damage: Any, file: str
) -> None:
    """As on a full or failing network drive: what was written is read back before it takes a place."""
    variable = tf.Variable([1.0, 1.0])
    for earlier in (1, 2):
        variable.assign([earlier, earlier])
        checkpoints.save(tmp_path, earlier, v=variable)
    write = tf.train.Checkpoint.write

    def lossy(checkpoint: tf.train.Checkpoint, prefix: str) -> str:
        path: str = write(checkpoint, prefix)
        damage(Path(f"{prefix}.{file}"))
        return path

    with monkeypatch.context() as patch:
        patch.setattr(tf.train.Checkpoint, "write", lossy)
        with pytest.raises(
            OSError, match=rf"step {step} could not be written to {tmp_path}: what was written cannot be read back"
        ):
            checkpoints.save(tmp_path, step, v=tf.Variable([9.0, 9.0]))
    assert names(tmp_path) == ["step-0000000001", "step-0000000002"]
    variable.assign([7.0, 7.0])
    assert checkpoints.restore(tmp_path, v=variable) == 2
    assert variable.numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("earlier", [False, True], ids=["new", "replaced"])
def test_all_is_on_disk_before_the_checkpoint_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    """Each file, then the names in the folder, then the name of the folder: in this order, so that no power failure
    leaves a checkpoint that is not whole, and none is lost after `save` has returned."""
    given = {"v": tf.Variable(1.0)}
    if earlier:
        checkpoints.save(tmp_path, 1, **given)

    def name(path: Any) -> str:
        parts = Path(path).relative_to(tmp_path).parts
        tidied = ["TEMPORARY" if part.startswith(".tmp-") else part for part in parts]
        return "/".join(tidied) or "."

    calls = record_disk(monkeypatch, name)
    checkpoints.save(tmp_path, 1, **given)
    assert calls == [
        "sync TEMPORARY/state.data-00000-of-00001",
        "sync TEMPORARY/state.index",
        "sync TEMPORARY/TEMPORARY",
        "rename TEMPORARY/TEMPORARY to TEMPORARY/manifest.json",
        "sync TEMPORARY",
        *(["rename step-0000000001 to TEMPORARY"] if earlier else []),
        "rename TEMPORARY to step-0000000001",
        "sync .",
    ]


def test_what_a_killed_process_left_is_not_a_checkpoint_and_is_removed(tmp_path: Path) -> None:
    checkpoints.save(tmp_path, 1, **fill(objects(), 1))
    shutil.copytree(tmp_path / "step-0000000001", tmp_path / ".tmp-0123abcd")
    given = objects()
    assert checkpoints.restore(tmp_path, **given) == 1
    checkpoints.save(tmp_path, 2, **given)
    assert names(tmp_path) == ["step-0000000001", "step-0000000002"]


def test_bad_arguments(tmp_path: Path) -> None:
    variable = tf.Variable(0)
    for step, keep, given in [(-1, 2, {"v": variable}), (1, 0, {"v": variable}), (1, 2, {})]:
        with pytest.raises(ValueError, match="save needs step >= 0, keep >= 1 and objects"):
            checkpoints.save(tmp_path, step, keep=keep, **given)
    with pytest.raises(ValueError, match=r"v must be a tf\.Module.*got int; wrap numbers in tf\.Variable"):
        checkpoints.save(tmp_path, 1, v=3)
    assert not names(tmp_path)
