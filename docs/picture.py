#!/usr/bin/env python3
"""The picture of the README: one panel for each system, trained on small data in a few minutes.

docs/picture.py docs/five_systems.png
"""

import argparse
import tempfile

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from matplotlib.axes import Axes
from sklearn.datasets import load_digits

import compression
import darn
import ebp
import experiment.run  # noqa: F401  (keeps TensorFlow quiet)
import gpflow_deep
import rbm_tracking
from experiment.data import views
from experiment.data.batches import Minibatches
from experiment.run import Seeds

SEEDS = Seeds(0)
BLUE, ORANGE, GREY = "#1f5fa8", "#d9772b", "#8a8f98"


def deep_gp(axes: Axes) -> None:
    """A jump, which a single stationary Gaussian process would smooth."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, 60))[:, None]
    y = np.where(x > 0, 1.0, -1.0) + 0.05 * rng.normal(size=x.shape)
    model = gpflow_deep.paper2017(x, y, num_layers=3, num_inducing=25)
    step = gpflow_deep.make_train_step(model, tf.keras.optimizers.Adam(0.02))
    for t in range(1500):
        step((x, y), tf.constant([0, t]))
    grid = np.linspace(-1.2, 1.2, 240)[:, None]
    draws = model.predict_f_samples(grid, 20)[:, :, 0].numpy()
    mean, variance = (moment[:, 0].numpy() for moment in model.predict_y(grid))
    axes.fill_between(grid[:, 0], mean - 2 * variance**0.5, mean + 2 * variance**0.5, color=BLUE, alpha=0.15, lw=0)
    axes.plot(grid, draws.T, color=BLUE, lw=0.5, alpha=0.5)
    axes.plot(x, y, ".", color="black", ms=3)
    axes.set(title="gpflow_deep\nfunctions drawn from a deep GP", xlabel="x", ylabel="y", ylim=(-2, 2))


def samples(axes: Axes) -> None:
    """Exact samples of a deep autoregressive network."""
    X = views.load(views.Source(dataset="digits"), "binary").train.X
    config = darn.DARNConfig(64, hidden=(30,), units=(60,), visible_conditional="linear")
    model = darn.DARN(config, seed=SEEDS("darn"), data=X)
    training = darn.TrainingConfig(optimizer="adam", learning_rate=2e-3, weight_decay=0.02)
    trainer, batches = darn.Trainer(model, training, num_data=len(X)), Minibatches(len(X), 100, SEEDS)
    for first in range(0, 2500, 100):
        trainer.advance(X, batches(first, 100), SEEDS("darn/train"))
    drawn = model.sample(42, SEEDS("darn/sample")).x.numpy().reshape(6, 7, 8, 8)
    padded = np.pad(drawn, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=0.0)
    axes.imshow(padded.transpose(0, 2, 1, 3).reshape(60, 70), cmap="gray_r", interpolation="nearest")
    axes.set(title="darn\nexact samples of digits", xticks=[], yticks=[])


def log_z(axes: Axes) -> None:
    """log Z while it is tracked, and exactly."""
    X = views.load(views.Source(dataset="digits"), "binary").train.X
    start = rbm_tracking.initial_state(
        rbm_tracking.initial_rbm(16, seed=SEEDS("rbm"), data=X),
        rbm_tracking.linear_ladder(10),
        20,
        seed=SEEDS("rbm/chains"),
        data=X,
    )
    config = rbm_tracking.SMLConfig(learning_rate=0.02, adaptive=True)
    trainer, batches = rbm_tracking.Trainer(start, config), Minibatches(len(X), 100, SEEDS)
    steps, tracked, exact = [], [], []
    for first in range(0, 3000, 100):
        trainer.advance(X, batches(first, 100), SEEDS("rbm/train"))
        saved = trainer.saved()
        steps.append(first + 100)
        tracked.append((saved.log_z, saved.log_z_std))
        exact.append(float(rbm_tracking.log_z_exact(saved.rbm)))
    mean, std = np.array(tracked, float).T
    axes.fill_between(steps, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.25, lw=0)
    axes.plot(steps, mean, color=BLUE, lw=1, label="tracked")
    axes.plot(steps[::3], exact[::3], "o", color=ORANGE, ms=3, label="exact")
    axes.set(title="rbm_tracking\nlog Z at every update", xlabel="updates", ylabel="nats")
    axes.legend(frameon=False)


def errors(axes: Axes) -> None:
    """A network of binary weights, without a learning rate."""
    X, labels = load_digits(return_X_y=True)
    Y, _ = ebp.encode_labels(labels)
    X, order = (X - 8).astype(np.float32), np.random.default_rng(0).permutation(len(X))
    X, Y = X[order], Y[order]
    network = ebp.EBPNetwork((64, 120, 10), "binary", head="multiclass", seed=0)
    data, found = ebp.prepare(network, X[:1400], Y[:1400]), []
    for epoch in range(12):
        ebp.fit_epoch(network, data, batch_size=1, epoch=epoch)
        found.append(ebp.errors_percent(network, X[1400:], Y[1400:]))
    for key, label, color in (("P", "mean over the posterior", BLUE), ("D", "most probable weights", ORANGE)):
        axes.plot(range(1, 13), [one[key] for one in found], "o-", color=color, ms=3, lw=1, label=label)
    axes.set(title="ebp\nbinary weights, no learning rate", xlabel="passes", ylabel="test error, %", ylim=(0, None))
    axes.legend(frameon=False)


def sizes(axes: Axes) -> None:
    """Bytes of a network before and after."""
    X, labels = load_digits(return_X_y=True)
    X = X / 8.0 - 1.0
    parts = {"train": (X[:1200], labels[:1200]), "valid": (X[1200:1400], labels[1200:1400])}
    parts["test"] = (X[1400:], labels[1400:])
    layers = [keras.layers.Dense(100, "relu"), keras.layers.Dense(50, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input([64]), *layers])
    config = compression.RecipeConfig(
        pretrain_epochs=10,
        epochs=30,
        warmup=5,
        kl_weight=0.5,
        polish_epochs=5,
        shrink_every=10,
        learning_rate=3e-3,
        scale_speed=16,
        initial_log_std=-4,
    )
    recipe = compression.Recipe(config, model, parts, batch_size=50)
    recipe.fit()
    with tempfile.TemporaryDirectory() as folder:
        packed = recipe.pack(compression.PackConfig(tolerance=0.5), folder)
    bars = {"float32": (4 * packed.original.parameters, None)}
    for key, label in (("shrunk", "fewer units"), ("search", "fewer bits"), ("book 16", "16 values, coded")):
        bars[label] = (packed.networks[key].bytes, packed.networks[key].test_percent)
    axes.barh(list(bars)[::-1], [size for size, _ in bars.values()][::-1], color=[BLUE, BLUE, BLUE, GREY])
    for place, (size, error) in enumerate(reversed(bars.values())):
        text = f" {size:,} B" + ("" if error is None else f", {error:.1f} %")
        axes.text(size, place, text, va="center")
    axes.set(xscale="log", xlim=(100, 1e7), xlabel="bytes, and test error")
    axes.set(title="compression\nthe same network in fewer bytes")


PANELS = (deep_gp, samples, log_z, errors, sizes)


def main() -> None:
    """Train, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--panels", default=",".join(panel.__name__ for panel in PANELS))
    given = parser.parse_args()
    plt.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    chosen = [panel for panel in PANELS if panel.__name__ in given.panels.split(",")]
    figure, every = plt.subplots(1, len(chosen), figsize=(2.6 * len(chosen), 2.6), layout="constrained", squeeze=False)
    for axes, panel in zip(every[0], chosen, strict=True):
        panel(axes)
    figure.savefig(given.file, dpi=150)


if __name__ == "__main__":
    main()
