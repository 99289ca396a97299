"""`scripts/track_rbm.py` with visible units besides bits: from tables, found in bits, numbers; what cannot be."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbm_tracking import DReLU, Gaussian, Softmax, load_rbm, log_likelihood_exact
from scripts.track_rbm import main
from tests.scripts.running import Finished, called, result_of

SMALL = ["--hidden=4", "--num_temps=3", "--num_chains=4", "--batch_size=20", "--noprogress", "--nojit"]
SMALL += ["--num_steps=40", "--log_every=20", "--eval_every=20", "--ais_betas=20", "--final_ais_betas=20"]
SMALL += ["--ais_chains=10", "--patience=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("units"), np.random.default_rng(0)
    kind = rng.integers(0, 3, 200)
    frame = pd.DataFrame({"colour": np.array(["red", "green", "blue"])[kind], "flag": rng.integers(0, 2, 200)})
    frame["size"] = np.array(["small", "large"])[(kind > 0).astype(int)]
    frame.to_csv(folder / "shop.csv", index=False)
    pd.DataFrame({"a": rng.normal(3, 2, 200), "b": rng.normal(size=200)}).to_csv(folder / "numbers.csv", index=False)
    np.savez(folder / "bits.npz", X=np.hstack([np.eye(3)[kind], np.eye(4)[rng.integers(0, 4, 200)]]).astype(np.uint8))
    return folder


def call(folder: Path, name: str, *arguments: str) -> Finished:
    return called(main, "track_rbm.py", folder, [f"--run_dir={name}", *SMALL, *arguments])


@pytest.mark.slow
@pytest.mark.ci
def test_categories_of_a_table_are_softmax_units_by_themselves(folder: Path) -> None:
    done = call(folder, "shop", "--data=shop.csv", "--patience=3")
    assert done.code == 0, done.err
    assert "visible units: 2 softmax groups (the categories of the table)" in done.out
    saved = load_rbm(folder / "shop" / "rbm.npz")
    assert isinstance(saved.rbm.visible, Softmax)
    assert sorted(map(len, saved.rbm.visible.groups)) == [2, 3]
    states = saved.rbm.visible.states(6, 0, int(saved.rbm.visible.num_states(6)))
    assert np.exp(log_likelihood_exact(saved.rbm, states)).sum() == pytest.approx(1.0)
    result = result_of(folder, "shop")
    assert result["evidence"]["interval_nats"] == [result["exact"]["log_z_nats"]] * 2
    resumed = call(folder, "shop", "--data=shop.csv", "--patience=3", "--resume", "--num_steps=60")
    assert resumed.code == 0, resumed.err


@pytest.mark.slow
@pytest.mark.ci
def test_groups_are_found_in_bits_and_said(folder: Path) -> None:
    done = call(folder, "bits", "--data=bits.npz", "--visible=softmax", "--hidden_units=drelu")
    assert done.code == 0, done.err
    assert "2 softmax groups (found: contiguous columns, at most one of them 1) 0-2,3-6; 0 bits" in done.out
    assert isinstance(load_rbm(folder / "bits" / "rbm.npz").rbm.hidden, DReLU)


@pytest.mark.slow
@pytest.mark.ci
def test_numbers_are_gaussian_units(folder: Path) -> None:
    done = call(folder, "numbers", "--data=numbers.csv", "--visible=gaussian")
    assert done.code == 0, done.err
    saved = load_rbm(folder / "numbers" / "rbm.npz")
    assert isinstance(saved.rbm.visible, Gaussian)
    assert saved.rbm.visible.is_learnt
    assert result_of(folder, "numbers")["exact"]["test_log_likelihood_nats"] > -4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data=bits.npz", "--groups=0-2"], "groups are of softmax units; give visible=softmax"),
        (["--data=bits.npz", "--visible=softmax", "--groups=2-4"], "the rows must have .* group 2-4"),
        (["--data=bits.npz", "--visible=softmax", "--groups=0:2"], "groups must be like 0-2,3-5"),
        (["--data=shop.csv", "--visible=gaussian"], "no column"),
    ],
)
def test_bad_units_are_one_clear_error_and_leave_no_folder(folder: Path, arguments: list[str], message: str) -> None:
    done = call(folder, "wrong", *arguments)
    assert done.code != 0
    assert len(done.err.strip().splitlines()) == 1
    assert re.search(message, done.err)
    assert not (folder / "wrong").exists()
