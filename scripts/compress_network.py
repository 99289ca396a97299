#!/usr/bin/env python3
"""Train a network by Bayesian compression, remove its superfluous units, and write it in as few bytes as it needs.

    compress_network.py --run_dir=runs/first
    compress_network.py --run_dir=runs/300 --network=lenet300 --dataset=mnist --data_dir=DATA --shift=1 \\
        --pretrain_epochs=12 --epochs=12 --warmup=1 --kl_weight=0.2 --polish_epochs=6 --polish_kl=0.1 \\
        --shrink_every=2 --learning_rate=5e-4 --scale_speed=16 --initial_log_std=-4 --decay_from=0.3
    compress_network.py --run_dir=runs/caffe --network=lenet5 --prior=gnj --dataset=mnist --data_dir=DATA --shift=1 \\
        --pretrain_epochs=5 --epochs=30 --warmup=1 --polish_epochs=24 --polish_kl=0.05 --shrink_every=1 \\
        --learning_rate=1e-3 --decay_from=0.55 --scale_speed=12 --initial_log_std=-4 --tune_steps=1000 --tolerance=0.05
    compress_network.py --run_dir=runs/own --network=own --pretrained=mine.keras --dataset=mnist --data_dir=DATA
    compress_network.py --run_dir=runs/first --resume

VGG on CIFAR-10 needs a GPU. By its operations, 0.5 TFLOP for a batch of 128, 50 PFLOP in all, this takes about 3 hours
at 5 TFLOP/s (not measured):

    compress_network.py --run_dir=runs/vgg --network=vgg --dataset=cifar10 --data_dir=DATA --pretrain_epochs=100 \\
        --epochs=200 --warmup=20 --shrink_every=20

With several GPUs add --strategy=mirrored: each takes its part of every batch, and the results are those of one, up to
rounding, unless an own network has dropout: its noise repeats on each GPU.

Training goes in up to three phases: the plain network (--pretrain_epochs); the Bayesian one with the KL of the weight
--kl_weight, which decides about the architecture and from which pruned units may be removed on the way; and the units
that are left with a smaller weight of the KL (--polish_epochs). The paper has the second only, with a weight of 1.

Thresholds, bits and codebooks are chosen on images set aside from the training part; the test part is looked at once,
at the end, for each network that is reported: the masked Bayesian one, the shrunk plain one, its rounded versions, and
what comes back from the files. Ctrl-C finishes the running epoch and saves; --resume goes on to the same bits.

The folder of the run gets:

    result.json   errors, architecture, bits, the three rates as the paper counts them, sizes of files
    row.md        the same as a row of a Markdown table
    files/        shrunk.bcz (float32), fixed.bcz (fixed point), book_K.bcz (codebooks of K centres), entropy-coded
    plots/        thresholds, bits of the weights, the mask of inputs
    scalars.jsonl, tensorboard/, checkpoints/
"""

import importlib.util
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

if importlib.util.find_spec("compression") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import compression
from compression import bits, export
from compression.codebook import codebook, fine_tune
from compression.container import Kernel, kernels_of, load_bcz, save_bcz, with_kernels
from compression.networks import NETWORKS
from compression.rates import file_rate, paper_rates
from experiment import checkpoints, distribution, run_dir
from experiment.data.sets.images import Images, load_images, read_images, shifted
from experiment.flags import apply_threads, define_common_flags, flags_text
from experiment.loop import Interrupted, train
from experiment.report import plots
from experiment.scalars import ScalarWriter
from experiment.scale import define_strategy_flags, strategy_from_flags
from experiment.script import run_script
from experiment.seeds import named_seed

FLAGS = flags.FLAGS
define_common_flags()
define_strategy_flags()
for unused in ("target", "task", "num_steps", "split", "log_every", "checkpoint_every", "float32"):
    delattr(FLAGS, unused)
FLAGS.set_default("batch_size", 128)
FLAGS.set_default("eval_every", 1)
networks = ["auto", *NETWORKS, "own"]
flags.DEFINE_enum("network", "auto", networks, "What to compress; auto: small, lenet300 or vgg, by the data.")
flags.DEFINE_string("pretrained", None, "A .keras file: the network itself (own), or weights to begin with.")
flags.DEFINE_integer("pretrain_epochs", 0, "First train the plain network for so many epochs.", 0)
flags.DEFINE_integer("shift", 0, "Move each training image by up to so many pixels, another way in each epoch.", 0)
flags.DEFINE_float("pretrain_learning_rate", 1e-3, "Learning rate of that.", 0.0)
flags.DEFINE_enum("prior", "gnj", ["gnj", "ghs", "svd"], "Group normal-Jeffreys, group horseshoe, sparse VD.")
flags.DEFINE_enum("kl", "approximate", ["approximate", "exact"], "KL of the normal-Jeffreys scales: Eq. 9, or exact.")
flags.DEFINE_integer("epochs", 60, "Passes over the training images with the Bayesian network.", 1)
flags.DEFINE_float("kl_weight", 1.0, "Weight of the KL after the warm-up; 1 is the variational bound.", 0.0)
flags.DEFINE_float("warmup", 10, "Epochs over which the weight of the KL grows from 0 to --kl_weight.", 0.0)
flags.DEFINE_float("learning_rate", 1e-3, "Learning rate of Adam.", 0.0)
flags.DEFINE_enum("decay", "cosine", ["none", "linear", "cosine"], "How the learning rate falls to 0 in the end.")
flags.DEFINE_float("decay_from", 0.5, "Part of the epochs after which it begins to fall.", 0.0, 1.0)
flags.DEFINE_float("scale_speed", 4.0, "Learning rate of the scales over that of the weights.", 0.0)
flags.DEFINE_float("initial_log_std", -9.0, "Log standard deviation of weights and scales at first; the paper: -9.")
flags.DEFINE_integer("polish_epochs", 0, "After --epochs, train what is left with a KL of the weight --polish_kl.", 0)
flags.DEFINE_float("polish_kl", 0.1, "Weight of the KL in the last --polish_epochs.", 0.0)
flags.DEFINE_float("std_cap", None, "Largest standard deviation of the first layer's weights; unset: none.", 0.0)
flags.DEFINE_list("threshold", ["auto"], "auto, or a number, or one for each layer: scores above it are pruned.")
flags.DEFINE_float("prune_tolerance", 0.3, "Percent of error on images set aside that automatic ones may add.", 0.0)
flags.DEFINE_integer("shrink_every", 0, "Remove pruned units every so many epochs during training; 0: never.", 0)
flags.DEFINE_integer("valid", 5000, "Training images set aside; a tenth of them if there are few.", 1)
flags.DEFINE_enum("bits", "search", ["rule", "search"], "Also search for fewer bits than the rule's on them.")
flags.DEFINE_float("tolerance", 0.1, "Percent of error on them that the search for bits may add.", 0.0)
flags.DEFINE_list("codebooks", ["32", "16"], "Sizes of codebooks to write files with.")
flags.DEFINE_integer("tune_steps", 0, "Minibatches to fine-tune the centres of codebooks on.", 0)
flags.DEFINE_integer("vgg_divisor", 1, "Divide the numbers of maps of vgg by this.", 1)
flags.DEFINE_integer("max_images", None, "Use only the first training and test images.", 1)
flags.DEFINE_string("export_dir", None, "Also write a SavedModel, TensorFlow Lite files and NumPy arrays here.")

CHECKPOINT_SECONDS = 30.0
SHRINK_BELOW = 0.9  # part of the weights that has to be left for the network to be made anew
EVAL_ROWS = 1000
SHAPED = (keras.layers.Dense, keras.layers.Conv2D)
NETWORK_OF = {"digits": "small", "mnist": "lenet300", "cifar10": "vgg", "cifar10_jpeg": "vgg"}

#: Test error in percent, and the three rates of Table 2.
PUBLISHED = {
    ("lenet300", "gnj"): (1.8, 9, 36, 58),
    ("lenet300", "ghs"): (1.8, 9, 23, 59),
    ("lenet300", "svd"): (1.8, 21, 84, 113),
    ("lenet5", "gnj"): (1.0, 108, 361, 573),
    ("lenet5", "ghs"): (1.0, 156, 419, 771),
    ("lenet5", "svd"): (1.0, 63, 228, 365),
    ("vgg", "gnj"): (8.6, 14, 56, 95),
    ("vgg", "ghs"): (9.0, 18, 59, 116),
}


class Part(NamedTuple):
    """Images [n, ...] in [-1, 1] and labels [n]."""

    X: tf.Tensor
    labels: tf.Tensor


class Parts(NamedTuple):
    train: Part
    valid: Part
    test: Part


def load_parts(images: Images) -> Parts:
    """Scale the images and set some of those for training aside."""
    limit = FLAGS.max_images
    num_images = len(images.X) if limit is None else min(limit, len(images.X))
    rows, valid_rows = images.split(min(FLAGS.valid, len(images.X) // 10))
    if limit is not None:
        rows, valid_rows = rows[rows < num_images], valid_rows[valid_rows < num_images]
    if len(rows) < FLAGS.batch_size:
        raise ValueError(f"--batch_size={FLAGS.batch_size} is more than the {len(rows)} training images; lower it.")

    def part(X: np.ndarray, labels: np.ndarray) -> Part:
        return Part(tf.constant(images.scaled(X)), tf.constant(labels, tf.int32))

    return Parts(
        part(images.X[rows], images.labels[rows]),
        part(images.X[valid_rows], images.labels[valid_rows]),
        part(images.X_test[:limit], images.labels_test[:limit]),
    )


def new_network(images: Images) -> tuple[str, keras.Model]:
    """The plain network to begin with, and its name."""
    name = FLAGS.network
    if name == "auto":
        name = NETWORK_OF.get(images.name, "lenet300")
    if name == "own" and FLAGS.pretrained is None:
        raise ValueError("--network=own needs the file of the network, --pretrained=FILE.keras.")
    loaded = [load_keras(FLAGS.pretrained)] if FLAGS.pretrained is not None else []
    if name == "own":
        (model,) = loaded
    else:
        options = {"divisor": FLAGS.vgg_divisor} if name == "vgg" else {}
        seed = int(named_seed(FLAGS.seed, "init")[0]) % 100_000
        model = NETWORKS[name](images.X.shape[1:], len(images.class_names), seed=seed, **options)
        for other in loaded:
            shapes = [[tuple(w.shape) for w in network.weights] for network in (model, other)]
            if shapes[0] != shapes[1]:
                raise ValueError(f"the weights in {FLAGS.pretrained} must have shapes {shapes[0]}, got {shapes[1]}.")
            model.set_weights(other.get_weights())
    wanted = (tuple(model.inputs[0].shape[1:]), model.outputs[0].shape[-1])
    if wanted != (images.X.shape[1:], len(images.class_names)):
        raise ValueError(
            f"the network takes inputs {wanted[0]} and has {wanted[1]} outputs, but {images.name} has images "
            f"{images.X.shape[1:]} and {len(images.class_names)} classes."
        )
    return name, model


def load_keras(path: str) -> keras.Model:
    if not Path(path).is_file():
        raise ValueError(f"--pretrained must be a .keras file, but there is none at {path}.")
    return keras.models.load_model(path)


def has_probabilities(model: keras.Model) -> bool:
    """Whether the network ends in a softmax, and not in logits."""
    activation = getattr(model.layers[-1], "activation", None)
    return isinstance(model.layers[-1], keras.layers.Softmax) or activation is keras.activations.softmax


def nll_of(outputs: tf.Tensor, labels: tf.Tensor, probabilities: bool) -> tf.Tensor:
    """Mean negative log-likelihood of the labels, in nats."""
    return tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=not probabilities))


def error_percent(model: keras.Model, part: Part) -> float:
    """Part of the images for which the largest output is not that of the label."""
    wrong = 0
    for start in range(0, len(part.X), EVAL_ROWS):
        labels = part.labels[start : start + EVAL_ROWS]
        outputs = model(part.X[start : start + EVAL_ROWS], training=False)
        wrong += int(tf.math.count_nonzero(tf.argmax(outputs, axis=-1, output_type=tf.int32) != labels))
    return 100.0 * wrong / len(part.X)


class Values(tf.Module):
    """The values of Keras variables, for checkpoints."""

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        super().__init__()
        self.values = [variable.value for variable in variables]


class Run:
    """The network, its optimizer, and what a step, an epoch, does with them."""

    def __init__(self, images: Images, run: run_dir.RunDir, strategy: tf.distribute.Strategy | None = None) -> None:
        self.images, self.run, self.strategy = images, run, strategy
        self.parts = load_parts(images)
        self.num_train = len(self.parts.train.X)
        with distribution.scope(strategy):
            self.network_name, self.model = new_network(images)
            self.optimizer = self._new_optimizer()
        self.probabilities = has_probabilities(self.model)
        self.original_weights = sum(kernel.size for kernel in kernels_of(self.model))
        self.original_parameters = self.model.count_params()
        self.pretrain_epochs = 0 if FLAGS.pretrained and not FLAGS.pretrain_epochs else FLAGS.pretrain_epochs
        self.num_epochs = self.pretrain_epochs + FLAGS.epochs + FLAGS.polish_epochs
        self.steps_per_epoch = self.num_train // FLAGS.batch_size
        self.step = tf.Variable(0, dtype=tf.int64)
        self.seconds = tf.Variable(0.0, dtype=tf.float64)
        self._epoch_function: Any = None
        self._last_save = time.monotonic()

    @property
    def is_bayesian(self) -> bool:
        return bool(compression.bayesian_layers(self.model))

    # Checkpoints. The shapes change when the network shrinks, so its configuration is kept for each of them.

    def restore(self) -> int | None:
        """Go back to the newest checkpoint."""
        shapes = sorted(self.run.checkpoint_dir.glob("network-*.json"), reverse=True)
        problem: ValueError | None = None
        for path in [*shapes, None]:
            with distribution.scope(self.strategy):
                if path is not None:
                    self._replace(keras.models.model_from_json(path.read_text(encoding="utf-8")))
                else:
                    self._replace(new_network(self.images)[1])
            try:
                restored = checkpoints.restore(self.run.checkpoint_dir, **self._stateful())
            except ValueError as error:
                problem = error
                continue
            return restored
        raise problem or ValueError(f"there is no usable checkpoint in {self.run.checkpoint_dir}.")

    def save(self) -> None:
        checkpoints.save(self.run.checkpoint_dir, self.step, **self._stateful())
        self._last_save = time.monotonic()

    def save_now_and_then(self) -> None:
        if time.monotonic() - self._last_save > CHECKPOINT_SECONDS:
            self.save()

    def _stateful(self) -> dict[str, Any]:
        model, optimizer = Values(self.model.variables), Values(self.optimizer.variables)
        return {"model": model, "optimizer": optimizer, "step": self.step, "seconds": self.seconds}

    def _replace(self, model: keras.Model, optimizer: keras.optimizers.Optimizer | None = None) -> None:
        self.model, self._epoch_function = model, None
        self.optimizer = self._new_optimizer() if optimizer is None else optimizer

    def _keep_shapes(self, epoch: int) -> None:
        run_dir.write_text(self.run.checkpoint_dir / f"network-{epoch:06d}.json", self.model.to_json())

    def _new_optimizer(self) -> keras.optimizers.Optimizer:
        optimizer = keras.optimizers.Adam(FLAGS.learning_rate)
        optimizer.build(self.model.trainable_variables)
        return optimizer

    # Training

    def train_step(self, epoch: int, seed: tf.Tensor) -> dict[str, float]:
        """One epoch; first what has to be done to the network before it."""
        start = time.monotonic()
        phase_epoch = epoch - self.pretrain_epochs
        with distribution.scope(self.strategy):
            if phase_epoch >= 0 and not self.is_bayesian:
                self._make_bayesian(epoch)
            elif phase_epoch == FLAGS.epochs or self._is_time_to_shrink(phase_epoch):
                self._shrink(epoch, at_least=phase_epoch < FLAGS.epochs)
        if self._epoch_function is None:
            self._epoch_function = self._make_epoch_function()
        first = max(phase_epoch, 0) if self.is_bayesian else epoch
        nll, error = self._epoch_function(seed, tf.constant(first * self.steps_per_epoch, tf.int32))
        if not math.isfinite(float(nll)):
            raise ValueError(
                f"training diverged in epoch {epoch + 1}: the loss is not finite; lower --learning_rate or "
                "--scale_speed."
            )
        scalars = {"train/nll_nats": float(nll), "train/error_percent": 100.0 * float(error)}
        self.seconds.assign_add(time.monotonic() - start)
        return scalars

    def _is_time_to_shrink(self, phase_epoch: int) -> bool:
        return 0 < phase_epoch < FLAGS.epochs and FLAGS.shrink_every > 0 and phase_epoch % FLAGS.shrink_every == 0

    def _make_bayesian(self, epoch: int) -> None:
        options: dict[str, Any] = {"scale_speed": FLAGS.scale_speed, "initial_log_std": FLAGS.initial_log_std}
        if FLAGS.prior != "ghs":
            options["kl"] = FLAGS.kl
        if FLAGS.std_cap is not None:
            first = next(layer for layer in self.model.layers if isinstance(layer, SHAPED))
            options["std_cap"] = {first.name: FLAGS.std_cap}
        seed = int(named_seed(FLAGS.seed, "noise")[0]) % 2**24
        self._replace(
            compression.compress(self.model, num_train=self.num_train, prior=FLAGS.prior, seed=seed, **options)
        )
        self._keep_shapes(epoch)

    def _shrink(self, epoch: int, at_least: bool) -> None:
        """Remove what is pruned for good; with `at_least` only if that is worth a new trace."""
        for valid in (None, self.parts.valid):  # without the check first, which costs time and removes no more
            thresholds = chosen_thresholds(self.model, valid)
            if left_weights(self.model, thresholds) > (SHRINK_BELOW if at_least else 1.0):
                return
        model, kept = compression.shrink_bayesian(self.model, thresholds)
        self._replace(model, compression.carry_optimizer(self.optimizer, self.model, model, kept))
        self._keep_shapes(epoch)

    def _make_epoch_function(self) -> Any:
        """A function of seed and first step: trains for an epoch; mean negative log-likelihood and error."""
        model, optimizer, part, strategy = self.model, self.optimizer, self.parts.train, self.strategy
        layers = compression.bayesian_layers(model)
        B, N, steps = FLAGS.batch_size, self.num_train, self.steps_per_epoch
        total = steps * (FLAGS.epochs + FLAGS.polish_epochs if layers else self.pretrain_epochs)
        warmup = max(1.0, FLAGS.warmup * steps)
        peak = FLAGS.learning_rate if layers else FLAGS.pretrain_learning_rate
        variables = model.trainable_variables
        num_replicas = distribution.worker_of(strategy).num_replicas

        def update(X: tf.Tensor, labels: tf.Tensor, kl_weight: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """One step; mean negative log-likelihood of these rows, and how many of them are wrong."""
            with tf.GradientTape() as tape:
                outputs = model(X, training=True)
                loss = nll = nll_of(outputs, labels, self.probabilities)
                if layers:
                    loss += kl_weight / N * tf.add_n([layer.kl_divergence() for layer in layers])
                loss /= num_replicas
            optimizer.apply(tape.gradient(loss, variables), variables)  # adds up the gradients of all replicas
            wrong = tf.argmax(outputs, axis=-1, output_type=tf.int32) != labels
            return nll, tf.math.count_nonzero(wrong)

        def update_own_rows(X: tf.Tensor, labels: tf.Tensor, kl_weight: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """`update` of this replica, with its part of the batch."""
            size = B // num_replicas
            start = tf.distribute.get_replica_context().replica_id_in_sync_group * size
            return update(X[start : start + size], labels[start : start + size], kl_weight)

        @tf.function
        def run_epoch(seed: tf.Tensor, first_step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            order = tf.random.experimental.stateless_shuffle(tf.range(N), seed)
            nll_sum, num_wrong = tf.zeros([]), tf.zeros([], tf.int64)
            for i in tf.range(steps):
                rows = order[i * B : (i + 1) * B]
                X, labels = tf.gather(part.X, rows), tf.gather(part.labels, rows)
                if FLAGS.shift:
                    X = shifted(X, FLAGS.shift, tf.random.fold_in(seed, i))
                step = tf.cast(first_step + i, tf.float32)
                optimizer.learning_rate.assign(peak * decay(step / total))
                is_polish = step >= float(FLAGS.epochs * steps)
                growing = FLAGS.kl_weight * tf.minimum(1.0, (step + 1.0) / warmup)
                kl_weight = tf.where(is_polish, FLAGS.polish_kl, growing)
                if strategy is None:
                    nll, wrong = update(X, labels, kl_weight)
                else:
                    parts = strategy.run(update_own_rows, args=(X, labels, kl_weight))
                    nll = strategy.reduce("MEAN", parts[0], axis=None)
                    wrong = strategy.reduce("SUM", parts[1], axis=None)
                nll_sum += nll
                num_wrong += wrong
            return nll_sum / steps, tf.cast(num_wrong, tf.float32) / (steps * B)

        return run_epoch


def decay(progress: tf.Tensor) -> tf.Tensor:
    """Factor of the learning rate when this part of the steps is done."""
    if FLAGS.decay == "none" or FLAGS.decay_from == 1.0:
        return tf.ones([])
    left = tf.clip_by_value((1.0 - progress) / (1.0 - FLAGS.decay_from), 0.0, 1.0)
    return left if FLAGS.decay == "linear" else 0.5 * (1.0 - tf.cos(math.pi * left))


# Thresholds


def chosen_thresholds(model: keras.Model, valid: Part | None = None) -> dict[str, float]:
    """The threshold of each Bayesian layer by name, from --threshold; automatic ones checked on images set aside."""
    names = [layer.name for layer in compression.bayesian_layers(model)]
    if FLAGS.threshold == ["auto"]:
        if valid is None:
            return dict(compression.thresholds_of(model, "auto"))
        return compression.checked_thresholds(
            model, lambda network: error_percent(network, valid), tolerance=FLAGS.prune_tolerance
        )
    values = [float(value) for value in FLAGS.threshold]
    if len(values) not in (1, len(names)):
        raise ValueError(f"--threshold must be one number, or one for each of {len(names)} layers, got {len(values)}.")
    return dict(zip(names, values * len(names) if len(values) == 1 else values, strict=True))


def left_weights(model: keras.Model, thresholds: dict[str, float]) -> float:
    """Part of the weights whose own groups stay."""
    masks = compression.masks(model, thresholds)
    sizes = {layer.name: int(np.prod(layer.kernel_mean.shape)) for layer in compression.bayesian_layers(model)}
    return sum(size * float(np.mean(masks[name])) for name, size in sizes.items()) / sum(sizes.values())


# What is reported in the end


class Report(NamedTuple):
    """A network that came out: errors in percent, and its file."""

    name: str
    valid_percent: float
    test_percent: float
    file: Path | None = None


def rounding_error(state: Run, plain: keras.Model) -> Any:
    """A function of rounded kernels: error in percent on the images set aside."""
    copy = keras.models.clone_model(plain)
    copy.set_weights(plain.get_weights())
    shaped = [layer for layer in copy.layers if isinstance(layer, SHAPED)]
    part = state.parts.valid

    def error_of(kernels: Sequence[Kernel]) -> float:
        for layer, kernel in zip(shaped, kernels, strict=True):
            layer.kernel.assign(kernel.values)
        return error_percent(copy, part)

    return error_of


def tuned_books(state: Run, plain: keras.Model, k: int) -> list[Kernel]:
    """Codebooks of every layer; with --tune_steps, their centres trained on the training images."""
    books = [codebook(kernel, k, seed=FLAGS.seed) for kernel in kernels_of(plain)]
    if FLAGS.tune_steps == 0:
        return list(books)
    part, B = state.parts.train, FLAGS.batch_size
    seed = named_seed(FLAGS.seed, f"books/{k}")
    shaped = [layer for layer in plain.layers if isinstance(layer, SHAPED)]
    index = {id(layer.kernel): i for i, layer in enumerate(shaped)}
    trainable, others = plain.trainable_variables, plain.non_trainable_variables

    def loss_of(kernels: list[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        rows = tf.random.stateless_uniform([B], tf.random.fold_in(seed, step), 0, len(part.X), tf.int32)
        values = [kernels[index[id(v)]] if id(v) in index else v.value for v in trainable]
        outputs, _ = plain.stateless_call(values, others, tf.gather(part.X, rows), training=False)
        return nll_of(outputs, tf.gather(part.labels, rows), state.probabilities)

    return list(fine_tune(books, loss_of, steps=FLAGS.tune_steps, learning_rate=0.1 * FLAGS.learning_rate))


def finish(state: Run) -> tuple[list[Report], dict[str, Any]]:
    """Prune, shrink, round and write the network; errors of each stage."""
    valid, test = state.parts.valid, state.parts.test
    folder = state.run.path / "files"
    folder.mkdir(exist_ok=True)
    thresholds = chosen_thresholds(state.model, valid)
    scores = [np.asarray(layer.prune_scores()) for layer in compression.bayesian_layers(state.model)]
    compression.apply_masks(state.model, thresholds)
    reports = [Report("masked", error_percent(state.model, valid), error_percent(state.model, test))]
    shrunk = compression.shrink_details(state.model, thresholds)
    plain, kernels = shrunk.model, kernels_of(shrunk.model)

    def report(name: str, codes: Sequence[Kernel] | None, file: str, biases: str = "float16") -> None:
        path = folder / file
        save_bcz(path, plain, codes, biases=biases)
        loaded = load_bcz(path)
        if codes is not None:
            measured = with_kernels(plain, codes, biases=biases)
            for a, b in zip(loaded.get_weights(), measured.get_weights(), strict=True):
                if a.tobytes() != b.tobytes():
                    raise AssertionError(f"{path} does not give back the network that was rounded")
        reports.append(Report(name, error_percent(loaded, valid), error_percent(loaded, test), path))

    report("shrunk", None, "shrunk.bcz", "float32")
    counted = [variance[kernel != 0] for variance, kernel in zip(shrunk.variances, kernels, strict=True)]
    rule = bits.layer_bits(counted)
    fixed = {"rule": [bits.fixed_point(kernel, t) for kernel, t in zip(kernels, rule, strict=True)]}
    report("rule", fixed["rule"], "fixed.bcz" if FLAGS.bits == "rule" else "fixed_rule.bcz")
    if FLAGS.bits == "search":
        most = reports[1].valid_percent + FLAGS.tolerance
        fixed["search"] = bits.search_bits(kernels, rounding_error(state, plain), start=rule, max_error=most + 1e-9)
        report("search", fixed["search"], "fixed.bcz")
    for k in FLAGS.codebooks:
        report(f"book {k}", tuned_books(state, plain, int(k)), f"book_{k}.bcz")
    kept = [int(count) for count in shrunk.kept_weights]
    columns = [kernel.shape[-1] for kernel in kernels] if FLAGS.prior == "svd" else None
    rates = {
        name: paper_rates(state.original_weights, kept, [code.bits for code in codes], csc_columns=columns)
        for name, codes in fixed.items()
    }
    details = {
        "architecture": shrunk.architecture,
        "kept_weights": kept,
        "original_weights": state.original_weights,
        "original_parameters": state.original_parameters,
        "thresholds": thresholds,
        "bits": {name: [code.bits for code in codes] for name, codes in fixed.items()},
        "significant_bits_of_mean_variance": bits.layer_bits(counted, rule="bits_of_mean"),
        "rates_as_in_paper": {name: rate._asdict() for name, rate in rates.items()},
        "networks": {
            r.name: {
                "valid_percent": r.valid_percent,
                "test_percent": r.test_percent,
                "bytes": r.file and os.path.getsize(r.file),
                "file_rate": r.file and file_rate(state.original_parameters, r.file),
            }
            for r in reports
        },
    }
    if plots.is_available():
        draw(state, scores, list(thresholds.values()), counted, fixed, plain)
    if FLAGS.export_dir is not None:
        export_all(Path(FLAGS.export_dir), plain, state.parts)
    return reports, details


def export_all(folder: Path, plain: keras.Model, parts: Parts) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    export.export_saved_model(folder / "saved_model", plain)
    examples = parts.train.X[:500].numpy()
    for kind in export.TFLITE_KINDS:
        export.export_tflite(folder / f"{kind}.tflite", plain, kind=kind, representative=examples)
    export.export_npz(folder / "weights.npz", plain)
    plain.save(folder / "network.keras")


def architecture_text(architecture: Any) -> str:
    return "-".join(str(size) for size in architecture)


def markdown_row(state: Run, reports: Sequence[Report], details: dict[str, Any]) -> str:
    """Network, prior, epochs, architecture, bits, rates as in the paper with errors, and files."""
    by_name = {report.name: report for report in reports}
    chosen = FLAGS.bits
    rates = details["rates_as_in_paper"][chosen]
    cells = [state.network_name, FLAGS.prior, str(FLAGS.epochs), f"{float(state.seconds):.0f} s"]
    cells += [architecture_text(details["architecture"]), "-".join(map(str, details["bits"][chosen]))]
    cells += [f"{rates['pruning']:.1f} ({by_name['shrunk'].test_percent:.2f})"]
    cells += [f"{rates['fast']:.1f} ({by_name[chosen].test_percent:.2f})"]
    books = [report for report in reports if report.name.startswith("book")]
    cells += [f"{rates['maximum']:.1f} ({books[0].test_percent:.2f})" if books else f"{rates['maximum']:.1f}"]
    for report in books:
        file = details["networks"][report.name]
        cells.append(f"{report.name}: {file['bytes']} B, {file['file_rate']:.0f} ({report.test_percent:.2f})")
    return "| " + " | ".join(cells) + " |"


def table(reports: Sequence[Report], details: dict[str, Any]) -> str:
    lines = [["", "valid %", "test %", "bytes", "times smaller"]]
    for report in reports:
        file = details["networks"][report.name]
        sizes = ["", ""] if report.file is None else [str(file["bytes"]), f"{file['file_rate']:.1f}"]
        lines.append([report.name, f"{report.valid_percent:.2f}", f"{report.test_percent:.2f}", *sizes])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


# Plots


def draw(
    state: Run,
    scores: Sequence[np.ndarray],
    thresholds: Sequence[float],
    variances: Sequence[np.ndarray],
    fixed: dict[str, list[bits.FixedPoint]],
    plain: keras.Model,
) -> None:
    """Histograms of scores with thresholds (Figs. 4 to 7), of the bits of weights (Fig. 11), and the kept inputs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    def panels(count: int) -> tuple[Figure, Any]:
        figure = Figure(figsize=(3.2 * count, 3.0), dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        return figure, figure.subplots(1, count, squeeze=False)[0]

    def save(figure: Figure, name: str) -> None:
        with run_dir.atomic_path(state.run.plots_dir / name) as temporary:
            figure.savefig(temporary, format="png")

    names = [layer.name for layer in compression.bayesian_layers(state.model)]
    what = "negative log-mode" if FLAGS.prior == "ghs" else "log alpha"
    figure, axes = panels(len(scores))
    for axis, name, values, threshold in zip(axes, names, scores, thresholds, strict=True):
        axis.hist(np.clip(np.ravel(values), -20, 20), bins=50)
        axis.axvline(threshold, color="C1", label=f"threshold {threshold:.2f}")
        axis.set(title=name, xlabel=what)
        axis.legend(fontsize=7)
    save(figure, "thresholds.png")
    figure, axes = panels(len(variances))
    for number, (axis, V) in enumerate(zip(axes, variances, strict=True)):
        axis.hist(bits.significant_bits(V), bins=np.arange(-0.5, 24))
        for colour, (name, codes) in enumerate(fixed.items(), start=1):
            axis.axvline(codes[number].significant, color=f"C{colour}", label=name)
        axis.set(title=f"layer {number + 1}", xlabel="significant bits")
        axis.legend(fontsize=7)
    save(figure, "bits.png")
    mask = input_mask(plain, state.images.X.shape[1:])
    if mask is not None:
        plots.image_grid(state.run.plots_dir / "inputs.png", {"inputs that are kept": mask[None]})


def input_mask(plain: keras.Model, shape: tuple[int, ...]) -> np.ndarray | None:
    """Part of the channels of each pixel that the network looks at; None if it begins with a convolution."""
    kept = np.ones(math.prod(shape))
    for layer in plain.layers:
        if isinstance(layer, compression.SelectInputs):
            chosen = np.zeros_like(kept)
            chosen[np.flatnonzero(kept)[layer.indices]] = 1.0
            kept = chosen
        elif isinstance(layer, keras.layers.Dense):
            return kept.reshape(shape).mean(axis=-1)
        elif not isinstance(layer, keras.layers.InputLayer | keras.layers.Flatten):
            return None
    return None


# The run


def log_epoch(state: Run, writer: ScalarWriter, t: int, scalars: dict[str, float]) -> None:
    """Scalars and histograms after epoch t."""
    layers = compression.bayesian_layers(state.model)
    if t % FLAGS.eval_every:
        writer.write(t, scalars)
        return
    if not layers:  # the plain network still
        writer.write(t, {**scalars, "valid/error_percent": error_percent(state.model, state.parts.valid)})
        return
    thresholds = chosen_thresholds(state.model)
    with compression.switched_off(state.model, thresholds):
        kl_total = 0.0
        for layer in layers:
            for name, value in layer.kl_parts().items():
                scalars[f"{layer.name}/kl_{name}_nats"] = float(value)
                kl_total += float(value)
            scalars[f"{layer.name}/threshold"] = thresholds[layer.name]
            scalars[f"{layer.name}/kept_groups"] = float(np.sum(layer.mask))
            writer.histogram(t, f"{layer.name}/scores", np.asarray(layer.prune_scores()))
        scalars["train/kl_nats"] = kl_total
        scalars["valid/error_percent"] = error_percent(state.model, state.parts.valid)
    writer.write(t, scalars)


def run_all(start: float) -> None:
    apply_threads(FLAGS.threads)
    check_flags()
    strategy = strategy_from_flags()
    distribution.worker_of(strategy).batch_size(FLAGS.batch_size)  # refuses what cannot be cut into equal parts
    images = read_images(FLAGS.data) if FLAGS.data else load_images(FLAGS.dataset or "digits", FLAGS.data_dir)
    record = run_dir.provenance(images.sha256, seed=FLAGS.seed, data_source=images.source)
    run = run_dir.open_run(FLAGS.run_dir, flags_text=flags_text(), provenance=record, resume=FLAGS.resume)
    state = Run(images, run, strategy)
    print(f"{images.name}: {images.source}; {state.num_train} images to train on, {len(state.parts.valid.X)} set aside")
    print(f"network {state.network_name}: {state.original_weights} weights, prior {FLAGS.prior}", flush=True)
    restored = state.restore() if FLAGS.resume else None
    with ScalarWriter(run, resume_step=restored) as writer:

        def after_step(t: int, scalars: dict[str, float]) -> None:
            log_epoch(state, writer, t, scalars)
            state.save_now_and_then()

        try:
            train(
                state.train_step,
                lambda epoch: epoch,
                step=state.step,
                num_steps=state.num_epochs,
                seed=named_seed(FLAGS.seed, "train"),
                after_step=after_step,
                progress=FLAGS.progress,
                max_seconds=FLAGS.max_seconds,
            )
        except Interrupted:
            state.save()
            raise
        if restored != state.num_epochs:
            state.save()
        reports, details = finish(state)
        if restored != state.num_epochs:
            for path in sorted(run.plots_dir.glob("*.png")):
                writer.image(state.num_epochs, f"plots/{path.stem}", path)
    row = markdown_row(state, reports, details)
    run_dir.write_text(run.path / "row.md", row + "\n")
    print(f"\narchitecture {architecture_text(details['architecture'])}, {sum(details['kept_weights'])} weights")
    for name, values in details["bits"].items():
        rates = details["rates_as_in_paper"][name]
        print(
            f"bits ({name}) {'-'.join(map(str, values))}; rates as in the paper: pruning {rates['pruning']:.1f}, "
            f"fast {rates['fast']:.1f}, maximum {rates['maximum']:.1f}"
        )
    print(table(reports, details))
    published = PUBLISHED.get((state.network_name, FLAGS.prior))
    if published is not None and images.name in ("mnist", "cifar10"):
        print("published: {:.1f} %; pruning {}, fast {}, maximum {}".format(*published))
    print(row)
    run_dir.write_json(
        run.result_file,
        {
            "dataset": images.name,
            "network": state.network_name,
            "prior": FLAGS.prior,
            "epochs": FLAGS.epochs,
            "train_images": state.num_train,
            "valid_images": len(state.parts.valid.X),
            "test_images": len(state.parts.test.X),
            "train_seconds": float(state.seconds),
            "wall_seconds": time.monotonic() - start,
            **details,
            "published": published,
            "markdown": row,
            "flags": flags_text().splitlines(),
        },
    )
    print(f"trained in {float(state.seconds):.0f} s; written to {run.path}")


def check_flags() -> None:
    if FLAGS.strategy == "multi_worker":
        raise ValueError(
            "--strategy must be none or mirrored here, got multi_worker: networks are compressed on one machine, with "
            "one or more devices."
        )
    if not all(value.isdigit() and 1 <= int(value) <= 256 for value in FLAGS.codebooks):
        raise ValueError(f"--codebooks must list numbers from 1 to 256, got {','.join(FLAGS.codebooks)}.")
    if FLAGS.threshold != ["auto"]:
        try:
            [float(value) for value in FLAGS.threshold]
        except ValueError as error:
            raise ValueError(f"--threshold must be auto or numbers, got {','.join(FLAGS.threshold)}.") from error
    if FLAGS.export_dir is not None and Path(FLAGS.export_dir).exists() and any(Path(FLAGS.export_dir).iterdir()):
        raise ValueError(f"--export_dir={FLAGS.export_dir} must be a new or empty folder.")


def explain(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
        return f"out of memory; lower --batch_size or --max_images. {error}", 1
    return None


def main(argv: list[str]) -> int:
    if not FLAGS["verbosity"].present:
        tf.get_logger().setLevel("ERROR")  # networks of different shapes are traced more than once
    return run_script(argv, run_all, explain)


if __name__ == "__main__":
    app.run(main)
