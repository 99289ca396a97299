"""Saved models are restored exactly, or refused."""

import json
import re
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from darn.model.config import LocalConfig, PixelCNNConfig
from darn.model.model import DARN, DARNConfig
from darn.model.serialization import load_darn, named_variables, save_darn, variable_shapes
from gpflow_deep_base.storage.container import save_container

CONFIGS = {
    "small": DARNConfig(visible=4, hidden=(2,), units=(3,)),
    "large": DARNConfig(
        visible=12,
        hidden=(3, 2),
        skip=True,
        encoder="made",
        prior="eonade",
        visible_conditional="local",
        local=LocalConfig((3, 4), (2,), (1,), (2,), 2, 3, 2),
        dtype="float64",
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_restored_model_is_the_same(name: str, tmp_path: Path, seed: tf.Tensor) -> None:
    model = DARN(CONFIGS[name], seed=seed)
    model.visible_mean.assign_add(tf.ones_like(model.visible_mean))
    save_darn(model, tmp_path / "new" / "darn.npz")
    restored = load_darn(tmp_path / "new" / "darn.npz")
    assert restored.config == model.config
    expected = named_variables(model)
    assert len(expected) == len(model.variables)
    for path, variable in named_variables(restored).items():
        np.testing.assert_array_equal(variable, expected[path])
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["darn.npz"]


def test_a_mixtures_orders_are_a_function_of_the_seed_and_are_restored(tmp_path: Path) -> None:
    model = DARN(CONFIGS["large"], seed=7)
    save_darn(model, tmp_path / "darn.npz")
    np.testing.assert_array_equal(load_darn(tmp_path / "darn.npz").prior.orders, model.prior.orders)
    assert not np.array_equal(
        DARN(DARNConfig(visible=12, hidden=(8,), prior="eonade"), seed=1).prior.orders,
        DARN(DARNConfig(visible=12, hidden=(8,), prior="eonade"), seed=2).prior.orders,
    )


SHAPES = {
    **CONFIGS,
    "deep": DARNConfig(visible=6, hidden=(3, 2), units=(4, 5), skip=True, encoder="nade", conditional_units=5),
    "made": DARNConfig(visible=6, hidden=(3, 1), visible_conditional="made", orders=3),
    "one order": DARNConfig(visible=6, hidden=(), visible_conditional="made"),
    "eonade": DARNConfig(visible=6, hidden=(3,), prior="nade", visible_conditional="eonade", orders=2),
    "factorial": DARNConfig(visible=6, hidden=(3,), visible_conditional="factorial", prior="factorial"),
    "local units": DARNConfig(
        visible=12,
        hidden=(8, 12, 3),
        local=LocalConfig((3, 4), (4, 2), (2, 1), (2, 3), 2, 3, 2, stochastic=True),
    ),
    "fully visible": DARNConfig(visible=12, hidden=(), visible_conditional="local", local=LocalConfig((3, 4))),
    "pixelcnn": DARNConfig(
        visible=12, hidden=(3,), units=(4,), visible_conditional="pixelcnn", pixelcnn=PixelCNNConfig((3, 4), layers=2)
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_known_without_building_the_model(name: str) -> None:
    built = named_variables(DARN(SHAPES[name]))
    assert variable_shapes(SHAPES[name]) == {path: tuple(variable.shape) for path, variable in built.items()}


def forged(path: Path, config: object, arrays: Mapping[str, np.ndarray]) -> None:
    """A file with a checksum that is right."""
    save_container(path, kind="a saved DARN", version=1, header={"config": config}, arrays=arrays)


def refused(path: Path) -> str:
    """The message; memory stays in proportion to the file."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="cannot be read as a saved DARN") as error:
        load_darn(path)
    assert tracemalloc.get_traced_memory()[1] < 100e6 + 3 * (path.stat().st_size if path.exists() else 0)
    tracemalloc.stop()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "absent.npz")
    path = tmp_path / "darn.npz"
    np.savez(path, weights=np.zeros(3))
    assert "of another program" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("W.npy", "w") as stream:
        stream.write(
            b"\x93NUMPY\x01\x00v\x00" + b"{'descr':'<f4','fortran_order':False,'shape':(75000000,),}".ljust(118)
        )
        for _ in range(300):
            stream.write(bytes(10**6))
    assert path.stat().st_size < 4e5
    refused(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": [10**6] * 3}, "must have the shape|lacks the array"),
        ({"hidden": [1] * 3000}, "at most 100 layers"),
        ({"units": [1] * 3000}, "at most 100 layers"),
        ({"hidden": [10**400]}, "must have the shape"),
        ({"visible": 10**12, "visible_conditional": "factorial"}, "."),
        ({"visible": 4.0}, "visible must be a whole number"),
        ({"visible": "4"}, "visible must be a whole number"),
        ({"visible": True}, "visible must be a whole number"),
        ({"skip": 1}, "skip must be True or False"),
        ({"hidden": 2}, "hidden must be whole numbers"),
        ({"visible_conditional": ["linear"]}, "."),
        ({"visible_conditional": "made", "orders": 10**9}, "."),
        ({"local": [1]}, "."),
        ({"local": {"image_shape": [2, 2], "kernels": [4] * 10**5, "strides": 4, "filters": 3}}, "."),
        ({"local": {"image_shape": [2, 2.5]}}, "whole number"),
        ({"visible_conditional": "pixelcnn", "pixelcnn": {"image_shape": [2, 2], "layers": 10**9}}, "at most 100"),
        ({"other": 1}, "no configuration of a DARN"),
    ],
)
def test_crafted_configurations_are_refused_before_anything_is_built(
    tmp_path: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DARN(CONFIGS["small"])
    arrays = {name: variable.numpy() for name, variable in named_variables(model).items()}
    monkeypatch.setattr("darn.model.serialization.DARN", lambda config: pytest.fail("it was built"))
    forged(tmp_path / "darn.npz", json.loads(model.config.to_json()) | changes, arrays)
    assert re.search(message, refused(tmp_path / "darn.npz"))


def test_crafted_arrays_are_refused(tmp_path: Path) -> None:
    model = DARN(DARNConfig(visible=4, hidden=(), visible_conditional="eonade", orders=2))
    arrays = {name: variable.numpy() for name, variable in named_variables(model).items()}
    config = json.loads(model.config.to_json())
    path = tmp_path / "darn.npz"
    forged(path, config, arrays)
    load_darn(path)
    orders, bias = "decoders/0/conditional/orders", "decoders/0/conditional/bias"
    for name, array, message in (
        (orders, arrays[orders] + 10**6, "must be orders of the units"),
        (orders, np.zeros_like(arrays[orders]), "must be orders of the units"),
        (bias, np.full(4, np.nan, np.float32), "has NaN or infinity"),
        (bias, np.array(["a"] * 4), "must be of float32"),
        (bias, np.zeros(5, np.float32), "must have the shape"),
    ):
        forged(path, config, arrays | {name: array})
        assert message in refused(path)
    forged(path, config | {"dtype": "float64"}, arrays)
    assert "must be of float64" in refused(path)
    others: list[Any] = [None, [], "text", {"visible": 4, "hidden": None}]
    for other in others:
        forged(path, other, arrays)
        refused(path)


def test_sizes_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    """As a search over `np.arange` has them: the file is written, and read again."""
    sizes = [np.int64(size) for size in (4, 2, 3)]
    model = DARN(DARNConfig(sizes[0], (sizes[1],), prior="nade", conditional_units=sizes[2]))  # type: ignore[arg-type]
    save_darn(model, tmp_path / "darn.npz")
    assert load_darn(tmp_path / "darn.npz").config == model.config
    images = (PixelCNNConfig((3, 4), layers=sizes[1]), LocalConfig((3, 4), period=sizes[1]))  # type: ignore[arg-type]
    for name, config in zip(("pixelcnn", "local"), images, strict=True):
        fields: dict[str, Any] = {name: config, "visible_conditional": name}
        assert DARNConfig.from_json(DARNConfig(12, **fields).to_json()) == DARNConfig(12, **fields)


def test_a_diverged_model_is_not_written(tmp_path: Path) -> None:
    model = DARN(CONFIGS["small"])
    model.prior.bias.assign([np.nan, 0.0])
    with pytest.raises(ValueError, match="conditional/bias must be finite"):
        save_darn(model, tmp_path / "darn.npz")
    assert not list(tmp_path.iterdir())
