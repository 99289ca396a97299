#!/usr/bin/env python3
"""Does a GP head on a small CNN know better when it is wrong than the CNN itself, and than simple rivals?

    keras_gp_head.py --data_dir=DATA --datasets=digits,mnist --seeds=0,1,2 --threads=1 --output=keras_gp_head.json

Each seed divides the training images anew into --max_train at most to train with and a fifth of that number to validate
with, and starts other networks. The models, whose number of epochs is that of the lowest validation log loss:

    CNN               two convolutions, a dense layer of 32 units, a softmax
    temperature       the same, its logits divided by the temperature that is best on the validation images
    dropout           the CNN with dropout before its last layer, averaged over 50 draws; the better one of two rates
    GP, features      a GPLayer of 10 outputs on the 32 features of the trained CNN, which stay as they are
    GP, all           the same, and then both are trained together

Scores of the test images, as they are and turned by 30 and 60 degrees: error and expected calibration error in percent,
log loss in nats per image. Seconds are CPU time of training, "GP" without that of the CNN before.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import bench
import keras
import numpy as np
from absl import flags
from gpflow.likelihoods import Softmax
from scipy.ndimage import rotate
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from gpflow_deep.keras import DeepGPLikelihoodLoss, GPLayer, Predictor, adapt
from gpflow_deep_base.numbers.scores import label_scores, log_loss

ANGLES = (0, 30, 60)
RATES = (0.2, 0.5)
NUM_FEATURES = 32
NUM_CLASSES = 10
NUM_DRAWS = 50
NUM_INDUCING = 50
MODELS = ("CNN", "temperature", "dropout", "GP, features", "GP, all")
#: Log probabilities [N, C] of images [N, H, W, 1].
LogProbabilities = Callable[[np.ndarray], np.ndarray]


class Data(NamedTuple):
    """Images [N, H, W, 1] and labels [N]."""

    train: tuple[np.ndarray, np.ndarray]
    valid: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("datasets", ["digits", "mnist"], "Data sets of grey images with ten labels.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_list("seeds", ["0", "1", "2", "3", "4"], "Seeds of divisions, networks and batches.", flag_values=fv)
    flags.DEFINE_integer("max_train", 5000, "Training images at most.", 100, flag_values=fv)
    flags.DEFINE_integer(
        "epochs", 30, "Epochs for less than 2,000 training images; for more a third.", 3, flag_values=fv
    )
    bench.define_common(fv)


def divided(dataset: str, data_dir: str | None, max_train: int, seed: int) -> Data:
    """The images, with new training and validation parts for each seed."""
    rows = bench.load(dataset, data_dir, "images", num_valid=0)
    X = rows.train.X
    Y = rows.train.Y[:, 0]
    # As many to train with as asked for, and a fifth of that number to validate.
    order = np.random.default_rng(seed).permutation(len(X))
    count = min(max_train, len(X) * 5 // 6)
    train = order[:count]
    valid = order[count : count + count // 5]
    return Data((X[train], Y[train]), (X[valid], Y[valid]), (rows.test.X, rows.test.Y[:, 0]))


def body(shape: tuple[int, ...]) -> keras.Sequential:
    """Images -> 32 features."""
    stride = 2 if shape[0] > 8 else 1
    convolutions = [keras.layers.Conv2D(n, 3, strides=stride, activation="relu", padding="same") for n in (16, 32)]
    last = keras.layers.Dense(NUM_FEATURES, activation="relu")
    return keras.Sequential([keras.Input(shape), *convolutions, keras.layers.Flatten(), last])


def fit(model: keras.Model, loss: keras.Loss, data: Data, epochs: int, learning_rate: float) -> float:
    """Train to the epoch of the lowest validation log loss; CPU seconds."""
    start = time.process_time()
    # The weights of the best epoch for the validation images stay.
    model.compile(keras.optimizers.Adam(learning_rate), loss)
    stop = keras.callbacks.EarlyStopping("val_loss", patience=max(3, epochs // 5), restore_best_weights=True)
    options = {"batch_size": 100, "epochs": epochs, "callbacks": [stop], "verbose": 0}
    model.fit(*data.train, validation_data=data.valid, validation_batch_size=1000, **options)
    return time.process_time() - start


def cnn(data: Data, epochs: int, rate: float = 0.0) -> tuple[keras.Sequential, keras.Sequential, float]:
    """Features, the layers behind them, and CPU seconds of training."""
    features = body(data.train[0].shape[1:])
    head = keras.Sequential([keras.Input((NUM_FEATURES,)), keras.layers.Dropout(rate), keras.layers.Dense(NUM_CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return features, head, fit(keras.Sequential([features, head]), loss, data, epochs, 1e-3)


def logits_of(features: keras.Sequential, head: keras.Sequential) -> LogProbabilities:
    """Of the CNN as it is, float64."""
    return lambda X: head.predict(features.predict(X, 1000, verbose=0), 1000, verbose=0).astype(np.float64)


def temperature(logits: LogProbabilities, data: Data) -> float:
    """The one of the lowest log loss on the validation images (Guo et al., 2017)."""
    # One number, by its logarithm, between about 0.6 and 1.6 to begin with.
    valid_logits = logits(data.valid[0])
    scaled = minimize_scalar(
        lambda t: log_loss(log_softmax(valid_logits * np.exp(-t), axis=1), data.valid[1]), (-0.5, 0.5)
    )
    return float(np.exp(scaled.x))


def dropped_out(features: keras.Sequential, head: keras.Sequential) -> LogProbabilities:
    """Averages of probabilities over draws of the dropped features."""

    def log_probabilities(X: np.ndarray) -> np.ndarray:
        inputs = features.predict(X, 1000, verbose=0)
        draws = [log_softmax(np.asarray(head(inputs, training=True), np.float64), axis=1) for _ in range(NUM_DRAWS)]
        return logsumexp(draws, axis=0) - np.log(NUM_DRAWS)

    return log_probabilities


def gp_heads(features: keras.Sequential, data: Data, epochs: int) -> list[tuple[LogProbabilities, float]]:
    """A GP on the features of a trained CNN, as they are and trained on with it; and CPU seconds of training."""
    likelihood = Softmax(NUM_CLASSES)
    likelihood.num_monte_carlo_points = 30  # of each row and step; predictions have the default of 100
    loss = DeepGPLikelihoodLoss(likelihood)
    # A GP on the features as they are.
    parts = Data(*((features.predict(X, 1000, verbose=0), Y) for X, Y in data))
    model = keras.Sequential([keras.Input((NUM_FEATURES,)), gp_layer(data)])
    adapt(model, parts.train[0])
    seconds = fit(model, loss, parts, 2 * epochs, 0.02)
    fixed = Predictor(model, Softmax(NUM_CLASSES))
    # The features and the GP trained together, from what both have learnt alone.
    copy = keras.models.clone_model(features)
    copy.set_weights(features.get_weights())
    joint_model = keras.Sequential([keras.Input(data.train[0].shape[1:]), copy, gp_layer(data)])
    joint_model.layers[-1].set_weights(model.layers[-1].get_weights())
    more = fit(joint_model, loss, data, epochs, 1e-3)
    joint = Predictor(joint_model, Softmax(NUM_CLASSES))
    return [
        (lambda X: np.log(fixed.predict(features.predict(X, 1000, verbose=0)).mean), seconds),
        (lambda X: np.log(joint.predict(X).mean), seconds + more),
    ]


def gp_layer(data: Data) -> GPLayer:
    """One Gaussian process for each label."""
    return GPLayer(NUM_CLASSES, num_data=len(data.train[0]), num_inducing=NUM_INDUCING)


def trained(data: Data, epochs: int) -> dict[str, tuple[LogProbabilities, float, float | None]]:
    """Of each model its predictions, CPU seconds of training, and what was chosen by the validation images."""
    features, head, seconds = cnn(data, epochs)
    logits = logits_of(features, head)
    scale = temperature(logits, data)
    # The rate of dropout with the lowest validation loss.
    rivals = [(rate, *cnn(data, epochs, rate)) for rate in RATES]
    choices = [
        (log_loss(dropped_out(*parts)(data.valid[0]), data.valid[1]), i) for i, (_, *parts, _) in enumerate(rivals)
    ]
    rate, *parts, _ = rivals[min(choices)[1]]
    return {
        "CNN": (lambda X: log_softmax(logits(X), axis=1), seconds, None),
        "temperature": (lambda X: log_softmax(logits(X) / scale, axis=1), seconds, scale),
        "dropout": (dropped_out(*parts), sum(rival[-1] for rival in rivals), rate),
        **{name: (*head, None) for name, head in zip(MODELS[3:], gp_heads(features, data, epochs), strict=True)},
    }


def scores(log_probabilities: LogProbabilities, test: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Error and calibration error in percent, log loss in nats, for each angle."""
    by_angle: dict[str, float] = {}
    for angle in ANGLES:
        X = (
            rotate(test[0], angle, axes=(1, 2), reshape=False, order=1, mode="constant", cval=-1.0)
            if angle
            else test[0]
        )
        by_angle |= {f"{name}_{angle}": score for name, score in label_scores(log_probabilities(X), test[1]).items()}
    return by_angle


def main(flag: flags.FlagValues) -> None:
    """Train, print a line for each model, and write them after each seed."""
    results: list[bench.Row] = []
    print(f"{'data set':8} {'seed':>4} {'model':12} " + " ".join(f"{f'err ECE nats at {a}°':>20}" for a in ANGLES))
    for dataset in flag.datasets:
        for seed in map(int, flag.seeds):
            # Other divisions and other networks for each seed.
            keras.utils.set_random_seed(seed)
            data = divided(dataset, flag.data_dir, flag.max_train, seed)
            epochs = flag.epochs if len(data.train[0]) < 2000 else flag.epochs // 3
            for model, (log_probabilities, seconds, chosen) in trained(data, epochs).items():
                # Scores at each angle, beside what the training took.
                metrics = scores(log_probabilities, data.test)
                cells = [
                    f"{metrics[f'error_{a}']:6.2f} {metrics[f'calibration_{a}']:6.2f} {metrics[f'log_loss_{a}']:6.4f}"
                    for a in ANGLES
                ]
                print(f"{dataset:8} {seed:4} {model:12} {' '.join(cells)}  {seconds:.0f} s, {chosen}", flush=True)
                results.append(
                    {"dataset": dataset, "seed": seed, "model": model, **metrics, "seconds": seconds, "chosen": chosen}
                )
            bench.keep({"metrics": results}, bench.KNOWN_DATA)


if __name__ == "__main__":
    bench.run(define_flags, main)
