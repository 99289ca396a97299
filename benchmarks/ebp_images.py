#!/usr/bin/env python3
"""What does a small binary network of convolutions reach on MNIST in a few passes, and in how many bytes?

    ebp_images.py --data_dir=DATA --run_dir=runs/lenet --filters=32,64 --shift=1 --epochs=5

Two layers of 5 x 5 filters, each pooled 2 x 2 by means of signs, then ten signs, trained by expectation
backpropagation in batches of 10. Nothing is chosen by test errors, which are printed after each pass in percent: P, the
mean over the posterior; D, the most probable weights; and the vote of networks drawn from the posterior, which go into
a file whose answers are compared with the float networks' on all test images. --shift moves each image by up to so many
pixels in each pass. A pass that is done is in the folder, so that the same command goes on after an interruption.
"""

import time
from pathlib import Path

import bench
import numpy as np
import tensorflow as tf
from absl import flags
from numpy.typing import NDArray

import ebp
from ebp.estimators.estimators import probability_scores


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with MNIST.", flag_values=fv)
    flags.DEFINE_string("run_dir", None, "Folder of checkpoints and of net.ebp.", flag_values=fv)
    flags.DEFINE_list("filters", ["16", "32"], "Filters of the two layers; none for --hidden alone.", flag_values=fv)
    flags.DEFINE_list("hidden", [], "Widths of hidden layers behind them.", flag_values=fv)
    flags.DEFINE_string("weights", "binary", "binary or real.", flag_values=fv)
    flags.DEFINE_integer("shift", 0, "Pixels by which images are moved.", 0, flag_values=fv)
    flags.DEFINE_float("dropout", 0.0, "Part of the inputs that each row lacks in a pass.", 0.0, 0.9, flag_values=fv)
    flags.DEFINE_integer("epochs", 5, "Passes.", 1, flag_values=fv)
    flags.DEFINE_integer("votes", 5, "Networks in the file; 0: that of the most probable weights.", 0, flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Seed.", 0, flag_values=fv)
    flags.DEFINE_integer("max_rows", 60_000, "Training images.", 10, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write the passes' numbers to this file, a JSON line each.")


def shifted(X: NDArray[np.uint8], pixels: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Images [N, 784], each moved by a whole number of pixels, from -pixels to pixels, in each direction."""
    if pixels == 0:
        return X
    # A window into the image with a border, at another place for each image.
    padded = np.pad(X.reshape(-1, 28, 28), ((0, 0), (pixels, pixels), (pixels, pixels)))
    corners = rng.integers(0, 2 * pixels + 1, (len(X), 2))
    rows, columns = (corners[:, axis, None] + np.arange(28) for axis in (0, 1))
    return padded[np.arange(len(X))[:, None, None], rows[:, :, None], columns[:, None, :]].reshape(len(X), -1)


def learn(
    network: ebp.EBPNetwork, coding: ebp.InputCoding, X: NDArray[np.uint8], Y: NDArray[np.float64], epoch: int
) -> float:
    """One pass; mean log P(y) of each image before it was learned, in nats."""
    options = flags.FLAGS
    rng = np.random.default_rng([options.seed, epoch])
    inputs = coding.transform(shifted(X, options.shift, rng))
    if options.dropout:
        inputs *= (rng.random(inputs.shape, np.float32) >= options.dropout) / np.float32(1.0 - options.dropout)
    return ebp.fit_epoch(network, inputs, Y, batch_size=10, seed=options.seed, epoch=epoch).log_evidence


def tested(network: ebp.EBPNetwork, X: NDArray[np.float32], Y: NDArray[np.float64]) -> dict[str, float]:
    """Errors and calibration error of test rows in percent, log loss in nats."""
    loss, calibration = probability_scores(network, X, Y)
    return {**ebp.errors_percent(network, X, Y), "log_loss": loss, "calibration_error": calibration}


def main(options: flags.FlagValues) -> None:
    folder = Path(options.run_dir)
    data = bench.load("mnist", options.data_dir, "supervised", split=None)
    X = np.rint(255.0 * data.parts["all"].X).astype(np.uint8)
    labels = data.parts["all"].Y[:, 0].astype(int)
    train, test = data.folds(2)[0]
    train = train[: options.max_rows]
    # Inputs in one scale for all pixels, outputs as signs.
    coding = ebp.InputCoding.fit("common", X[train])
    codes = 2.0 * (labels[:, None] == np.arange(10)) - 1.0
    Y = codes[train]
    Y_test = codes[test]
    X_test = coding.transform(X[test])
    # Convolutions, then hidden layers, then ten signs.
    filters = [ebp.Convolution(int(number)) for number in options.filters]
    layers = [(28, 28, 1) if filters else 784, *filters, *map(int, options.hidden), 10]
    network = ebp.EBPNetwork(layers, options.weights, head="multiclass", seed=options.seed)
    done = tf.Variable(0, dtype=tf.int64)
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(network=network, done=done), str(folder / "checkpoints"), 1
    )
    manager.restore_or_initialize()
    # Numbers of the passes that are done stay; a pass that was not saved is made and written again.
    lines = [line for line in bench.kept_lines() if line["pass"] <= int(done)]
    for epoch in range(int(done), options.epochs):
        start = time.process_time()
        evidence = learn(network, coding, X[train], Y, epoch)
        seconds = time.process_time() - start
        lines.append({"pass": epoch + 1, "cpu_s": seconds, "log_evidence": evidence, **tested(network, X_test, Y_test)})
        print("  ".join(f"{name} {value:.4g}" for name, value in lines[-1].items()), flush=True)
        bench.keep_lines(lines)
        done.assign_add(1)
        manager.save()
    # A file of bits, whose answers have to be those of the network.
    if options.weights == "binary":
        path = folder / "net.ebp"
        exported = ebp.export_checked(
            network, path, X_test, coding=coding, classes=np.arange(10), num_votes=options.votes
        )
        wrong = np.mean(ebp.PackedNetwork.load(path).predict(X[test]) != labels[test])
        print(f"{exported.summary}; {options.votes} votes, test error {100.0 * wrong:.2f} %")


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir", "run_dir"])
