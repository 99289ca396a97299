"""`train_dgp.py --kernel=convolutional` on own images, and predictions for new ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep import Predictor
from scripts import predict_dgp, train_dgp
from tests.scripts.running import called, result_of

SMALL = (
    "--num_inducing=5 --num_predict_samples=2 --batch_size=20 --noprogress --eval_every=2 --compare= --decay_share=0"
)
IMAGES = ["--data=images.npz", "--kernel=convolutional", "--patch=3", "--channels=2", *SMALL.split()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images [N, H, W, C] of whole numbers with a plain border, the same as rows of a table, and rows of none."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    images = np.zeros((60, 8, 7, 2), np.uint8)
    images[:, 1:-1, 1:-1] = rng.integers(0, 256, (60, 6, 5, 2))
    labels = (images[:, 3, 3, 0] > 127).astype(int)
    np.savez(folder / "images.npz", X=images, y=labels)
    np.savez(folder / "new.npz", X=images[:5])
    np.savez(folder / "rows.npz", X=images.reshape(60, -1), y=labels)
    return folder


def train(folder: Path, name: str, *flags: str) -> tuple[int, str]:
    done = called(train_dgp.main, "train_dgp.py", folder, [f"--run_dir={name}", *flags])
    return done.code, done.err


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """A run of four steps."""
    assert train(folder, "whole", *IMAGES, "--num_steps=4", "--num_layers=1") == (0, "")
    return folder / "whole"


def test_own_images_are_predicted(folder: Path, whole: Path) -> None:
    """Of their shape nothing was said; predictions are those of the stored model."""
    assert "--kernel=convolutional\n" in (whole / "flags.txt").read_text()
    flags = ["--run_dir=whole", "--data=new.npz", "--output=predictions.csv"]
    assert called(predict_dgp.main, "predict_dgp.py", folder, flags).code == 0
    table = pd.read_csv(folder / "predictions.csv")
    predictor, images = Predictor.load(whole), np.load(folder / "new.npz")["X"]
    assert predictor.model.layers[0].patches.image_shape == (8, 7, 2)
    expected = predictor.predict(images.reshape(5, -1).astype(float)).mean[:, 0]
    np.testing.assert_allclose(table["probability_1"], expected, rtol=1e-12)


def test_shape_of_a_table_of_pixels(folder: Path, whole: Path) -> None:
    """It has to be told, and then the model is that of the images."""
    rows = ["--data=rows.npz", *IMAGES[1:], "--num_steps=4", "--num_layers=1"]
    code, err = train(folder, "untold", *rows)
    assert code != 0
    message = "kernel=convolutional needs rows that are images, with height x width x channels = 112 columns, got no"
    assert message in err
    assert not (folder / "untold").exists()
    assert train(folder, "told", *rows, "--image_shape=8,7,2") == (0, "")
    same_model(folder / "told", whole)


@pytest.mark.slow
@pytest.mark.ci
def test_two_layers_resume_bit_for_bit(folder: Path) -> None:
    """Two steps and two more are four."""
    assert train(folder, "two", *IMAGES, "--num_steps=4") == (0, "")
    assert train(folder, "parts", *IMAGES, "--num_steps=2") == (0, "")
    assert train(folder, "parts", *IMAGES, "--num_steps=4", "--resume") == (0, "")
    same_model(folder / "parts", folder / "two")
    assert result_of(folder, "two")["models"]["dgp"]["test"] == result_of(folder, "parts")["models"]["dgp"]["test"]


def same_model(a: Path, b: Path) -> None:
    stored = [np.load(folder / "model.npz") for folder in (a, b)]
    assert stored[0].files == stored[1].files
    for name in stored[0].files:
        np.testing.assert_array_equal(stored[0][name], stored[1][name], err_msg=name)
