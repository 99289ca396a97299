#!/usr/bin/env python3
"""Train a restricted Boltzmann machine while its log partition function is tracked at every update.

    track_rbm.py --run_dir=runs/digits
    track_rbm.py --run_dir=runs/mnist --dataset=mnist --data_dir=DATA --hidden=500 --adaptive --early_stopping
    track_rbm.py --run_dir=runs/own --data=table.csv --hidden=100
    track_rbm.py --run_dir=runs/digits --resume --updates=50000

Every log-likelihood is in nats per row. Ctrl-C saves a checkpoint. The folder of the run gets:

    result.json   log-likelihoods of the validation and test rows, by the tracker, by AIS from below and above, and
                  exactly if a side of the RBM has at most 25 units
    rbm.npz       the parameters with their log Z, for rbm_tracking.load_rbm
    plots/        log-likelihood and log Z over training, measurements of the filter, filters and samples
    scalars.jsonl, tensorboard/, checkpoints/
"""

import importlib.util
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

if importlib.util.find_spec("experiment") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from experiment import checkpoints, run_dir
from experiment.data.rows import batch_indices
from experiment.data.sets import binary as binary_data
from experiment.flags import apply_threads, define_common_flags, flags_text
from experiment.loop import Interrupted, block_size, train
from experiment.report import plots
from experiment.report.plots import Line
from experiment.scalars import ScalarWriter, read_scalars
from experiment.script import TrainingFailed, run_script
from experiment.seeds import named_seed, numpy_rng
from rbm_tracking import ais, exact
from rbm_tracking.ladder import spawn_level
from rbm_tracking.learning import (
    Observed,
    SMLConfig,
    SMLState,
    compiled_updates,
    initial_state,
    log_likelihoods,
    spawn,
)
from rbm_tracking.rbm import base_rate_biases, initial_rbm, log_prob_unnormalised, visible_probs
from rbm_tracking.serialization import SavedRBM, load_rbm, save_rbm
from rbm_tracking.tempering import linear_ladder, sample
from rbm_tracking.tracker import TRAILS, flag_names, tracking_errors

FLAGS = flags.FLAGS
define_common_flags()
FLAGS.set_default("batch_size", 100)
FLAGS.set_default("eval_every", 500)
FLAGS.set_default("checkpoint_every", 5000)
FLAGS.set_default("float32", True)
flags.DEFINE_alias("updates", "num_steps")
flags.DEFINE_integer("hidden", 100, "Number of hidden units.", 1)
flags.DEFINE_integer("temps", 10, "Number of temperatures, from beta = 1 to 0.", 2)
flags.DEFINE_integer("chains", 20, "Chains at each temperature; those at beta = 1 estimate the gradient.", 2)
flags.DEFINE_integer("track_chains", 0, "More chains at each temperature, which only track.", 0)
flags.DEFINE_float("lr", 0.01, "Learning rate epsilon_0.", 0.0)
flags.DEFINE_float("lr_decay", None, "alpha: the rate is min(lr alpha / (t + 1), lr); constant if not given.", 0.0)
flags.DEFINE_boolean("adaptive", False, "Adapt the temperatures to the flow of particles (SML-APT).")
flags.DEFINE_integer("spawn_up_to", 0, "Add temperatures where swaps are rare, up to this number; 0: never.", 0)
flags.DEFINE_integer("gibbs_steps", 1, "Rounds of Gibbs sampling in each update.", 1)
flags.DEFINE_enum("swaps", "even_odd", ["even_odd", "deo"], "Pairs to swap: all, or even and odd ones in turn.")
flags.DEFINE_boolean("centred", False, "Use the centred gradient.")
flags.DEFINE_boolean("track", True, "Track log Z; --notrack is plain SML-PT.")
flags.DEFINE_enum("bias", "both", ["both", "learned", "none"], "How the bias b_t is removed, see SMLConfig.")
flags.DEFINE_float("sigma_z", math.inf, "Expected change of log Z in an update, nats; infinite in the paper.")
flags.DEFINE_integer("bridge_iterations", 0, "Fixed-point iterations of each bridge estimate.", 0)
flags.DEFINE_enum("generator", "threefry", ["threefry", "hash"], "Of the noise; hash is faster.")
flags.DEFINE_integer("ais_every", 0, "Updates between AIS estimates of log Z; 0: only at the end.", 0)
flags.DEFINE_boolean(
    "ais_if_flagged", True, "With --early_stopping, use AIS wherever a health flag says not to trust the tracked log Z."
)
flags.DEFINE_string("ais_betas", "1000", "Temperatures of AIS during training, or 'paper' for its 21,000.")
flags.DEFINE_string("final_ais_betas", "paper", "Temperatures of the AIS bracket at the end; 0 for none.")
flags.DEFINE_integer("ais_chains", 100, "Chains of AIS.", 2)
flags.DEFINE_integer("exact_every", 0, "Updates between exact log Z, for 25 units or fewer; 0: only at the end.", 0)
flags.DEFINE_boolean("early_stopping", False, "Stop when the validation likelihood has got worse; report the best.")
flags.DEFINE_integer("patience", 10, "Evaluations in a row that have to be worse, beyond their errors, or flagged.", 1)
flags.DEFINE_integer("eval_rows", 10_000, "Rows of each part (drawn once) to look at during training.", 2)
flags.DEFINE_boolean("jit", True, "Compile with XLA.")

MAX_BLOCK = 250  # updates in one call of the compiled graph
Z_VALUE = 1.645  # one-sided 95 %
MIN_AIS_ESS = 0.1  # of the chains of AIS, for its estimate to be taken in place of a flagged one


class Best(NamedTuple):
    """The best evaluation so far: its step, validation log-likelihood and standard deviation, nats; how many
    evaluations in a row were worse since, or not to be trusted; and whether this one had a health flag."""

    step: int = -1
    log_likelihood: float = -math.inf
    std: float = 0.0
    num_worse: int = 0
    is_flagged: bool = True


class Store(tf.Module):
    """Variables for everything that a checkpoint has to hold."""

    def __init__(self, state: SMLState) -> None:
        super().__init__()
        temps = state.ladder.beta.shape[0]
        changing = {temps - 1, temps, temps + 1} if FLAGS.spawn_up_to else set()
        self.best = tf.Variable(np.array(Best(), np.float64))
        self.leaves = [
            tf.Variable(leaf, shape=[None if size in changing else size for size in leaf.shape])
            for leaf in tf.nest.flatten(state)
        ]
        self._structure = state

    def assign(self, state: SMLState, best: Best) -> None:
        for variable, leaf in zip(self.leaves, tf.nest.flatten(state), strict=True):
            variable.assign(leaf)
        self.best.assign(np.array(best, np.float64))

    def read(self) -> tuple[SMLState, Best]:
        state = tf.nest.pack_sequence_as(self._structure, [tf.convert_to_tensor(leaf) for leaf in self.leaves])
        step, log_likelihood, std, num_worse, is_flagged = self.best.numpy()
        return state, Best(int(step), float(log_likelihood), float(std), int(num_worse), bool(is_flagged))


class Trainer:
    """One run: what is fixed, and the state, which :meth:`advance` replaces."""

    def __init__(self, data: binary_data.BinaryData, run: run_dir.RunDir, writer: ScalarWriter, store: Store) -> None:
        self.data, self.run, self.writer, self.store = data, run, writer, store
        self.state, self.best = store.read()
        self.should_stop = False
        self.seed = named_seed(FLAGS.seed, "train")
        every = [FLAGS.log_every, FLAGS.eval_every, FLAGS.checkpoint_every, FLAGS.ais_every, FLAGS.exact_every]
        self.block = block_size(MAX_BLOCK, *every)
        self.update = compiled_updates(config(), jit_compile=FLAGS.jit)
        self.train_rows = tf.constant(data.train)
        self.looked_at = {name: some_rows(getattr(data, name), name) for name in ("train", "valid")}
        self.swap_rates: list[np.ndarray] = []

    def rows_at(self, step: int) -> tuple[np.ndarray, int]:
        """Rows [K, B] of the minibatches of the updates from `step` on, and how many of the K to run."""
        count = min(self.block - step % self.block, FLAGS.num_steps - step)
        size = min(FLAGS.batch_size, len(self.data.train))
        rows = np.zeros([self.block, size], np.int32)
        for i in range(count):
            rows[i] = batch_indices(FLAGS.seed, step + i, len(self.data.train), size)
        return rows, count

    def advance(self, batch: tuple[np.ndarray, int], seed: tf.Tensor) -> Observed:
        """Run one block; its noise is a function of --seed and the number of each update."""
        del seed
        rows, count = batch
        self.state, observed = self.update(
            self.state, self.train_rows, tf.constant(rows), tf.constant(count), self.seed
        )
        return Observed._make(value.numpy()[:count] for value in observed)

    def after_block(self, step: int, observed: Observed) -> None:
        """Log, evaluate and save, each at its own steps."""
        if not all(np.isfinite(part).all() for part in (*self.state.rbm, observed.log_z)):
            raise TrainingFailed(
                f"the parameters or log Z are no longer finite after update {step}: the chains have diverged."
            )
        self.swap_rates.extend(observed.swap_rate)
        is_last = step == FLAGS.num_steps
        scalars: dict[str, float] = {}
        is_evaluated = is_last or step % FLAGS.eval_every == 0
        if is_evaluated or step % FLAGS.log_every == 0:
            scalars |= self.filter_scalars(observed)
        if is_evaluated:
            scalars |= self.evaluate(step, observed)
        if is_last or is_due(step, FLAGS.exact_every):
            scalars |= self.exact()
        if is_due(step, FLAGS.ais_every) and "ais/log_z_nats" not in scalars:
            scalars |= self.ais(step)
        if scalars:
            self.writer.write(step, scalars)
        if FLAGS.spawn_up_to > self.num_temps and step % FLAGS.log_every == 0:
            self.spawn(step)
        if is_last or step % FLAGS.checkpoint_every == 0 or self.should_stop:
            self.save(step)
        if self.should_stop and not is_last:
            raise StopEarly(step)

    @property
    def num_temps(self) -> int:
        return int(self.state.ladder.beta.shape[0])

    def save(self, step: int) -> None:
        self.store.assign(self.state, self.best)
        checkpoints.save(self.run.checkpoint_dir, step, store=self.store, step=tf.Variable(step, dtype=tf.int64))

    def filter_scalars(self, observed: Observed) -> dict[str, float]:
        """What the tracker measured, and the ladder; swap rates are means since the last line."""
        rates = np.mean(self.swap_rates, axis=0)
        self.swap_rates = []
        scalars = {f"swap/rate_{i:02d}": rate for i, rate in enumerate(rates, start=1)}
        scalars |= {f"ladder/beta_{i:02d}": beta for i, beta in enumerate(self.state.ladder.beta.numpy(), start=1)}
        if not FLAGS.track:
            return scalars
        return scalars | {
            "tracker/log_z_nats": observed.log_z[-1],
            "tracker/log_z_std_nats": observed.log_z_std[-1],
            "tracker/bias_nats": observed.bias[-1],
            "tracker/change_nats": observed.change[-1],
            "tracker/bridge_sum_nats": observed.bridge_sum[-1],
            "tracker/nis": observed.nis[-1],
            "tracker/inflation": observed.inflation[-1],
            "tracker/ess": observed.ess[-1],
            "tracker/lag_nats": observed.lag[-1],
            "tracker/flags": observed.flags[-1],
        }

    def evaluate(self, step: int, observed: Observed) -> dict[str, float]:
        """Log-likelihoods by the tracked log Z; keeps the best parameters and decides whether to stop."""
        self.images(step)
        if not FLAGS.track:
            return {}
        each = {name: log_likelihoods(self.state, rows) for name, rows in self.looked_at.items()}
        values = {name: float(rows.mean()) for name, rows in each.items()}
        highest = max(float(rows.max()) for rows in each.values())
        valid, std, reasons = values["valid"], float(observed.log_z_std[-1]), int(observed.flags[-1])
        by_ais: dict[str, float] = {}
        is_flagged = reasons & ~TRAILS != 0
        if is_flagged and FLAGS.early_stopping and FLAGS.ais_if_flagged:
            by_ais = self.ais(step)
            change = float(observed.log_z[-1]) - by_ais["ais/log_z_nats"]
            by_ais["valid/ais_log_likelihood_nats"] = valid + change
            if by_ais["ais/ess"] >= MIN_AIS_ESS * FLAGS.ais_chains:
                valid, highest, std = valid + change, highest + change, by_ais["ais/log_z_std_nats"]
                is_flagged = False
        if highest > 0:
            logging.warning(
                "update %d: log Z is too low by %.1f nats or more, since a row has log p = %.1f: chains miss a mode. "
                "Lower --lr.",
                step,
                highest,
                highest,
            )
        # An estimate with a health flag never takes the place of one without.
        is_possible = highest <= Z_VALUE * std
        is_higher = valid - Z_VALUE * std > self.best.log_likelihood - Z_VALUE * self.best.std
        if is_possible and (self.best.is_flagged if is_flagged != self.best.is_flagged else is_higher):
            self.best = Best(step, valid, std, is_flagged=is_flagged)
            if FLAGS.early_stopping:
                save_rbm(self.run.path / "best.npz", self.saved(step, observed))
        else:
            gain = valid - self.best.log_likelihood + Z_VALUE * math.hypot(std, self.best.std)
            is_no_better = gain < 0 or (is_flagged and not self.best.is_flagged)
            num_worse = self.best.num_worse + 1 if is_no_better else 0
            self.best = self.best._replace(num_worse=num_worse)
            self.should_stop = FLAGS.early_stopping and num_worse >= FLAGS.patience
        if reasons:
            logging.info("update %d: log Z may be off: %s", step, ", ".join(flag_names(reasons)))
        return {
            "tracker/highest_log_p_nats": highest,
            **by_ais,
            **{f"{name}/log_likelihood_nats": value for name, value in values.items()},
        }

    def saved(self, step: int, observed: Observed) -> SavedRBM:
        return SavedRBM(
            self.state.rbm,
            float(observed.log_z[-1]),
            float(observed.log_z_std[-1]),
            self.state.ladder.beta.numpy(),
            step,
        )

    def exact(self) -> dict[str, float]:
        if min(self.data.train.shape[1], FLAGS.hidden) > exact.MAX_UNITS:
            return {}
        return {"exact/log_z_nats": exact.log_z_exact(self.state.rbm)}

    def ais(self, step: int) -> dict[str, float]:
        result = run_ais(self.state, self.data, FLAGS.ais_betas, tf.random.fold_in(named_seed(FLAGS.seed, "ais"), step))
        return {
            "ais/log_z_nats": result.log_z,
            "ais/log_z_std_nats": result.standard_error,
            "ais/ess": result.ess,
        }

    def spawn(self, step: int) -> None:
        """Add a temperature if swaps or round trips ask for one."""
        level = spawn_level(self.state.ladder, self.state.tracker.health.swap_rate.numpy())
        if level is not None:
            self.state = spawn(self.state, level)
            self.swap_rates = []
            logging.info("update %d: temperature %d of %d added", step, level + 2, self.num_temps)

    def images(self, step: int) -> None:
        """Filters and what the particles at beta = 1 look like, for TensorBoard."""
        if self.data.image_shape is None:
            return
        filters, samples = pictures(self.state, self.data.image_shape)
        self.writer.image(step, "filters", plots.tiled(filters))
        self.writer.image(step, "samples", plots.tiled(samples))
        self.writer.histogram(step, "weights", self.state.rbm.W)


class StopEarly(Exception):
    """The validation likelihood has got worse; `step` is the last update."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def config() -> SMLConfig:
    return SMLConfig(
        learning_rate=FLAGS.lr,
        lr_decay=FLAGS.lr_decay,
        gibbs_steps=FLAGS.gibbs_steps,
        swaps=FLAGS.swaps,
        gradient_chains=FLAGS.chains if FLAGS.track_chains else None,
        centred=FLAGS.centred,
        adaptive=FLAGS.adaptive or FLAGS.spawn_up_to > 0,
        track=FLAGS.track,
        bias=FLAGS.bias,
        sigma_z=FLAGS.sigma_z,
        bridge_iterations=FLAGS.bridge_iterations,
        generator=FLAGS.generator,
    )


def first_state(data: binary_data.BinaryData) -> SMLState:
    dtype = tf.float64 if not FLAGS.float32 else tf.float32
    rbm = initial_rbm(FLAGS.hidden, seed=named_seed(FLAGS.seed, "init"), data=data.train, dtype=dtype)
    chains = FLAGS.chains + FLAGS.track_chains
    return initial_state(
        rbm, linear_ladder(FLAGS.temps), chains, seed=named_seed(FLAGS.seed, "chains"), data=data.train
    )


def load_data() -> binary_data.BinaryData:
    if FLAGS.data is not None:
        return binary_data.read_binary_table(FLAGS.data)
    return binary_data.load_binary(FLAGS.dataset or "digits", FLAGS.data_dir)


def is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def some_rows(rows: np.ndarray, name: str) -> np.ndarray:
    if len(rows) <= FLAGS.eval_rows:
        return rows
    return rows[np.sort(numpy_rng(FLAGS.seed, f"eval/{name}").choice(len(rows), FLAGS.eval_rows, replace=False))]


def schedule(text: str) -> np.ndarray:
    return ais.paper_schedule() if text == "paper" else ais.linear_schedule(int(text))


def run_ais(state: SMLState, data: binary_data.BinaryData, betas: str, seed: tf.Tensor) -> ais.AISResult:
    return ais.ais(
        state.rbm,
        schedule(betas),
        num_chains=FLAGS.ais_chains,
        seed=seed,
        base_b=base_rate_biases(data.train),
        generator=FLAGS.generator,
    )


def pictures(state: SMLState, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Filters of up to 100 hidden units, and probabilities of the pixels given the particles at beta = 1."""
    filters = state.rbm.W.numpy()[:100].reshape(-1, *shape)
    at_target = tf.equal(state.chains.level, 0)
    hidden = tf.sigmoid(tf.boolean_mask(state.chains.a, at_target))
    samples = visible_probs(state.rbm, hidden).numpy().reshape(-1, *shape)
    spread = np.abs(filters).max() or 1.0
    return 0.5 + 0.5 * filters / spread, samples


def fit(data: binary_data.BinaryData, run: run_dir.RunDir) -> tuple[Trainer, bool, float]:
    """Train, from the newest checkpoint if there is one; returns the trainer, whether it stopped early, and seconds."""
    store = Store(first_state(data))
    step = tf.Variable(0, dtype=tf.int64)
    restored = checkpoints.restore(run.checkpoint_dir, store=store, step=step)
    start = time.monotonic()
    with ScalarWriter(run, resume_step=restored) as writer:
        trainer = Trainer(data, run, writer, store)
        stopped = is_stopped(trainer)
        try:
            if not stopped:
                train(
                    trainer.advance,
                    trainer.rows_at,
                    step=step,
                    num_steps=FLAGS.num_steps,
                    seed=trainer.seed,
                    after_step=trainer.after_block,
                    steps_per_call=trainer.block,
                    progress=FLAGS.progress,
                    max_seconds=FLAGS.max_seconds,
                )
        except StopEarly:
            stopped = True
        except Interrupted as stop:
            trainer.save(stop.step)
            raise
    return trainer, stopped, time.monotonic() - start


def is_stopped(trainer: Trainer) -> bool:
    """Whether the run had stopped early before it was resumed."""
    return bool(FLAGS.early_stopping and trainer.best.num_worse >= FLAGS.patience)


def report(data: binary_data.BinaryData, trainer: Trainer, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Log-likelihoods of the reported parameters by the tracked log Z, a bracket of AIS and, if possible, exactly."""
    state, best = trainer.state, trainer.best
    tracked = float(state.tracker.mean[0]), float(tf.sqrt(state.tracker.cov[0, 0]))
    step = int(state.step)
    if FLAGS.early_stopping and FLAGS.track and best.step >= 0:
        saved = load_rbm(trainer.run.path / "best.npz")
        state = state._replace(rbm=saved.rbm)
        tracked, step = (saved.log_z, saved.log_z_std), saved.step
    save_rbm(trainer.run.path / "rbm.npz", SavedRBM(state.rbm, *tracked, state.ladder.beta.numpy(), step))
    log_z: dict[str, Any] = {}
    if FLAGS.track:
        log_z["tracked"] = {"log_z_nats": tracked[0], "std_nats": tracked[1]}
        for line in records:
            if line["step"] == step and line.get("tracker/flags") is not None:
                reasons = flag_names(int(line["tracker/flags"]))
                log_z["tracked"] |= {"lag_nats": line["tracker/lag_nats"], "flags": reasons}
    if min(state.rbm.W.shape) <= exact.MAX_UNITS:
        log_z["exact"] = {"log_z_nats": exact.log_z_exact(state.rbm)}
    if FLAGS.final_ais_betas != "0":
        log_z |= final_bracket(data, state)
    mean_log_q = {name: mean_log_prob_unnormalised(state, getattr(data, name)) for name in ("train", "valid", "test")}
    for entry in log_z.values():
        for name, value in mean_log_q.items():
            entry[f"{name}_log_likelihood_nats"] = value - entry["log_z_nats"]
    return {"step": step, **log_z}


def final_bracket(data: binary_data.BinaryData, state: SMLState) -> dict[str, Any]:
    """AIS from below, and from above by samples of parallel tempering at the final parameters."""
    seed = named_seed(FLAGS.seed, "final_ais")
    forward_seed, sample_seed, reverse_seed = tf.unstack(tf.random.experimental.stateless_split(seed, 3))
    lower = run_ais(state, data, FLAGS.final_ais_betas, forward_seed)
    chains = state.chains._replace(a=tf.linalg.matmul(state.chains.v, state.rbm.W, transpose_b=True) + state.rbm.c)
    samples = sample(
        state.rbm,
        chains,
        state.ladder.beta.numpy(),
        FLAGS.ais_chains,
        seed=sample_seed,
        generator=FLAGS.generator,
    )
    upper = ais.reverse_ais(
        state.rbm,
        schedule(FLAGS.final_ais_betas),
        samples,
        seed=reverse_seed,
        base_b=base_rate_biases(data.train),
        generator=FLAGS.generator,
    )
    return {
        name: {
            "log_z_nats": result.log_z,
            "three_sigma_nats": list(result.interval),
            "ess": result.ess,
        }
        for name, result in (("ais", lower), ("reverse_ais", upper))
    }


def mean_log_prob_unnormalised(state: SMLState, rows: np.ndarray, chunk: int = 5000) -> float:
    sums = [
        tf.reduce_sum(
            tf.cast(log_prob_unnormalised(state.rbm, tf.cast(rows[i : i + chunk], state.rbm.W.dtype)), tf.float64)
        )
        for i in range(0, len(rows), chunk)
    ]
    return float(tf.add_n(sums)) / len(rows)


def logged_errors(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The tracked log Z against the exact one, over all updates where both were logged."""
    pairs = [r for r in records if r.get("exact/log_z_nats") is not None and r.get("tracker/log_z_nats") is not None]
    if not pairs:
        return {}
    return tracking_errors(
        [r["tracker/log_z_nats"] - r["exact/log_z_nats"] for r in pairs],
        [r["tracker/log_z_std_nats"] for r in pairs],
        [int(r["tracker/flags"]) for r in pairs],
    )


def make_plots(data: binary_data.BinaryData, trainer: Trainer, records: list[dict[str, Any]]) -> list[Path]:
    """Figure 3 and Figure 4 of this run, filters and samples."""
    folder = trainer.run.plots_dir
    folder.mkdir(exist_ok=True)

    def line(tag: str, style: str = "-", spread: str | None = None, factor: float = 1.0) -> Line | None:
        return plots.recorded(records, tag, style, spread, factor)

    def present(**candidates: Line | None) -> dict[str, Line]:
        return {label.replace("_", " "): points for label, points in candidates.items() if points is not None}

    filter_panels = {
        "log Z": present(
            bridges=line("tracker/bridge_sum_nats", "."),
            tracked=line("tracker/log_z_nats", "-", "tracker/log_z_std_nats", 1.96),
            AIS=line("ais/log_z_nats", "o", "ais/log_z_std_nats", 3.0),
            exact=line("exact/log_z_nats", "x"),
        ),
        "change in an update": present(importance=line("tracker/change_nats", "."), bias=line("tracker/bias_nats")),
        "inverse temperatures": {
            f"beta {i}": points
            for i in range(1, trainer.num_temps + 1)
            if (points := line(f"ladder/beta_{i:02d}")) is not None
        },
    }
    paths = []
    if FLAGS.track:
        paths.append(folder / "log_z.png")
        plots.lines(paths[-1], filter_panels, xlabel="update", ylabel="nats")
        paths.append(folder / "log_likelihood.png")
        plots.lines(paths[-1], {"log-likelihood": likelihood_lines(records)}, xlabel="update", ylabel="nats per row")
    if data.image_shape is not None:
        filters, samples = pictures(trainer.state, data.image_shape)
        paths.append(folder / "filters_and_samples.png")
        plots.image_grid(
            paths[-1],
            {"filters": filters, "samples": samples, "data": data.train[:100].reshape(-1, *data.image_shape)},
        )
    return paths


def likelihood_lines(records: list[dict[str, Any]]) -> dict[str, Line]:
    """Training and validation log-likelihood by each estimate of log Z."""
    lines = {}
    for part in ("train", "valid"):
        tag = f"{part}/log_likelihood_nats"
        rows = [r for r in records if r.get(tag) is not None]
        lines[f"{part}, tracked"] = Line(
            [r["step"] for r in rows], [r[tag] for r in rows], [1.96 * r["tracker/log_z_std_nats"] for r in rows]
        )
        for method, style in (("ais", "o"), ("exact", "x")):
            both = [r for r in rows if r.get(f"{method}/log_z_nats") is not None]
            if both:
                values = [r[tag] + r["tracker/log_z_nats"] - r[f"{method}/log_z_nats"] for r in both]
                lines[f"{part}, {method}"] = Line([r["step"] for r in both], values, None, style)
    return lines


def table(result: dict[str, Any]) -> str:
    """Log-likelihoods by each estimate of log Z as aligned text."""
    rows: list[tuple[str, ...]] = [("log Z by", "log Z", "valid", "test", "")]
    for name in ("tracked", "exact", "ais", "reverse_ais"):
        if name in result:
            entry = result[name]
            values = (entry["log_z_nats"], entry["valid_log_likelihood_nats"], entry["test_log_likelihood_nats"])
            note = f"± {entry['std_nats']:.2f}" if "std_nats" in entry else ""
            if "lag_nats" in entry:
                note += f", lag up to {entry['lag_nats']:.2f}, flagged: {', '.join(entry['flags']) or 'no'}"
            if "three_sigma_nats" in entry:
                low, high = entry["three_sigma_nats"]
                note = f"3 sigma {low:.2f} to {high:.2f}, {entry['ess']:.0f} effective of {FLAGS.ais_chains}"
            rows.append((name, *(f"{value:.3f}" for value in values), note))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in (1, 2, 3)), row[4]]).rstrip()
        for row in rows
    )


def stored_flags() -> str:
    """The flags without the alias --updates of --num_steps."""
    return "".join(line + "\n" for line in flags_text().splitlines() if not line.startswith("--updates="))


def run_all(start: float) -> None:
    for name in ("target", "task"):
        if getattr(FLAGS, name) is not None:
            raise ValueError(f"--{name} is for supervised scripts; an RBM models all columns. Leave it out.")
    if FLAGS.early_stopping and not FLAGS.track:
        raise ValueError("--early_stopping needs the tracked log Z; leave out --notrack.")
    apply_threads(FLAGS.threads)
    data = load_data()
    record = run_dir.provenance(data.sha256, seed=FLAGS.seed, data_source=data.source)
    run = run_dir.open_run(FLAGS.run_dir, flags_text=stored_flags(), provenance=record, resume=FLAGS.resume)
    if not plots.is_available():
        logging.warning("Matplotlib is not installed, so there will be no plots; `pip install matplotlib`.")
    sizes = {name: len(getattr(data, name)) for name in ("train", "valid", "test")}
    print(f"{data.name}: {data.source}")
    print(f"RBM of {data.train.shape[1]} visible and {FLAGS.hidden} hidden units; rows: {sizes}", flush=True)
    trainer, stopped, seconds = fit(data, run)
    records = read_scalars(run.scalars_file)
    result = report(data, trainer, records)
    errors = logged_errors(records)
    if plots.is_available():
        with ScalarWriter(run, resume_step=int(trainer.state.step)) as writer:
            for path in make_plots(data, trainer, records):
                writer.image(int(trainer.state.step), path.stem, path)
    print("\n" + table(result) + "\nlog-likelihoods: nats per row, mean over the rows")
    if stopped:
        print(f"stopped early after update {int(trainer.state.step)}; reported: update {result['step']}")
    if errors:
        print(
            "tracked against exact log Z: rmse {rmse_nats:.3f}, largest error {max_nats:.3f} nats over {num_exact} "
            "updates; 95 % intervals cover {coverage_95:.1%}; trails {trails:.1%}, other flags {flagged:.1%}".format(
                **errors
            )
        )
    run_dir.write_json(
        run.result_file,
        {
            "dataset": data.name,
            "seed": FLAGS.seed,
            "rows": sizes,
            "hidden": FLAGS.hidden,
            "updates": int(trainer.state.step),
            "stopped_early": stopped,
            "num_temps": trainer.num_temps,
            **result,
            "tracking": errors,
            "train_seconds": seconds,
            "wall_seconds": time.monotonic() - start,
            "flags": stored_flags().splitlines(),
        },
    )
    print(f"written to {run.path}")


def explain(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, TrainingFailed):
        return f"{error} Lower --lr, or let it decay with --lr_decay=1000; checkpoints are kept.", 1
    return None


def main(argv: list[str]) -> int:
    return run_script(argv, run_all, explain)


if __name__ == "__main__":
    app.run(main)
