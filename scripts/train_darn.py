#!/usr/bin/env python3
"""Train a deep autoregressive network (DARN) on binary data, and report its likelihood.

    train_darn.py --run_dir=runs/digits
    train_darn.py --run_dir=runs/adult --dataset=adult --data_dir=DATA --hidden=8 --tanh=100 --visible=linear
    train_darn.py --run_dir=runs/mnist --dataset=binarized_mnist --data_dir=DATA --hidden=500 --tanh=500
    train_darn.py --run_dir=runs/own --data=table.csv --hidden=16
    train_darn.py --run_dir=runs/digits --resume --num_steps=50000
    train_darn.py --run_dir=runs/mnist --dataset=binarized_mnist --data_dir=DATA --hidden=500 --strategy=mirrored

The model with the best description length on the validation rows is reported. Ctrl-C saves a checkpoint. The folder of
the run gets:

    result.json   description length and its parts in bits and nats, negative log-likelihood of the test rows, exactly
                  for at most 16 stochastic units or by importance sampling
    darn.npz      the model, for darn.load_darn
    plots/        description length over training; for images: filters, and samples beside the nearest training images
    scalars.jsonl, tensorboard/, checkpoints/
"""

import hashlib
import importlib.util
import json
import math
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

if importlib.util.find_spec("darn") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from darn import gradients, model, nade, optimization, weight_noise
from darn.description_length import DescriptionLength, description_length, fast_sampling_cost
from darn.likelihood import MAX_EXACT_UNITS, exact_log_likelihood, importance_log_likelihood
from darn.local import LocalConfig
from darn.model import DARN, DARNConfig
from darn.serialization import load_darn, save_darn
from darn.training import Observed, Trainer, TrainingConfig
from experiment import checkpoints, distribution, run_dir
from experiment.data.rows import batch_indices
from experiment.data.sets import binary as binary_data
from experiment.data.sets import supervised as datasets
from experiment.flags import apply_threads, define_common_flags, flags_text
from experiment.loop import Interrupted, block_size, train
from experiment.report import plots
from experiment.report.plots import Line
from experiment.scalars import ScalarWriter, read_scalars
from experiment.scale import define_strategy_flags, strategy_from_flags
from experiment.script import TrainingFailed, run_script
from experiment.seeds import named_seed, numpy_rng

FLAGS = flags.FLAGS
define_common_flags()
define_strategy_flags()
FLAGS.set_default("batch_size", 100)
FLAGS.set_default("float32", True)
KINDS = ["factorial", *nade.CONDITIONALS]
flags.DEFINE_list("hidden", ["100"], "Numbers of stochastic units, bottom to top; --hidden= for a fully visible model.")
flags.DEFINE_list(
    "tanh", [], "Numbers of deterministic units between two stochastic layers, for example 200 or 200,200."
)
flags.DEFINE_enum("activation", "tanh", list(model.ACTIVATIONS), "Of the deterministic units.")
flags.DEFINE_boolean("skip", False, "Each layer sees all stochastic layers beyond it.")
flags.DEFINE_enum("encoder", "factorial", list(model.ENCODERS), "How units depend on each other in the encoder.")
flags.DEFINE_enum("conditional", "linear", KINDS, "How stochastic units depend on each other in the decoder.")
flags.DEFINE_enum("visible", "factorial", [*KINDS, "local"], "How visible units depend on each other.")
flags.DEFINE_integer("conditional_units", 100, "Deterministic units of NADE, EoNADE and MADE.", 1)
flags.DEFINE_integer("num_orders", 16, "Orders of EoNADE.", 1)
flags.DEFINE_boolean("intensities", False, "Model grey levels in [0, 1] (digits and mnist) instead of bits.")
flags.DEFINE_boolean("local", False, "Locally connected layers next to the image, in place of --tanh there.")
flags.DEFINE_list("local_kernels", ["8", "4"], "Sizes of their kernels, from the image up.")
flags.DEFINE_list("local_strides", ["4", "2"], "Their strides.")
flags.DEFINE_list("local_filters", ["32", "32"], "Their numbers of filters.")
flags.DEFINE_integer("local_period", 8, "Period of their weight sharing.", 1)
flags.DEFINE_integer("visible_kernel", 15, "Window of earlier pixels of --visible=local.", 1)
flags.DEFINE_integer("visible_period", 14, "Period of its weight sharing.", 1)
flags.DEFINE_enum("estimator", "darn", list(gradients.ESTIMATORS), "Of the gradient through the bits.")
flags.DEFINE_enum("entropy", "sampled", list(gradients.ENTROPIES), "How the gradient of E log q is taken.")
flags.DEFINE_integer("num_samples", 2, "Samples of --estimator=rloo.", 2)
flags.DEFINE_enum("optimizer", "adam", list(optimization.OPTIMIZERS), "rmsprop is the paper's.")
flags.DEFINE_float("learning_rate", 1e-3, "At the start.", 0.0)
flags.DEFINE_float("lr_half_life", None, "Steps after which the learning rate has halved; constant if not given.", 0.0)
flags.DEFINE_float("momentum", 0.9, "Of RMSProp; beta_1 of Adam.", 0.0)
flags.DEFINE_float("weight_decay", 0.0, "Decoupled weight decay, in units of the learning rate.", 0.0)
flags.DEFINE_float("clip_norm", None, "Largest norm of the gradient.", 0.0)
flags.DEFINE_float("average", 0.0, "Decay of a running mean of the parameters, which is what is evaluated.", 0.0, 1.0)
flags.DEFINE_enum("weight_noise", None, list(weight_noise.WEIGHT_NOISE), "Adaptive weight noise.")
flags.DEFINE_float("initial_std", 0.01, "Of the weights under weight noise.", 0.0)
flags.DEFINE_float(
    "sparsity", None, "Wanted mean activity of the stochastic units (fDARN), for example 0.05.", 0.0, 1.0
)
flags.DEFINE_float("sparsity_weight", 1.0, "Factor of the penalty.", 0.0)
flags.DEFINE_boolean("early_stopping", False, "Stop when the validation description length has not improved.")
flags.DEFINE_integer("patience", 10, "Evaluations in a row without improvement.", 1)
flags.DEFINE_integer("eval_rows", 10_000, "Rows of each part (drawn once) to look at during training.", 2)
flags.DEFINE_integer("eval_samples", 1, "Draws of h for each row at an evaluation.", 1)
flags.DEFINE_integer("final_samples", 10, "Draws of h for each row for the description length in the result.", 1)
flags.DEFINE_enum("exact", "auto", ["auto", "yes", "no"], "Sum over all states of the stochastic units at the end.")
flags.DEFINE_integer("is_samples", 1000, "Importance samples S for each test row; 100000 in the paper; 0 for none.", 0)
flags.DEFINE_integer("is_repeats", 10, "Repeats, for the confidence interval.", 2)
flags.DEFINE_integer("is_rows", None, "Test rows (drawn once) for importance sampling; all if not given.", 1)
flags.DEFINE_boolean("jit", False, "Compile with XLA: faster steps for small models, after up to a minute.")

MAX_BLOCK = 250  # steps in one call of the compiled graph
EXACT_SECONDS = 600.0  # --exact=auto gives up beyond this rough estimate
NATS_TO_BITS = 1.0 / math.log(2.0)


class StopEarly(Exception):
    """The validation description length has not improved for --patience evaluations."""


class GreyData(NamedTuple):
    """Intensities in [0, 1], with the attributes of `BinaryData` that are used here."""

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    image_shape: tuple[int, int] | None
    source: str
    sha256: str


class Best(NamedTuple):
    """The best evaluation so far: its step, validation description length in nats, and how many evaluations since."""

    step: int = -1
    nats: float = math.inf
    num_worse: int = 0


class Run:
    """One run: what is fixed, and the trainer, which :meth:`advance` moves on. Only the chief of several workers has a
    writer."""

    def __init__(
        self,
        data: Any,
        folder: run_dir.RunDir,
        writer: ScalarWriter | None,
        trainer: Trainer,
        strategy: tf.distribute.Strategy | None,
    ) -> None:
        self.data, self.folder, self.writer, self.trainer, self.strategy = data, folder, writer, trainer, strategy
        self.best_values = tf.Variable(np.array(Best(), np.float64))
        self.seed = named_seed(FLAGS.seed, "train")
        self.block = block_size(MAX_BLOCK, FLAGS.log_every, FLAGS.eval_every, FLAGS.checkpoint_every)
        self.steps = trainer.compiled_steps(jit_compile=FLAGS.jit)
        self.train_rows = tf.constant(data.train)
        self.looked_at = {name: some_rows(getattr(data, name), name) for name in ("train", "valid")}
        self.seconds = 0.0

    @property
    def best(self) -> Best:
        step, nats, num_worse = self.best_values.numpy()
        return Best(int(step), float(nats), int(num_worse))

    @property
    def should_stop(self) -> bool:
        return bool(FLAGS.early_stopping and self.best.num_worse >= FLAGS.patience)

    def rows_at(self, step: int) -> tuple[np.ndarray, int]:
        """Rows [K, B] of the minibatches of the steps from `step` on, and how many of the K to run."""
        count = min(self.block - step % self.block, FLAGS.num_steps - step)
        size = min(FLAGS.batch_size, len(self.data.train))
        rows = np.zeros([self.block, size], np.int32)
        for i in range(count):
            rows[i] = batch_indices(FLAGS.seed, step + i, len(self.data.train), size)
        return rows, count

    def advance(self, batch: tuple[np.ndarray, int], seed: tf.Tensor) -> Observed:
        """Run one block; its noise is a function of --seed and the number of each step."""
        del seed
        rows, count = batch
        observed = self.steps(self.train_rows, tf.constant(rows), tf.constant(count), self.seed)
        return Observed._make(value.numpy()[:count] for value in observed)

    def after_block(self, step: int, observed: Observed) -> None:
        """Log, evaluate and save, each at its own steps."""
        if not np.isfinite(observed.objective).all():
            raise TrainingFailed(f"the description length is no longer finite after step {step}.")
        is_last = step == FLAGS.num_steps
        scalars: dict[str, float] = {}
        if is_last or step % FLAGS.log_every == 0:
            scalars |= training_scalars(observed)
        if is_last or step % FLAGS.eval_every == 0:
            scalars |= self.evaluate(step)
        if scalars and self.writer is not None:
            self.writer.write(step, scalars)
        if is_last or step % FLAGS.checkpoint_every == 0 or self.should_stop:
            self.save(step)
        if self.should_stop and not is_last:
            raise StopEarly

    def save(self, step: int) -> None:
        if self.writer is None:
            return
        checkpoints.save(
            self.folder.checkpoint_dir,
            step,
            trainer=self.trainer,
            best=self.best_values,
            step=tf.Variable(step, dtype=tf.int64),
        )

    def evaluate(self, step: int) -> dict[str, float]:
        """Description lengths; keeps the best parameters."""
        darn = self.trainer.model
        scalars: dict[str, float] = {}
        with self.trainer.averaged():
            for name, rows in self.looked_at.items():
                lengths = description_length(
                    darn, rows, seed=named_seed(FLAGS.seed, f"eval/{name}"), num_samples=FLAGS.eval_samples
                )
                scalars |= length_scalars(name, lengths)
            nats = distribution.value_of_chief(self.strategy, scalars["valid/description_length_nats"])
            best = self.best
            best = Best(step, nats) if nats < best.nats else best._replace(num_worse=best.num_worse + 1)
            self.best_values.assign(np.array(best, np.float64))
            if self.writer is not None:
                if best.step == step:
                    save_darn(self.folder.path / "best.npz", darn)
                self.show(self.writer, step, darn)
        if darn.encoders:
            rows = tf.constant(self.looked_at["train"][:100], darn.dtype)
            scalars["estimator/relative_std"] = self.trainer.gradient_noise(
                rows, named_seed(FLAGS.seed, "estimator"), num_draws=8
            )
        if not math.isfinite(nats):
            raise TrainingFailed(f"the validation description length is not finite after step {step}.")
        return scalars

    def show(self, writer: ScalarWriter, step: int, darn: DARN) -> None:
        """Samples, filters and the activity of units for TensorBoard."""
        if darn.encoders:
            rows = tf.constant(self.looked_at["valid"][:1000], darn.dtype)
            noise = darn.encoder_noise(len(rows), named_seed(FLAGS.seed, "activity"))
            for level, h in enumerate(darn.encode(rows, noise).h, start=1):
                writer.histogram(step, f"activity/layer_{level}", tf.reduce_mean(h, axis=0))
        if self.data.image_shape is None or darn.config.visible > 4096:
            return
        samples = darn.sample(36, named_seed(FLAGS.seed, "samples"))
        writer.image(step, "samples", plots.tiled(samples.probs.numpy().reshape(-1, *self.data.image_shape)))
        filters = filters_of(darn, self.data.image_shape)
        if filters is not None:
            writer.image(step, "filters", plots.tiled(filters))


def training_scalars(observed: Observed) -> dict[str, float]:
    """Means over the steps of the last block, parts in bits."""
    total = observed.prior + observed.bits_back + observed.visible
    return {
        "train/objective_nats": float(observed.objective.mean()),
        "train/batch_description_length_bits": NATS_TO_BITS * float(total.mean()),
        "train/batch_hidden_bits": NATS_TO_BITS * float(observed.prior.mean()),
        "train/batch_bits_back_bits": NATS_TO_BITS * float(observed.bits_back.mean()),
        "train/batch_visible_bits": NATS_TO_BITS * float(observed.visible.mean()),
        "train/activity": float(observed.activity.mean()),
        "train/gradient_norm": float(observed.gradient_norm.mean()),
    }


def length_scalars(name: str, lengths: DescriptionLength) -> dict[str, float]:
    """Means over the rows."""
    scalars = {f"{name}/description_length_nats": float(lengths.total.mean())}
    scalars[f"{name}/description_length_bits"] = NATS_TO_BITS * float(lengths.total.mean())
    for part in ("hidden", "bits_back", "visible"):
        scalars[f"{name}/{part}_bits"] = NATS_TO_BITS * float(getattr(lengths, part).mean())
    return scalars


def filters_of(darn: DARN, shape: tuple[int, int]) -> np.ndarray | None:
    """What each of up to 100 units next to the image adds to the logits of the pixels, [U, H, W] around grey."""
    kernels = getattr(darn.decoders[0].network, "kernels", None)
    if kernels is None:
        return None
    filters = kernels[-1].numpy()[:100].reshape(-1, *shape)
    return np.asarray(0.5 + 0.5 * filters / (np.abs(filters).max() or 1.0))


def integers(name: str) -> tuple[int, ...]:
    texts = [text for text in getattr(FLAGS, name) if text.strip()]
    try:
        return tuple(int(text) for text in texts)
    except ValueError:
        raise ValueError(f"--{name} must be whole numbers with commas between them, got {','.join(texts)!r}.") from None


def darn_config(data: Any) -> DARNConfig:
    local = None
    if FLAGS.local or FLAGS.visible == "local":
        if data.image_shape is None:
            raise ValueError(f"--local needs images, but the rows of {data.name} have no image shape.")
        local = LocalConfig(
            data.image_shape,
            integers("local_kernels"),
            integers("local_strides"),
            integers("local_filters"),
            FLAGS.local_period,
            FLAGS.visible_kernel,
            FLAGS.visible_period,
        )
    return DARNConfig(
        visible=data.train.shape[1],
        hidden=integers("hidden"),
        units=integers("tanh"),
        activation=FLAGS.activation,
        skip=FLAGS.skip,
        encoder=FLAGS.encoder,
        prior=FLAGS.conditional,
        visible_conditional=FLAGS.visible,
        conditional_units=FLAGS.conditional_units,
        num_orders=FLAGS.num_orders,
        observations="intensities" if FLAGS.intensities else "binary",
        local=local,
        dtype="float32" if FLAGS.float32 else "float64",
    )


def training_config() -> TrainingConfig:
    return TrainingConfig(
        estimator=FLAGS.estimator,
        entropy=FLAGS.entropy,
        num_samples=FLAGS.num_samples,
        optimizer=FLAGS.optimizer,
        learning_rate=FLAGS.learning_rate,
        half_life=FLAGS.lr_half_life,
        momentum=FLAGS.momentum,
        weight_decay=FLAGS.weight_decay,
        clip_norm=FLAGS.clip_norm,
        average=FLAGS.average,
        weight_noise=FLAGS.weight_noise,
        initial_std=FLAGS.initial_std,
        sparsity=FLAGS.sparsity,
        sparsity_weight=FLAGS.sparsity_weight,
    )


def load_data() -> Any:
    if FLAGS.intensities:
        return load_grey()
    if FLAGS.data is not None:
        return binary_data.read_binary_table(FLAGS.data)
    return binary_data.load_binary(FLAGS.dataset or "digits", FLAGS.data_dir)


def load_grey() -> GreyData:
    """digits or mnist in [0, 1], in the parts of `binary_data`."""
    name = FLAGS.dataset or "digits"
    if FLAGS.data is not None or name not in ("digits", "mnist"):
        raise ValueError(f"--intensities needs --dataset=digits or --dataset=mnist, got {FLAGS.data or name!r}.")
    known = datasets.load(name, FLAGS.data_dir)
    X = np.asarray(known.X, np.float32)
    order = np.arange(len(X)) if name == "mnist" else numpy_rng(0, "binary_data/digits").permutation(len(X))
    train, valid, test = np.split(X[order] / X.max(), [50_000, 60_000] if name == "mnist" else [1297, 1497])
    side = math.isqrt(X.shape[1])
    digest = hashlib.sha256(np.ascontiguousarray(X[order]).tobytes()).hexdigest()
    return GreyData(f"{name} intensities", train, valid, test, (side, side), known.source, digest)


def some_rows(rows: np.ndarray, name: str, count: int | None = None) -> np.ndarray:
    count = FLAGS.eval_rows if count is None else count
    if len(rows) <= count:
        return rows
    return rows[np.sort(numpy_rng(FLAGS.seed, f"eval/{name}").choice(len(rows), count, replace=False))]


def fit(
    data: Any, folder: run_dir.RunDir, trainer: Trainer, strategy: tf.distribute.Strategy | None
) -> tuple[Run, int, bool, float]:
    """Train, from the newest checkpoint if there is one; returns the run, the last step, whether it stopped early, and
    seconds."""
    step = tf.Variable(0, dtype=tf.int64)
    best = tf.Variable(np.array(Best(), np.float64))
    restored = checkpoints.restore(folder.checkpoint_dir, trainer=trainer, best=best, step=step)
    distribution.check_same_step(strategy, int(step))
    is_chief = distribution.worker_of(strategy).is_chief
    start = time.monotonic()
    with ScalarWriter(folder, resume_step=restored) if is_chief else nullcontext() as writer:
        run = Run(data, folder, writer, trainer, strategy)
        run.best_values.assign(best)
        stopped = run.should_stop
        try:
            if not stopped:
                train(
                    run.advance,
                    run.rows_at,
                    step=step,
                    num_steps=FLAGS.num_steps,
                    seed=run.seed,
                    after_step=run.after_block,
                    steps_per_call=run.block,
                    progress=FLAGS.progress,
                    max_seconds=FLAGS.max_seconds,
                )
        except StopEarly:
            stopped = True
        except Interrupted as stop:
            run.save(stop.step)
            raise
    return run, int(step), stopped, time.monotonic() - start


def report(data: Any, run: Run) -> tuple[DARN, dict[str, Any]]:
    """The best model, its description lengths, and its likelihood on the test rows."""
    darn = load_darn(run.folder.path / "best.npz")
    save_darn(run.folder.path / "darn.npz", darn)
    result: dict[str, Any] = {"step": run.best.step}
    for name in ("train", "valid", "test"):
        rows = some_rows(getattr(data, name), name) if name == "train" else getattr(data, name)
        lengths = description_length(
            darn, rows, seed=named_seed(FLAGS.seed, f"final/{name}"), num_samples=FLAGS.final_samples
        )
        result |= length_scalars(name, lengths)
    if wants_exact(darn, len(data.test)):
        start = time.monotonic()
        for name in ("valid", "test"):
            log_p = exact_log_likelihood(darn, getattr(data, name))
            result[f"{name}/exact_nll_nats"] = -float(log_p.mean())
            result[f"{name}/exact_nll_standard_error"] = float(log_p.std() / math.sqrt(len(log_p)))
        result["exact_seconds"] = time.monotonic() - start
    elif FLAGS.is_samples:
        rows = some_rows(data.test, "test", FLAGS.is_rows or len(data.test))
        start = time.monotonic()
        estimated = importance_log_likelihood(
            darn,
            rows,
            seed=named_seed(FLAGS.seed, "importance"),
            num_samples=FLAGS.is_samples,
            repeats=FLAGS.is_repeats,
            jit_compile=FLAGS.jit,
        )
        result["test/is_nll_nats"] = -estimated.mean
        result["test/is_nll_95_interval"] = [-estimated.interval[1], -estimated.interval[0]]
        result["test/is_nll_standard_error"] = float(estimated.log_likelihood.std() / math.sqrt(len(rows)))
        result |= {"is_samples": FLAGS.is_samples, "is_rows": len(rows), "is_seconds": time.monotonic() - start}
    if is_fast(darn.config):
        cost, active = fast_sampling_cost(darn, named_seed(FLAGS.seed, "cost"))
        result |= {"multiplications_per_sample": cost, "active_units_per_sample": active}
    return darn, result


def wants_exact(darn: DARN, num_rows: int) -> bool:
    """Whether to enumerate, by --exact and a rough estimate of the time."""
    if FLAGS.exact != "auto":
        return bool(FLAGS.exact == "yes")
    if darn.num_hidden > MAX_EXACT_UNITS:
        return False
    numbers = 2.0**darn.num_hidden * num_rows * darn.config.visible
    is_product = darn.config.visible_conditional == "factorial"
    return numbers * (1e-10 if is_product else 1e-8) < EXACT_SECONDS


def is_fast(config: DARNConfig) -> bool:
    """Whether the cost of sampling of fDARN is defined."""
    is_linear = config.prior == "linear" and config.visible_conditional == "factorial" and config.local is None
    return len(config.hidden) == 1 and not config.units and is_linear


def make_plots(data: Any, run: Run, darn: DARN, records: list[dict[str, Any]]) -> list[Path]:
    """Description length over training; filters, and samples beside the nearest training images."""
    folder = run.folder.plots_dir
    folder.mkdir(exist_ok=True)
    panels = {"description length": length_lines(records, "description_length_nats", NATS_TO_BITS)}
    if darn.encoders:
        panels["validation, parts"] = {
            label: line
            for label in ("hidden", "bits_back", "visible")
            for line in length_lines(records, f"{label}_bits", 1.0, ("valid",)).values()
        }
    paths = [folder / "description_length.png"]
    plots.lines(paths[0], panels, xlabel="step", ylabel="bits per row")
    if data.image_shape is not None:
        is_large = math.prod(data.image_shape) > 4096
        sampled = darn.sample(6 if is_large else 40, named_seed(FLAGS.seed, "samples"))
        shown = sampled.probs.numpy() if FLAGS.intensities else sampled.x.numpy()
        images = {
            "samples": shown,
            "nearest training images": nearest(shown, data.train),
            "probabilities of the samples": sampled.probs.numpy(),
        }
        paths.append(folder / "samples.png")
        panels_of_images = {k: v.reshape(-1, *data.image_shape) for k, v in images.items()}
        plots.image_grid(paths[-1], panels_of_images, columns=3 if is_large else 8)
        filters = filters_of(darn, data.image_shape)
        if filters is not None:
            paths.append(folder / "filters.png")
            plots.image_grid(paths[-1], {"filters": filters})
    return paths


def length_lines(
    records: list[dict[str, Any]], quantity: str, factor: float, parts: tuple[str, ...] = ("train", "valid")
) -> dict[str, Line]:
    lines = {}
    for part in parts:
        points = [r for r in records if r.get(f"{part}/{quantity}") is not None]
        lines[part] = Line([r["step"] for r in points], [factor * r[f"{part}/{quantity}"] for r in points])
    return lines


def nearest(images: np.ndarray, train_rows: np.ndarray) -> np.ndarray:
    """The training row with the least squared distance from each image."""
    best, found = np.full(len(images), np.inf), np.zeros_like(images)
    for start in range(0, len(train_rows), 5000):
        rows = train_rows[start : start + 5000].astype(np.float32)
        distance = (rows**2).sum(axis=1)[None] - 2.0 * images @ rows.T
        row = distance.argmin(axis=1)
        closest = distance[np.arange(len(images)), row]
        found[closest < best] = rows[row[closest < best]]
        best = np.minimum(best, closest)
    return found


def table(result: dict[str, Any]) -> str:
    """Description lengths, and the likelihood of the test rows, as text."""
    lines = [f"{'':10}{'description length':>22}{'hidden':>10}{'bits back':>11}{'visible':>10}"]
    for name in ("train", "valid", "test"):
        parts = [result[f"{name}/{part}_bits"] for part in ("description_length", "hidden", "bits_back", "visible")]
        nats = result[f"{name}/description_length_nats"]
        lines.append(f"{name:10}{nats:9.3f} nats{parts[0]:8.3f}{parts[1]:10.3f}{parts[2]:11.3f}{parts[3]:10.3f} bits")
    if "test/exact_nll_nats" in result:
        lines.append(
            f"test negative log-likelihood: {result['test/exact_nll_nats']:.3f} nats, exact "
            f"(rows: ± {result['test/exact_nll_standard_error']:.3f})"
        )
    if "test/is_nll_nats" in result:
        low, high = result["test/is_nll_95_interval"]
        lines.append(
            f"test negative log-likelihood: {result['test/is_nll_nats']:.3f} nats by {result['is_samples']} importance "
            f"samples for each of {result['is_rows']} rows, 95 % interval {low:.3f} to {high:.3f} "
            f"(rows: ± {result['test/is_nll_standard_error']:.3f})"
        )
    if "multiplications_per_sample" in result:
        lines.append(
            f"a sample costs {result['multiplications_per_sample']:.3g} multiplications "
            f"({result['active_units_per_sample']:.1f} active units)"
        )
    return "\n".join(lines)


def run_all(start: float) -> None:
    for name in ("target", "task"):
        if getattr(FLAGS, name) is not None:
            raise ValueError(f"--{name} is for supervised scripts; a DARN models all columns. Leave it out.")
    apply_threads(FLAGS.threads)
    strategy = strategy_from_flags()
    worker = distribution.worker_of(strategy)
    worker.batch_size(FLAGS.batch_size)
    data = load_data()
    config = darn_config(data)
    if FLAGS.exact == "yes" and sum(config.hidden) > MAX_EXACT_UNITS:
        raise ValueError(
            f"--exact=yes needs at most {MAX_EXACT_UNITS} stochastic units, got {sum(config.hidden)}; leave it out for "
            "importance sampling."
        )
    with distribution.scope(strategy):
        network = DARN(config, seed=named_seed(FLAGS.seed, "init"), data=data.train)
    trainer = Trainer(network, training_config(), num_data=len(data.train), strategy=strategy)
    folder = run_dir.RunDir(Path(FLAGS.run_dir))
    if worker.is_chief:
        record = run_dir.provenance(data.sha256, seed=FLAGS.seed, data_source=data.source)
        folder = run_dir.open_run(FLAGS.run_dir, flags_text=flags_text(), provenance=record, resume=FLAGS.resume)
    if not plots.is_available():
        logging.warning("Matplotlib is not installed, so there will be no plots; `pip install matplotlib`.")
    sizes = {name: len(getattr(data, name)) for name in ("train", "valid", "test")}
    print(f"{data.name}: {data.source}")
    print(f"DARN {config.to_json()}\nrows: {sizes}", flush=True)
    run, step, stopped, seconds = fit(data, folder, trainer, strategy)
    if not worker.is_chief:
        return
    darn, result = report(data, run)
    records = read_scalars(folder.scalars_file)
    if plots.is_available():
        with ScalarWriter(folder, resume_step=step) as writer:
            for path in make_plots(data, run, darn, records):
                writer.image(step, path.stem, path)
    print("\n" + table(result))
    print(f"reported: the best on validation, step {result['step']} of {step}{', stopped early' if stopped else ''}")
    run_dir.write_json(
        folder.result_file,
        {
            "dataset": data.name,
            "seed": FLAGS.seed,
            "rows": sizes,
            "model": json.loads(config.to_json()),
            "steps": step,
            "stopped_early": stopped,
            **result,
            "train_seconds": seconds,
            "wall_seconds": time.monotonic() - start,
            "flags": flags_text().splitlines(),
        },
    )
    print(f"written to {folder.path}")


def explain(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, TrainingFailed):
        return f"{error} Lower --learning_rate, or give --clip_norm=10; checkpoints are kept.", 1
    message = distribution.lost_worker(error)
    return None if message is None else (message, 1)


def main(argv: list[str]) -> int:
    return run_script(argv, run_all, explain)


if __name__ == "__main__":
    app.run(main)
