#!/usr/bin/env python3
"""Does a convolutional GP of digits know better when it does not know than a small CNN trained for equal time?

    train_dgp.py --run_dir=runs/convolutional --dataset=mnist --data_dir=DATA --kernel=convolutional --num_layers=1 \
        --stride=2 --num_inducing=400 --likelihood=softmax --valid_fraction=0 --batch_size=200 --learning_rate=0.02
    images.py --data_dir=DATA --runs=convolutional=runs/convolutional --seconds=700 --threads=1 --output=images.json

The CNN (two convolutions of stride 2, a dense layer of 32 units, a softmax; Adam 0.001, batches of 100) trains on all
60,000 images of MNIST for --seconds of CPU time, and is scored at the end of the epoch in which they are over, and of
the epoch of the lowest log loss on 5,000 images that it is not trained with. Images that are scored:

    test              the test images as they are
    turned 30, 60, 90 the same turned by so many degrees
    blurred           the same, convolved with a Gaussian whose standard deviation is a pixel
    digits            scikit-learn's digits, 8 x 8, made larger to 20 x 20 with a border of 4 pixels
    digits, sharp     the same with grey pushed to black and white: sigmoid(16 (v - 1/2)) in place of values v

Error and expected calibration error in percent, log loss and mean entropy of the probabilities in nats per image, and
the area under the curve (AUC, percent) by which the entropy tells such images from the test images.
"""

import time
from collections.abc import Callable

import bench
import keras
import numpy as np
from absl import flags
from scipy.ndimage import gaussian_filter, rotate, zoom
from scipy.special import expit, log_softmax
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from gpflow_deep import Predictor, float_type
from gpflow_deep_base.numbers.scores import label_scores, log_loss

ANGLES = (30, 60, 90)
NUM_VALID = 5000
BATCH = 100
#: Log probabilities [N, 10] of images [N, 28, 28] in [0, 1].
LogProbabilities = Callable[[np.ndarray], np.ndarray]
#: Images [N, 28, 28] in [0, 1], and labels [N].
Images = tuple[np.ndarray, np.ndarray]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("runs", [], "Runs of train_dgp.py on MNIST, each NAME=FOLDER.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_float("seconds", 300.0, "CPU seconds of training the CNN; 0 leaves it out.", 0.0, flag_values=fv)
    flags.DEFINE_integer("max_rows", 10_000, "Test images at most.", 10, flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Seed of the CNN.", flag_values=fv)
    bench.define_common(fv)


def mnist(data_dir: str | None, max_rows: int) -> tuple[Images, Images]:
    """Training and test images."""
    rows = bench.load("mnist", data_dir, "supervised", valid_fraction=0.0)
    train, test = ((part.X.reshape(-1, 28, 28), part.Y[:, 0].astype(int)) for part in (rows.train, rows.test))
    return train, (test[0][:max_rows], test[1][:max_rows])


def scored_images(test: Images) -> dict[str, Images]:
    """The test images, and images that are unlike those of training."""
    images = {"test": test}
    for angle in ANGLES:
        turned = rotate(test[0], angle, axes=(1, 2), reshape=False, order=1)
        images[f"turned {angle}"] = np.clip(turned, 0.0, 1.0), test[1]
    images["blurred"] = gaussian_filter(test[0], (0.0, 1.0, 1.0)), test[1]
    # Digits of another set, enlarged: as they are, and with sharp edges.
    digits = load_digits()
    larger = np.clip(zoom(digits.images / 16.0, (1, 2.5, 2.5), order=1), 0.0, 1.0)
    kinds = {"digits": larger, "digits, sharp": np.where(larger > 0, expit(16 * (larger - 0.5)), 0.0)}
    return images | {name: (np.pad(X, ((0, 0), (4, 4), (4, 4))), digits.target) for name, X in kinds.items()}


def of_run(folder: str) -> LogProbabilities:
    """Of a model that train_dgp.py trained."""

    def log_probabilities(images: np.ndarray) -> np.ndarray:
        with float_type(Predictor.stored_float(folder)):
            p = Predictor.load(folder).predict(images.reshape(len(images), -1)).mean
        return np.log(np.maximum(p / p.sum(axis=1, keepdims=True), 1e-300))

    return log_probabilities


def cnn(train: Images, seconds: float, seed: int) -> dict[str, tuple[LogProbabilities, float]]:
    """The CNN at its last and at its best epoch, and the CPU seconds until then."""
    keras.utils.set_random_seed(seed)
    order = np.random.default_rng(seed).permutation(len(train[0]))
    (X, Y), (X_valid, Y_valid) = ((train[0][rows], train[1][rows]) for rows in (order[NUM_VALID:], order[:NUM_VALID]))
    # Two convolutions of stride 2 and a dense layer, behind a part that is set aside.
    convolutions = [keras.layers.Conv2D(n, 3, strides=2, activation="relu", padding="same") for n in (16, 32)]
    dense = [keras.layers.Flatten(), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((28, 28, 1)), *convolutions, *dense])
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    # Epochs until the time is spent; the weights of the lowest validation loss are kept.
    spent = 0.0
    best = (np.inf, model.get_weights(), 0.0)
    while spent < seconds:
        start = time.process_time()
        model.fit(X[..., None], Y, batch_size=BATCH, verbose=0)
        spent += time.process_time() - start
        loss = log_loss(log_probabilities_of(model)(X_valid), Y_valid)
        best = min(best, (loss, model.get_weights(), spent), key=lambda epoch: epoch[0])
    stopped = keras.models.clone_model(model)
    stopped.set_weights(best[1])
    return {"CNN": (log_probabilities_of(model), spent), "CNN, best epoch": (log_probabilities_of(stopped), best[2])}


def log_probabilities_of(model: keras.Model) -> LogProbabilities:
    """Of a CNN."""
    return lambda images: log_softmax(model.predict(images[..., None], 1000, verbose=0).astype(np.float64), axis=1)


def scores(log_probabilities: LogProbabilities, images: dict[str, Images]) -> list[bench.Row]:
    """What the module's docstring lists, for each kind of images."""
    rows: list[bench.Row] = []
    usual = np.zeros(0)
    for kind, (X, labels) in images.items():
        log_p = log_probabilities(X)
        # By their entropy images are told from those of the test.
        entropy = -np.sum(np.exp(log_p) * log_p, axis=1)
        usual = usual if rows else entropy
        is_other = np.repeat([0, 1], [len(usual), len(entropy)])
        row = {"images": kind, **label_scores(log_p, labels), "entropy": float(entropy.mean())}
        auc = {"auc": 100 * float(roc_auc_score(is_other, np.concatenate([usual, entropy])))} if rows else {}
        rows.append(row | auc)
    return rows


def main(flag: flags.FlagValues) -> None:
    """Train the CNN, score all models, and print a line for each model and kind of images."""
    # Models that are there, and the CNN that gets as much time.
    train, test = mnist(flag.data_dir, flag.max_rows)
    models: dict[str, tuple[LogProbabilities, float | None]] = {}
    for run in flag.runs:
        name, _, folder = run.partition("=")
        models[name] = (of_run(folder), None)
    models |= cnn(train, flag.seconds, flag.seed) if flag.seconds else {}
    # Each model on images as they are, turned and of other things.
    images = scored_images(test)
    results = list[bench.Row]()
    print(f"{'model':16} {'images':10} {'error':>6} {'ECE':>6} {'nats':>7} {'entropy':>7} {'AUC':>6}")
    for name, (log_probabilities, seconds) in models.items():
        for row in scores(log_probabilities, images):
            cells = f"{row['error']:6.2f} {row['calibration']:6.2f} {row['log_loss']:7.4f} {row['entropy']:7.4f}"
            print(f"{name:16} {row['images']:10} {cells} {row.get('auc', np.nan):6.2f}", flush=True)
            results.append({"model": name, "seconds": seconds, **row})
    bench.keep({"metrics": results}, "MNIST: as gpflow_deep_runs.data.sets checks")


if __name__ == "__main__":
    bench.run(define_flags, main)
