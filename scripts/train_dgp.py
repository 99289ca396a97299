#!/usr/bin/env python3
"""Train a deep Gaussian process on a data set or your own table, and a single-layer GP beside it.

    train_dgp.py --run_dir=runs/first
    train_dgp.py --run_dir=runs/houses --data=houses.csv --target=price --layers=3
    train_dgp.py --run_dir=runs/first --resume --num_steps=20000
    train_dgp.py --run_dir=runs/taxi --stream --stream_preset=taxi --data="trips/*.csv" --strategy=mirrored

Inputs (and regression targets) are standardised with the training part; every reported number is in the units of the
data. Predictions never choose anything: test scores are logged to look at, and the last parameters are reported. Ctrl-C
saves a checkpoint. The folder of the run gets:

    result.json             scores of the deep GP and of what it is compared with
    model.npz, inputs.json  the trained model and how its inputs are made, for predict_dgp.py
    scalars.jsonl, tensorboard/, plots/, checkpoints/, gp/ (the same for the single-layer GP)

With --stream the files of --data may be larger than memory, and scores are those of samples of the validation and test
rows (--stream_sample); docs/scaling.md has more about streams, several devices and several machines.
"""

import importlib.util
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

if importlib.util.find_spec("experiment") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import gpflow
import numpy as np
import tensorflow as tf
from absl import app, flags, logging
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, MultiClass, Poisson, Softmax, StudentT

import gpflow_deep
from experiment import checkpoints, distribution, run_dir
from experiment.data import tables
from experiment.data.rows import Part, Splits, Standardizer, make_splits
from experiment.data.sets import supervised as datasets
from experiment.data.streams.stream import Stream
from experiment.flags import apply_threads, define_common_flags, flags_text
from experiment.loop import Interrupted, train
from experiment.report import plots
from experiment.scalars import ScalarWriter
from experiment.scale import Batches, define_scale_flags, keep_scan, load_stream, splits_of, strategy_from_flags
from experiment.script import TrainingFailed, own_words, run_script
from experiment.seeds import named_seed, numpy_rng
from gpflow_deep.scores import metrics, mixture_quantiles
from gpflow_deep.serialization import save_model

FLAGS = flags.FLAGS
define_common_flags()
define_scale_flags()
flags.DEFINE_integer("layers", 2, "Number of layers; 1 is a sparse variational GP.", 1)
flags.DEFINE_integer("inducing", 100, "Number of inducing inputs of every layer.", 1)
flags.DEFINE_integer("num_samples", 1, "Draws of the inner layers per point in the bound.", 1)
flags.DEFINE_integer("num_predict_samples", 100, "Draws of the inner layers in predictions.", 1)
flags.DEFINE_enum("preset", "paper2017", ["paper2017", "modern"], "Starting values, see gpflow_deep.presets.")
flags.DEFINE_boolean("natgrad", None, "Natural gradients for the last layer; the preset's choice if not given.")
flags.DEFINE_float(
    "natgrad_gamma",
    None,
    "Step size of natural gradients; 0.1 for a Gaussian likelihood, else 0.01, if not given.",
    0.0,
)
flags.DEFINE_float("learning_rate", 0.01, "Step size of Adam.", 0.0)
flags.DEFINE_integer("hidden_dim", None, "Outputs of the inner layers; min(30, inputs) if not given.", 1)
flags.DEFINE_float(
    "noise_variance", None, "Of the noise between layers at the start, 0 for none; preset's if not given."
)
flags.DEFINE_boolean("whiten", True, "Hold q(L^-1 u) instead of q(u).")
flags.DEFINE_enum("precision", "mixed", ["full", "mixed", "fast"], "Of the inner layers, see gpflow_deep.layers.")
flags.DEFINE_boolean("input_propagation", False, "Give every layer the inputs beside the outputs below it.")
flags.DEFINE_float("lengthscale", None, "Of all kernels at the start; the preset's if not given.")
flags.DEFINE_float("kernel_variance", None, "Of all kernels at the start; 1 if not given.")
flags.DEFINE_boolean("ard", True, "One lengthscale for each input of a layer.")
flags.DEFINE_enum(
    "likelihood",
    "auto",
    ["auto", "gaussian", "studentt", "poisson", "bernoulli", "robustmax", "softmax"],
    "auto: gaussian, bernoulli or robustmax, after the task.",
)
flags.DEFINE_float("valid_fraction", 0.1, "Part of the training rows to set aside for validation; 0 for none.", 0.0)
flags.DEFINE_enum("standardise", "auto", ["auto", "yes", "no"], "Standardise the inputs; auto: all but images.")
flags.DEFINE_integer("max_rows", None, "Use at most this many rows, drawn at random, in each part of the data.", 2)
flags.DEFINE_integer("eval_rows", 10_000, "Rows (drawn once) to look at during training; the end uses all.", 2)
flags.DEFINE_list("compare", ["gp"], "What to fit beside the deep GP: gp, linear, both, or nothing (--compare=).")

IMAGES = ("mnist", "rectangles_images")
LIKELIHOODS = {
    "regression": ("gaussian", "studentt", "poisson"),
    "binary": ("bernoulli", "robustmax", "softmax"),
    "multiclass": ("robustmax", "softmax"),
}


class Data(NamedTuple):
    """The data as the model sees them. `parts` has "valid" (unless there is none) and "test" in raw units.

    Of a stream, `X`, `Y` and `parts` are samples.
    """

    X: np.ndarray
    Y: np.ndarray
    parts: dict[str, Part]
    splits: Splits
    x_scale: Standardizer
    y_scale: Standardizer
    likelihood: str
    stream: Stream | None

    @property
    def num_rows(self) -> int:
        """Number of training rows."""
        return len(self.X) if self.stream is None else self.stream.counts["train"]

    def standardised(self, part: Part) -> Part:
        """Rows as the model sees them."""
        scaled = self.x_scale.transform(part.X), self.y_scale.transform(part.Y)
        return Part(*(array.astype(gpflow.default_float()) for array in scaled))


def load_data() -> Data:
    """Read, split and standardise."""
    stream = load_stream() if FLAGS.stream else None
    if stream is not None:
        splits = splits_of(stream)
    else:
        splits = load_splits()
    allowed = LIKELIHOODS[splits.task]
    likelihood = allowed[0] if FLAGS.likelihood == "auto" else FLAGS.likelihood
    if likelihood not in allowed:
        raise ValueError(f"--likelihood must be one of {', '.join(allowed)} for {splits.task}, got {likelihood}.")
    rows = FLAGS.max_rows
    if rows is not None and stream is not None:
        raise ValueError("--max_rows is for data in memory; give --stream_sample for what is kept of a stream.")
    part = some_rows(splits.train, rows, "train")
    parts = {"test": some_rows(splits.test, rows, "test")}
    if splits.valid is not None:
        parts = {"valid": some_rows(splits.valid, rows, "valid"), **parts}
    if likelihood == "poisson" and any(np.any((p.Y < 0) | (p.Y % 1 != 0)) for p in (part, *parts.values())):
        raise ValueError(f"--likelihood=poisson needs counts 0, 1, 2, ... in {splits.target_name!r}; use gaussian.")
    is_scaled = FLAGS.standardise == "yes" or (FLAGS.standardise == "auto" and splits.name not in IMAGES)
    x_scale, y_scale = (Standardizer.identity(a.shape[1]) for a in part)
    if is_scaled:
        x_scale = Standardizer.fit(part.X) if stream is None else Standardizer(*stream.x_scale)
    if likelihood in ("gaussian", "studentt"):
        y_scale = Standardizer.fit(part.Y) if stream is None else Standardizer(*stream.y_scale)
    if x_scale.constant_columns:
        names = ", ".join(splits.feature_names[d] for d in x_scale.constant_columns)
        logging.warning("These inputs do not vary in the training part and have no effect: %s.", names)
    data = Data(part.X, part.Y, parts, splits, x_scale, y_scale, likelihood, stream)
    X, Y = data.standardised(part)
    if len(X) < FLAGS.inducing:
        logging.warning("--inducing=%d is more than the %d training rows; fewer would do.", FLAGS.inducing, len(X))
    return data._replace(X=X, Y=Y)


def load_splits() -> Splits:
    """A table or known data set, in memory."""
    if FLAGS.data is not None:
        dataset = tables.read_table(FLAGS.data, target=FLAGS.target, task=FLAGS.task)
    elif FLAGS.target is not None or FLAGS.task is not None:
        raise ValueError("--target and --task describe your own table; give it with --data, or leave them out.")
    else:
        dataset = datasets.load(FLAGS.dataset or "airline_nyc", FLAGS.data_dir)
    return make_splits(dataset, split=FLAGS.split, valid_fraction=FLAGS.valid_fraction, seed=FLAGS.seed)


def some_rows(part: Part, max_rows: int | None, name: str) -> Part:
    if max_rows is None or len(part.X) <= max_rows:
        return part
    rows = np.sort(numpy_rng(FLAGS.seed, f"max_rows/{name}").choice(len(part.X), max_rows, replace=False))
    return Part(part.X[rows], part.Y[rows])


def eval_rows(num_rows: int, name: str) -> np.ndarray:
    """The rows of a part that are looked at during training."""
    if num_rows <= FLAGS.eval_rows:
        return np.arange(num_rows)
    return np.sort(numpy_rng(FLAGS.seed, f"eval/{name}").choice(num_rows, FLAGS.eval_rows, replace=False))


def build_model(data: Data, num_layers: int) -> gpflow_deep.DeepGP:
    """The preset with the flags' settings."""
    is_modern = FLAGS.preset == "modern"
    settings: dict[str, Any] = {
        "num_inducing": FLAGS.inducing,
        "likelihood": build_likelihood(data),
        "hidden_dim": FLAGS.hidden_dim,
        "kernels": build_kernels(data.X.shape[1], num_layers),
        "input_propagation": FLAGS.input_propagation,
        "num_samples": FLAGS.num_samples,
        "precision": FLAGS.precision,
        "num_data": data.num_rows,
        "seed": int(numpy_rng(FLAGS.seed, "init").integers(2**31)),
    }
    if is_modern:
        if FLAGS.noise_variance is not None or not FLAGS.whiten:
            raise ValueError("--noise_variance and --nowhiten need --preset=paper2017.")
        model = gpflow_deep.modern(data.X, data.Y, num_layers, natural_gradients=uses_natgrad(), **settings)
    else:
        if FLAGS.noise_variance is not None:
            settings["noise_variance"] = FLAGS.noise_variance or None
        model = gpflow_deep.paper2017(data.X, data.Y, num_layers, whiten=FLAGS.whiten, **settings)
        if uses_natgrad():
            gpflow.set_trainable(model.layers[-1].q_mu, False)
            gpflow.set_trainable(model.layers[-1].q_sqrt, False)
    model.num_predict_samples = FLAGS.num_predict_samples
    return model


def uses_natgrad() -> bool:
    return FLAGS.preset == "modern" if FLAGS.natgrad is None else FLAGS.natgrad


def build_likelihood(data: Data) -> Likelihood:
    num_classes = len(data.splits.class_names)
    makers = {
        "gaussian": lambda: Gaussian(variance=0.01),
        "studentt": lambda: StudentT(scale=0.1),
        "poisson": Poisson,
        "bernoulli": Bernoulli,
        "robustmax": lambda: MultiClass(num_classes),
        "softmax": lambda: Softmax(num_classes),
    }
    return makers[data.likelihood]()


def build_kernels(input_dim: int, num_layers: int) -> list[SquaredExponential] | None:
    """One kernel for each layer, or None for those of the preset."""
    if FLAGS.lengthscale is None and FLAGS.kernel_variance is None and FLAGS.ard:
        return None
    hidden_dim = FLAGS.hidden_dim or min(30, input_dim)
    dims = [input_dim] + [hidden_dim + (input_dim if FLAGS.input_propagation else 0)] * (num_layers - 1)
    kernels = []
    for dim in dims:
        value = FLAGS.lengthscale or (np.sqrt(dim) if FLAGS.preset == "modern" else 1.0)
        lengthscales = np.full(dim, value) if FLAGS.ard else value
        kernels.append(SquaredExponential(variance=FLAGS.kernel_variance or 1.0, lengthscales=lengthscales))
    return kernels


class Predictor:
    """Predictions of a model in the units of the data; compiled once."""

    def __init__(self, model: gpflow_deep.DeepGP, data: Data) -> None:
        self.model, self.data = model, data
        dtype = gpflow.default_float()
        signature = [tf.TensorSpec([None, data.X.shape[1]], dtype), tf.TensorSpec([None, data.Y.shape[1]], dtype)]

        @tf.function(input_signature=signature, autograph=False)
        def predict(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            factors = model.factors()
            return model.predict_y(X, factors=factors)[0], model.predict_log_density((X, Y), factors=factors)

        self._predict = predict

    def __call__(self, part: Part) -> tuple[np.ndarray, np.ndarray]:
        """Means [N, P] of the targets and log densities [N] in nats."""
        data = self.data
        mean, log_density = (
            np.asarray(result, np.float64)
            for result in self._predict(self._inputs(part.X), data.y_scale.transform(part.Y).astype(data.Y.dtype))
        )
        if data.splits.task != "regression":
            return mean, log_density
        return data.y_scale.inverse_transform(mean), log_density - np.log(data.y_scale.scale).sum()

    def score(self, part: Part) -> dict[str, float]:
        return metrics(self.data.splits.task, part.Y, *self(part))

    def interval(self, X: np.ndarray, num_samples: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        """Means [N, P], limits [N, P] of the central 95%, and "95%".

        If the likelihood is not Gaussian, the limits are two standard deviations from the mean, and so says the text.
        """
        likelihood, back = self.model.likelihood, self.data.y_scale.inverse_transform
        if isinstance(likelihood, Gaussian):
            means, variances = self.model.predict_components(self._inputs(X), num_samples=num_samples)
            lower, upper = mixture_quantiles(means, variances + likelihood.variance, [0.025, 0.975])
            return back(np.mean(means, axis=0)), back(lower), back(upper), "95%"
        moments = self.model.predict_y(self._inputs(X), num_samples=num_samples)
        mean, var = (np.asarray(moment, np.float64) for moment in moments)
        spread = 2 * np.sqrt(var)
        return back(mean), back(mean - spread), back(mean + spread), "2 std. dev."

    def _inputs(self, X: np.ndarray) -> np.ndarray:
        return self.data.x_scale.transform(X).astype(self.data.X.dtype)


def layer_scalars(model: gpflow_deep.DeepGP) -> dict[str, float]:
    """What TensorBoard shows of every layer and of the likelihood."""
    scalars: dict[str, float] = {}
    for number, layer in enumerate(gpflow_deep.diagnose(model), start=1):
        name = f"layer_{number}"
        scalars[f"{name}/kl_nats"] = layer.kl_nats
        scalars[f"{name}/condition_Kuu"] = layer.condition_number
        scalars[f"{name}/jitter"] = layer.jitter
        scalars[f"{name}/noise_variance"] = layer.noise_variance
        scalars[f"{name}/kernel_variance"] = float(np.mean(layer.kernel_variances))
        lengthscales = np.ravel(layer.lengthscales)
        if len(lengthscales) <= 10:
            scalars.update({f"{name}/lengthscale_{d}": float(value) for d, value in enumerate(lengthscales)})
        else:
            for kind in ("min", "mean", "max"):
                scalars[f"{name}/lengthscale_{kind}"] = float(getattr(np, kind)(lengthscales))
    for name, parameter in gpflow.utilities.parameter_dict(model.likelihood).items():
        if np.size(parameter.numpy()) == 1:
            scalars[f"likelihood/{name.lstrip('.').replace('.', '_')}"] = float(parameter.numpy())
    return scalars


def fit(
    run: run_dir.RunDir,
    data: Data,
    num_layers: int,
    max_seconds: float | None,
    strategy: tf.distribute.Strategy | None,
) -> dict[str, Any]:
    """Train one model in its folder, or continue it, and score it. Only the chief of several workers writes."""
    is_chief = distribution.worker_of(strategy).is_chief
    with distribution.scope(strategy):
        model = build_model(data, num_layers)
        optimizer = tf.keras.optimizers.Adam(FLAGS.learning_rate)
    gamma = FLAGS.natgrad_gamma or (0.1 if data.likelihood == "gaussian" else 0.01)
    train_step = gpflow_deep.make_train_step(
        model, optimizer, natgrad_gamma=gamma if uses_natgrad() else None, strategy=strategy
    )
    step, seconds = tf.Variable(0, dtype=tf.int64), tf.Variable(0.0, dtype=tf.float64)
    stateful = {"model": model, "optimizer": optimizer, "step": step, "seconds": seconds}
    restored = checkpoints.restore(run.checkpoint_dir, **stateful) if FLAGS.resume else None
    distribution.check_same_step(strategy, int(step))
    predictor = Predictor(model, data)
    watched = {name: eval_rows(len(part.X), name) for name, part in data.parts.items()}
    batch_at = Batches(Part(data.X, data.Y), stream=data.stream, transform=data.standardised, strategy=strategy)
    last_time, logged_seconds, logged_wait = time.monotonic(), float(seconds), 0.0

    def save() -> None:
        bad = [variable.name for variable in model.trainable_variables if not np.all(np.isfinite(variable))]
        if bad:
            raise TrainingFailed(f"parameters are not finite after step {int(step)}: {', '.join(bad[:3])}.")
        checkpoints.save(run.checkpoint_dir, step, **stateful)
        save_model(model, run.path / "model.npz")

    def after_step(t: int, scalars: dict[str, tf.Tensor]) -> None:
        nonlocal last_time, logged_seconds, logged_wait
        is_logged, is_saved = t % FLAGS.log_every == 0, t % FLAGS.checkpoint_every == 0 or t == FLAGS.num_steps
        elbo = float(scalars["elbo_nats"]) if is_logged or is_saved else 0.0
        seconds.assign_add(time.monotonic() - last_time)
        if not np.isfinite(elbo):
            raise TrainingFailed(f"the bound is {elbo} at step {t}.")
        if is_logged and writer is not None:
            line = {"train/elbo_nats": elbo, "train/seconds": float(seconds)}
            if batch_at.wait_seconds is not None:
                waited, passed = batch_at.wait_seconds - logged_wait, float(seconds) - logged_seconds
                line["train/input_wait_percent"] = 100 * waited / passed
                logged_seconds, logged_wait = float(seconds), batch_at.wait_seconds
            writer.write(t, line)
        if t % FLAGS.eval_every == 0 and t < FLAGS.num_steps and writer is not None:
            log_scores(
                writer,
                t,
                {name: predictor.score(Part(*(a[watched[name]] for a in part))) for name, part in data.parts.items()},
            )
        if is_saved and is_chief:
            save()
        last_time = time.monotonic()

    def log_scores(writer: ScalarWriter, t: int, scores: dict[str, dict[str, float]]) -> None:
        tagged = {f"{part}/{name}": value for part, values in scores.items() for name, value in values.items()}
        writer.write(t, {**tagged, **layer_scalars(model)})

    is_finished = True
    with ScalarWriter(run, resume_step=restored) if is_chief else nullcontext() as writer:
        try:
            train(
                train_step,
                batch_at,
                step=step,
                num_steps=FLAGS.num_steps,
                seed=named_seed(FLAGS.seed, "train"),
                after_step=after_step,
                progress=FLAGS.progress,
                max_seconds=max_seconds,
            )
        except Interrupted as stop:
            if is_chief:
                save()
            if stop.reason != "max_seconds":
                raise
            is_finished = False
        except tf.errors.InvalidArgumentError as error:
            raise TrainingFailed(f"step {int(step) + 1} failed: {first_message(error)}") from error
        if writer is None:
            return {}
        means, scores, logged = {}, {}, {}
        for name, part in data.parts.items():
            means[name], log_density = predictor(part)
            scores[name] = metrics(data.splits.task, part.Y, means[name], log_density)
            rows = watched[name]
            logged[name] = metrics(data.splits.task, part.Y[rows], means[name][rows], log_density[rows])
        is_new = int(step) > (restored or 0)
        if is_new and (int(step) == FLAGS.num_steps or int(step) % FLAGS.eval_every != 0):
            log_scores(writer, int(step), logged)
        if plots.is_available():
            for path in draw(run, predictor, means["test"]):
                if is_new:
                    writer.image(int(step), f"plots/{path.stem}", path)
    return {
        "num_layers": num_layers,
        "num_steps": int(step),
        "is_finished": is_finished,
        "train_seconds": float(seconds),
        "num_parameters": sum(int(np.prod(parameter.shape)) for parameter in model.parameters),
        **scores,
    }


def draw(run: run_dir.RunDir, predictor: Predictor, mean: np.ndarray) -> list[Path]:
    """Plots of one model; `mean` are its predictions for the test part. Returns the files."""
    data = predictor.data
    test, splits, folder = data.parts["test"], data.splits, run.plots_dir
    single = run.path / "gp" / "scalars.jsonl"
    files = {title(len(predictor.model.layers)): run.scalars_file}
    if single.exists():
        files[title(1)] = single
    scores = ["log_likelihood_nats", "rmse" if splits.task == "regression" else "accuracy"]
    tags = ["train/elbo_nats", *(f"{part}/{score}" for part in data.parts for score in scores)]
    paths = [folder / "training.png"]
    plots.training_curves(paths[0], files, tags)
    if splits.task != "regression":
        paths.append(folder / "confusion_matrix.png")
        predicted = mean[:, 0] > 0.5 if mean.shape[1] == 1 else np.argmax(mean, axis=1)
        plots.confusion_matrix(paths[-1], test.Y[:, 0], predicted, splits.class_names)
        return paths
    names = splits.target_name.split(", ") if test.Y.shape[1] > 1 else [splits.target_name]
    rows = np.sort(numpy_rng(FLAGS.seed, "plot").permutation(len(test.X))[:2000])
    middle, lower, upper, what = predictor.interval(test.X[rows])
    paths.append(folder / "predicted_vs_true.png")
    plots.predicted_vs_true(paths[-1], test.Y[rows], middle, lower, upper, names=names, interval=what)
    if test.X.shape[1] == 1:
        paths.append(folder / "fit.png")
        low, high = data.X.min(), data.X.max()
        grid = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), 200)[:, None].astype(data.X.dtype)
        draws = predictor.model.predict_all_layers(grid, 20, full_cov=True).samples[:-1]
        X = data.x_scale.inverse_transform(grid)
        train_part = data.x_scale.inverse_transform(data.X), data.y_scale.inverse_transform(data.Y)
        middle, lower, upper, what = predictor.interval(X, num_samples=1000)
        plots.fit_1d(
            paths[-1],
            train_part,
            X,
            [np.asarray(draw)[:, :, 0] for draw in draws],
            (middle, lower, upper),
            names=(splits.feature_names[0], names[0]),
            interval=what,
        )
    return paths


def first_message(error: tf.errors.OpError) -> str:
    """What a failed check says, without TensorFlow's account of where the graph was built."""
    text = error.message.split("[[{{node")[0]
    for marker in ("assertion failed: [", "Cholesky factorisation failed", "gpflow.Parameter: "):
        if marker in text:
            text = text[text.index(marker) :].removeprefix("assertion failed: [")
            break
    else:
        text = own_words(text) or text
    return " ".join(text.split()).rstrip("] ").replace("] [", " ")


def fit_linear(data: Data) -> dict[str, Any]:
    """Least squares with Gaussian noise of the training residuals' variance, scored like the others."""
    if data.splits.task != "regression" or data.likelihood == "poisson":
        raise ValueError("--compare=linear needs a regression with real targets; leave it out.")
    start = time.monotonic()

    def with_one(X: np.ndarray) -> np.ndarray:
        return np.concatenate([data.x_scale.transform(X), np.ones([len(X), 1])], axis=1)

    X, Y = np.concatenate([data.X, np.ones([len(data.X), 1])], axis=1), data.Y.astype(np.float64)
    weights = np.linalg.lstsq(X.astype(np.float64), Y, rcond=None)[0]
    variance = np.mean(np.square(Y - X @ weights), axis=0)
    if not np.all(variance > 1e-12):
        raise ValueError("--compare=linear fits the training rows exactly, so it has no likelihood; leave it out.")
    scores = {}
    for name, part in data.parts.items():
        mean = with_one(part.X) @ weights
        residual = data.y_scale.transform(part.Y) - mean
        terms = np.log(2 * np.pi * variance) + np.square(residual) / variance
        log_density = -0.5 * terms.sum(axis=1) - np.log(data.y_scale.scale).sum()
        scores[name] = metrics("regression", part.Y, data.y_scale.inverse_transform(mean), log_density)
    return {"train_seconds": time.monotonic() - start, "num_parameters": weights.size + variance.size, **scores}


def title(num_layers: int) -> str:
    return "GP (1 layer)" if num_layers == 1 else f"deep GP ({num_layers} layers)"


def table(models: dict[str, dict[str, Any]]) -> str:
    """Scores of all models as aligned text."""
    headers = {"log_likelihood_nats": "log-likelihood", "rmse": "RMSE", "accuracy": "accuracy", "auc": "AUC"}
    columns = [
        (part, key)
        for part in ("valid", "test")
        for key in headers
        if key in models["gp" if "gp" in models else "dgp"].get(part, {})
    ]
    lines = [["", *(f"{part} {headers[key]}" for part, key in columns), "steps", "seconds"]]
    for name, result in models.items():
        cells = [f"{result[part].get(key, np.nan):.4f}" for part, key in columns]
        lines.append(
            [
                title(result["num_layers"]) if "num_layers" in result else name,
                *cells,
                str(result.get("num_steps", "")),
                f"{result['train_seconds']:.1f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def start_run(data: Data) -> run_dir.RunDir:
    """Make or continue the folder of the run, with how inputs are made."""
    splits = data.splits
    record = run_dir.provenance(splits.sha256, seed=FLAGS.seed, data_source=splits.source)
    run = run_dir.open_run(FLAGS.run_dir, flags_text=flags_text(), provenance=record, resume=FLAGS.resume)
    if data.stream is not None:
        keep_scan(data.stream)
    run_dir.write_json(
        run.path / "inputs.json",
        {
            "schema": tables.schema_of(splits).to_json(),
            "x_scale": data.x_scale.to_json(),
            "y_scale": data.y_scale.to_json(),
            "float32": FLAGS.float32,
        },
    )
    return run


def run_all(start: float) -> None:
    unknown = sorted(set(FLAGS.compare) - {"gp", "linear"})
    if unknown:
        raise ValueError(f"--compare may list gp and linear, got {', '.join(unknown)}.")
    if FLAGS.float32:
        gpflow.config.set_default_float(np.float32)
    apply_threads(FLAGS.threads)
    strategy = strategy_from_flags()
    worker = distribution.worker_of(strategy)
    data = load_data()
    splits = data.splits
    run = run_dir.RunDir(Path(FLAGS.run_dir))
    if worker.is_chief:
        run = start_run(data)
    if not plots.is_available():
        logging.warning("Matplotlib is not installed, so there will be no plots; `pip install matplotlib`.")
    sizes = {"train": data.num_rows, **{name: len(part.X) for name, part in data.parts.items()}}
    print(f"{splits.name}: {splits.source}")
    print(f"{splits.task} of {splits.target_name!r} on {data.X.shape[1]} inputs; rows: {sizes}")

    if data.stream is not None:
        print(f"rows of the stream: {data.stream.counts}; inducing inputs and scores are from samples")
    models: dict[str, dict[str, Any]] = {}
    if "linear" in FLAGS.compare:
        models["linear"] = fit_linear(data)
    jobs = [("gp", 1)] if "gp" in FLAGS.compare and FLAGS.layers > 1 else []
    jobs.append(("gp" if FLAGS.layers == 1 else "dgp", FLAGS.layers))
    for number, (name, num_layers) in enumerate(jobs):
        left = None
        if FLAGS.max_seconds is not None:
            left = max(0.0, FLAGS.max_seconds - (time.monotonic() - start)) / (len(jobs) - number)
        is_main = number == len(jobs) - 1
        print(f"training {'a GP' if num_layers == 1 else f'a deep GP of {num_layers} layers'} ...", flush=True)
        models[name] = fit(run if is_main else run_dir.RunDir(run.path / name), data, num_layers, left, strategy)
    if not worker.is_chief:
        return

    print("\n" + table(models))
    print(
        "log-likelihood: nats per row"
        + (f"; both in the units of {splits.target_name!r}" if splits.task == "regression" else "")
    )
    run_dir.write_json(
        run.result_file,
        {
            "dataset": splits.name,
            "task": splits.task,
            "target": splits.target_name,
            "likelihood": data.likelihood,
            "split": splits.split,
            "seed": FLAGS.seed,
            "rows": sizes,
            "stream_rows": None if data.stream is None else data.stream.counts,
            "num_predict_samples": FLAGS.num_predict_samples,
            "models": models,
            "wall_seconds": time.monotonic() - start,
            "flags": flags_text().splitlines(),
        },
    )
    print(f"written to {run.path}")


def explain(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, tf.errors.ResourceExhaustedError):
        if "No space left" in error.message:  # TensorFlow has one error for both
            return f"{first_message(error)}; free some space, then continue with --resume.", 2
        return f"out of memory; lower --batch_size or --inducing. {first_message(error)}", 1
    if (message := distribution.lost_worker(error)) is not None:
        return message, 1
    if isinstance(error, (TrainingFailed, tf.errors.InvalidArgumentError)):
        reason = str(error) if isinstance(error, TrainingFailed) else first_message(error)
        advice = "Lower --learning_rate (or --natgrad_gamma), or look for outliers in the data; checkpoints are kept."
        return f"{reason} {advice}", 1
    return None


def main(argv: list[str]) -> int:
    return run_script(argv, run_all, explain)


if __name__ == "__main__":
    app.run(main)
