"""Saved models are restored exactly, or refused."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from darn.local_config import LocalConfig
from darn.model import DARN, DARNConfig
from darn.serialization import load_darn, named_variables, save_darn

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
    save_darn(tmp_path / "new" / "darn.npz", model)
    restored = load_darn(tmp_path / "new" / "darn.npz")
    assert restored.config == model.config
    expected = named_variables(model)
    assert len(expected) == len(model.variables)
    for path, variable in named_variables(restored).items():
        np.testing.assert_array_equal(variable, expected[path])
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["darn.npz"]


def test_a_mixtures_orders_are_a_function_of_the_seed_and_are_restored(tmp_path: Path) -> None:
    model = DARN(CONFIGS["large"], seed=7)
    save_darn(tmp_path / "darn.npz", model)
    np.testing.assert_array_equal(load_darn(tmp_path / "darn.npz").prior.orders, model.prior.orders)
    assert not np.array_equal(
        DARN(DARNConfig(visible=12, hidden=(8,), prior="eonade"), seed=1).prior.orders,
        DARN(DARNConfig(visible=12, hidden=(8,), prior="eonade"), seed=2).prior.orders,
    )


def test_damaged_or_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "darn.npz"
    save_darn(path, DARN(CONFIGS["small"]))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="cannot be read as a saved DARN"):
        load_darn(path)
    with pytest.raises(ValueError, match="cannot be read as a saved DARN"):
        load_darn(tmp_path / "absent.npz")
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ValueError, match=r"no DARN saved by save_darn; give the darn\.npz"):
        load_darn(path)
    np.savez(path, format="darn 1", config=CONFIGS["small"].to_json(), visible_mean=np.zeros(4))
    with pytest.raises(ValueError, match="other parameters than its configuration says"):
        load_darn(path)


@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)])
def test_files_of_the_first_format(tmp_path: Path, hidden: tuple[int, ...]) -> None:
    """They held the prior beside the decoders."""
    model = DARN(DARNConfig(4, hidden), seed=5)
    top = f"decoders/{len(hidden)}/conditional/" if hidden else "no such name"
    names = {name: name.replace(top, "prior/") for name in named_variables(model)}
    arrays = {names[name]: variable.numpy() for name, variable in named_variables(model).items()}
    assert any(name.startswith("prior/") for name in arrays) == bool(hidden)
    np.savez(tmp_path / "old.npz", format="darn 1", config=model.config.to_json(), **arrays)
    restored = named_variables(load_darn(tmp_path / "old.npz"))
    for name, variable in named_variables(model).items():
        np.testing.assert_array_equal(restored[name], variable)


def test_a_diverged_model_is_not_written(tmp_path: Path) -> None:
    model = DARN(CONFIGS["small"])
    model.prior.bias.assign([np.nan, 0.0])
    with pytest.raises(ValueError, match="conditional/bias must be finite"):
        save_darn(tmp_path / "darn.npz", model)
    assert not list(tmp_path.iterdir())
