"""What is said about a deep GP while it is trained and at the end: numbers by name, and tables as cells.

Tags are `part/quantity_unit`. Scores are in the units of the data; log-likelihoods are nats per row.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import gpflow
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.page import page

from . import pages
from .judge import evaluation
from .judge.evaluation import Evaluation, coverage_in_words, evaluate
from .judge.forecasts import LinearModel, label_numbers
from .layers import LatentVariableLayer, SVGPLayer
from .model.deep_gp import DeepGP
from .model.likelihoods import Task
from .model.scaling import REAL_TARGETS, Units
from .posteriors.diagnostics import diagnose
from .train.choosing.stored_choice import FoundTrainer
from .train.config import ModelConfig
from .train.fitting import Part, worse_than_simplest
from .train.predictor import Predicted, Predictor
from .train.sampled_training import SampledTrainer
from .train.training import Trainer, clear_errors

__all__ = [
    "Final",
    "Watch",
    "caption",
    "depth",
    "evaluate",
    "histograms",
    "html",
    "label",
    "layer_scalars",
    "linear_baseline",
    "metrics",
    "notes",
    "num_parameters",
    "scalars",
    "summary",
    "table",
    "text",
    "title",
    "verdict",
    "warnings",
]

Summary: TypeAlias = dict[str, Any]
"""What a report says of one model: numbers and texts, and scores by part; JSON."""

JUDGED = "test rows: mean ± standard error; shares of targets in central intervals"
HEADERS = {"log_likelihood_nats": "log-likelihood", "rmse": "RMSE", "accuracy": "accuracy", "auc": "AUC"}
MAX_SINGLE_LENGTHSCALES = 10


def scalars(predictor: Predictor, parts: Mapping[str, Part], input_names: Sequence[str] = ()) -> dict[str, float]:
    """Scores of each part, as "test/rmse", and the scalars of the layers, by the model's current parameters.

    :param parts: what is scored, by name, in the units of the data.
    :param input_names: as in :func:`layer_scalars`.
    """
    scores = {name: predictor.score(*part) for name, part in parts.items()}
    return {**_tagged(scores), **layer_scalars(predictor.model, input_names)}


class Final(NamedTuple):
    """The end of a run.

    :ivar scores: by name of the part: "log_likelihood_nats", "rmse", "crps", and so on. Of the part "test" all rows
        are scored, of others the rows to look at during training.
    :ivar scalars: to log: as `scalars` gives them, of the rows to look at during training.
    :ivar predicted: of the rows that are scored.
    :ivar judged: these rows as `evaluate` judges them.
    """

    scores: dict[str, dict[str, float]]
    scalars: dict[str, float]
    predicted: dict[str, Predicted]
    judged: dict[str, Evaluation]


class Watch:
    """Scores of some rows while a model is trained, and of all test rows at the end.

    :param parts: what is scored, by name, in the units of the data.
    :param eval_rows: rows of each part, drawn without replacement, to look at during training.
    :param rng: the generator that draws the rows of a part, by the name of the part.
    :param input_names: as in :func:`layer_scalars`.
    :raises ValueError: if `eval_rows` is not positive.
    """

    def __init__(
        self,
        predictor: Predictor,
        parts: Mapping[str, Part],
        *,
        eval_rows: int = 10_000,
        rng: Callable[[str], np.random.Generator] = lambda name: np.random.default_rng(0),
        input_names: Sequence[str] = (),
    ) -> None:
        if eval_rows < 1:
            raise ValueError(f"eval_rows must be at least 1, got {eval_rows}.")
        self.predictor = predictor
        self.parts = parts
        self._input_names = input_names
        self.rows: dict[str, NDArray[np.int64]] = {}
        for name, (X, _) in parts.items():
            chosen = np.arange(len(X)) if len(X) <= eval_rows else rng(name).choice(len(X), eval_rows, replace=False)
            self.rows[name] = np.sort(chosen)

    def during(self) -> dict[str, float]:
        """`scalars` of the rows to look at."""
        rows_by_part = {name: (X[self.rows[name]], Y[self.rows[name]]) for name, (X, Y) in self.parts.items()}
        return scalars(self.predictor, rows_by_part, self._input_names)

    def final(self) -> Final:
        """Scores of all test rows and of the rows to look at of other parts; and again of those to look at."""
        predicted: dict[str, Predicted] = {}
        judged: dict[str, Evaluation] = {}
        scores = {}
        watched_scores = {}
        for name, (X, Y) in self.parts.items():
            # All test rows are judged, and of other parts the rows that are looked at while training.
            is_whole = name == "test"
            rows = np.arange(len(X)) if is_whole else self.rows[name]
            looked_at = self.rows[name] if is_whole else np.arange(len(rows))
            judged[name] = judged_part = evaluate(self.predictor, (X[rows], Y[rows]))
            assert judged_part.means is not None  # of mypy: evaluations of rows have it
            assert judged_part.log_densities is not None
            predicted[name] = Predicted(judged_part.means, log_density=judged_part.log_densities)
            # Once more these rows alone, as the course of training shows them.
            watched = Predicted(judged_part.means[looked_at], log_density=judged_part.log_densities[looked_at])
            scores[name] = {**_with_errors(judged_part), **self.predictor.scores(Y[rows], predicted[name])}
            watched_scores[name] = self.predictor.scores(Y[rows][looked_at], watched)
        layers = layer_scalars(self.predictor.model, self._input_names)
        return Final(scores, {**_tagged(watched_scores), **layers}, predicted, judged)


def layer_scalars(model: DeepGP, input_names: Sequence[str] = ()) -> dict[str, float]:
    """KL, conditioning, jitter and hyperparameters of every layer, as "layer_1/kl_nats"; parameters of the likelihood.

    :param input_names: of the inputs of the first layer, by which its lengthscales are called where there are as many.
    :raises FloatingPointError: if a factorisation fails.
    """
    scalars: dict[str, float] = {}
    # Of each layer what it costs, whether it is well conditioned, and what its kernel has learnt.
    with clear_errors("looking at the layers failed: "):
        layers = diagnose(model)
    for number, layer in enumerate(layers, start=1):
        name = f"layer_{number}"
        scalars[f"{name}/kl_nats"] = layer.kl_nats
        if layer.condition_number is not None and layer.jitter is not None:
            scalars[f"{name}/condition_Kuu"] = layer.condition_number
            scalars[f"{name}/jitter"] = layer.jitter
        scalars[f"{name}/noise_variance"] = layer.noise_variance
        if len(layer.kernel_variances):
            scalars[f"{name}/kernel_variance"] = float(np.mean(layer.kernel_variances))
        # Few lengthscales one by one, of many the smallest, the mean and the largest.
        lengthscales = np.ravel(layer.lengthscales)
        if len(lengthscales) <= MAX_SINGLE_LENGTHSCALES:
            tags = [str(d) for d in range(len(lengthscales))]
            if number == 1 and len(input_names) == len(lengthscales):
                # Names of columns, where each lengthscale is of one.
                tags = [re.sub(r"[^\w.-]+", "_", column) for column in input_names]  # as TensorBoard has names
                tags = tags if len(set(tags)) == len(tags) else [f"{d}_{tag}" for d, tag in enumerate(tags)]
            scalars.update({f"{name}/lengthscale_{tag}": float(v) for tag, v in zip(tags, lengthscales, strict=True)})
        else:
            for kind in ("min", "mean", "max"):
                scalars[f"{name}/lengthscale_{kind}"] = float(getattr(np, kind)(lengthscales))
    # Parameters of the likelihood that are single numbers.
    for name, parameter in gpflow.utilities.parameter_dict(model.likelihood).items():
        if np.size(parameter.numpy()) == 1:
            scalars[f"likelihood/{name.lstrip('.').replace('.', '_')}"] = float(parameter.numpy())
    return scalars


def histograms(model: DeepGP) -> dict[str, np.ndarray]:
    """Of every GP layer: means of q(u), diagonals of its factors (of the prior: 0 and 1, if whitened), lengthscales."""
    shown: dict[str, np.ndarray] = {}
    for number, layer in enumerate(model.layers, start=1):
        if not isinstance(layer, SVGPLayer):
            continue
        # q(u), and the lengthscales of kernels that have some.
        q_sqrt = layer.q_sqrt.numpy()
        shown[f"layer_{number}/q_mu"] = layer.q_mu.numpy()
        shown[f"layer_{number}/q_sqrt_diagonal"] = q_sqrt if layer.q_diag else np.diagonal(q_sqrt, axis1=1, axis2=2)
        lengthscales = [
            np.ravel(kernel.lengthscales) for kernel in layer.latent_kernels if hasattr(kernel, "lengthscales")
        ]
        if lengthscales:
            shown[f"layer_{number}/lengthscales"] = np.concatenate(lengthscales)
    return shown


def summary(
    trainer: Trainer | SampledTrainer | FoundTrainer, final: Final, train: Part | None = None, test: Part | None = None
) -> Summary:
    """What a report says of one model: its size, the seconds of training, and its scores by part.

    :param train: and `test`: rows in the units of the data; with both, "warning" says so if the model is worse on the
        test rows than the simplest model, see `fitting.worse_than_simplest`.
    :return: "calibration" among it, where intervals on the test rows hold far more or fewer rows than they should.
    """
    # Size, scores and time; how it was fitted, if not by steps.
    entries: Summary = {
        "num_layers": depth(trainer.model),
        "is_settled": trainer.is_settled,
        "train_seconds": float(trainer.seconds),
        "num_parameters": num_parameters(trainer.model),
        **final.scores,
    }
    if isinstance(trainer, FoundTrainer):
        entries["trained_by"] = _found_by(trainer.model)
    if isinstance(trainer, SampledTrainer) and trainer.model.is_sampled:
        entries["chain"] = trainer.about()
    name = title(depth(trainer.model))
    can_have_tails = isinstance(trainer.model.likelihood, gpflow.likelihoods.StudentT)
    # What a user should know of: intervals that are off, and scores below those of the simplest model.
    by_steps = not isinstance(trainer, FoundTrainer)
    judged = final.judged.get("test")
    if judged is not None and (
        words := coverage_in_words(judged, can_have_tails=can_have_tails, is_trained_by_steps=by_steps)
    ):
        entries["calibration"] = f"{name}: {words}"
    if train is not None and test is not None:
        log_density = final.scores["test"]["log_likelihood_nats"]
        # A single row has no standard error, and says nothing.
        margin = 0.0 if judged is None else float(np.nan_to_num(judged.log_density.error, nan=np.inf))
        if words := worse_than_simplest(trainer.model.likelihood, log_density, train, test, margin=margin):
            cure = "train it for more steps, or give it other settings" if by_steps else "give it other settings"
            entries["warning"] = f"{name}: {words} on the test rows; {cure}."
    return entries


def metrics(summary: Summary) -> dict[str, float | None]:
    """What runs are compared by, of a :func:`summary`: scores of the test rows, and seconds."""
    # By the names that runs of all kinds of models have in common.
    test = summary.get("test", {})
    names = ("rmse", "crps", "coverage_90", "calibration_error")
    scores = {"log_density_nats": test.get("log_likelihood_nats"), **{name: test.get(name) for name in names}}
    accuracy = test.get("accuracy")
    scores["error_percent"] = None if accuracy is None else 100.0 * (1.0 - accuracy)
    return {**scores, "train_seconds": summary["train_seconds"]}


def num_parameters(model: DeepGP) -> int:
    """Numbers that the model is made of, trained or fixed."""
    return sum(int(np.prod(parameter.shape)) for parameter in model.parameters)


def linear_baseline(train: Part, parts: Mapping[str, Part], likelihood: str) -> tuple[Summary, dict[str, Evaluation]]:
    """Least squares with Gaussian noise of the training residuals' variance, scored like a deep GP.

    :param train: the training rows in the units of the data.
    :param likelihood: of the deep GP that it is compared with.
    :return: scores of each part by its name, "train_seconds" and "num_parameters"; and how each part is judged.
    :raises ValueError: if the targets are not real numbers, or the training rows are fitted exactly.
    """
    if likelihood not in REAL_TARGETS:
        raise ValueError("compare=linear needs a regression with real targets; leave it out.")
    start = time.monotonic()
    try:
        model = LinearModel.fit(*train)
    except ValueError as error:
        raise ValueError(f"compare=linear: {error}") from error
    seconds = time.monotonic() - start
    judged = {name: evaluate(model, part) for name, part in parts.items()}
    scores = {name: _with_errors(judged_part) for name, judged_part in judged.items()}
    size = model.weights.size + model.variance.size
    return {"train_seconds": seconds, "num_parameters": size, **scores}, judged


def notes(config: ModelConfig, units: Units, feature_names: Sequence[str], num_rows: int) -> list[str]:
    """What a user may want to change: inputs that do not vary, and more inducing inputs than training rows."""
    lines = []
    if names := [feature_names[d] for d in units.x.constant_columns]:
        lines.append(f"these inputs do not vary in the training part and have no effect: {', '.join(names)}.")
    if num_rows < config.num_inducing:
        lines.append(f"num_inducing={config.num_inducing} is more than the {num_rows} training rows; fewer would do.")
    return lines


def depth(model: DeepGP) -> int:
    """How many layers have Gaussian processes: latent variables are inputs."""
    return sum(not isinstance(layer, LatentVariableLayer) for layer in model.layers)


def title(num_layers: int) -> str:
    """What a model of so many layers is called."""
    return "GP (1 layer)" if num_layers == 1 else f"deep GP ({num_layers} layers)"


def table(models: Mapping[str, Summary]) -> list[list[str]]:
    """Scores of all models as the cells of a table, with a line of headers.

    :param models: name -> scores of "valid" and "test" by their names, "train_seconds", and of a deep GP "num_layers"
        and "num_steps". The last one says which scores there are.
    """
    # Scores that the last model has.
    last: Sequence[Summary] = list(models.values())[-1:]
    columns = [(part, key) for part in ("valid", "test") for key in HEADERS for m in last if key in m.get(part, {})]
    lines = [["", *(f"{part} {HEADERS[key]}" for part, key in columns), "steps", "seconds"]]
    for name, model in models.items():
        cells = [f"{model[part].get(key, np.nan):.4f}" for part, key in columns]
        lines.append([label(name, model), *cells, str(model.get("num_steps", "")), f"{model['train_seconds']:.1f}"])
    return lines


def text(
    models: Mapping[str, Summary], judged: Mapping[str, Evaluation], task: Task, target_names: Sequence[str]
) -> list[list[list[str]] | str]:
    """What the end of a run says: tables as cells, and lines of text.

    :param models: as in `table`, "warning" of those that are worse than the simplest model, and "calibration".
    :param judged: of the test rows, by the names of the models.
    """
    named = {label(name, model): judged[name] for name, model in models.items()}
    notices = warnings(models)
    seconds = [m["train_seconds"] for m in models.values()]
    return [_scores(named, seconds), caption(task, target_names), JUDGED, verdict(models, judged), *notices]


def warnings(models: Mapping[str, Summary]) -> list[str]:
    """What is wrong with intervals, and which models are worse than the simplest one, as lines of text."""
    return [m[kind] for kind in ("calibration", "warning") for m in models.values() if kind in m]


def _scores(named: Mapping[str, Evaluation], seconds: Sequence[float]) -> list[list[str]]:
    """Scores of the test rows as the cells of a table of at most 80 characters, with a line of headers."""
    kinds = {"log_density": "nats a row", "rmse": "RMSE", "error": "error"}
    # Columns that at least one of the models has.
    shown = [kind for kind in kinds if any(getattr(judged_model, kind) is not None for judged_model in named.values())]
    has_numbers = any(judged_model.coverage for judged_model in named.values())
    others = ["CRPS", "50%", "90%"] if has_numbers else ["calibration error"]
    lines = [["", *(kinds[kind] for kind in shown), *others, "seconds"]]
    # A line for each model: scores with their errors, shares, seconds.
    for (name, judged_model), time_taken in zip(named.items(), seconds, strict=True):
        scores = [getattr(judged_model, kind) for kind in shown]
        cells = ["" if score is None else str(score) for score in scores]
        if has_numbers:
            cells.append("" if judged_model.crps is None else str(judged_model.crps).partition(" ")[0])
            cells += [
                "" if judged_model.coverage is None else f"{judged_model.coverage[level].value:.0%}"
                for level in (0.5, 0.9)
            ]
        else:
            score = judged_model.calibration_error
            cells.append("" if score is None else f"{score.value:.2g}")
        lines.append([name, *cells, f"{time_taken:.1f}"])
    return lines


def verdict(models: Mapping[str, Summary], judged: Mapping[str, Evaluation]) -> str:
    """One line on the last of some models: beside the best of the others, its intervals, whether its training settled.

    :param models: and `judged`, as in :func:`text`.
    """
    *others, last = models
    parts = []
    # Beside the best of the others, on the same rows.
    if others:
        best = max(others, key=lambda name: judged[name].log_density.value)
        score = evaluation.difference(judged[last], judged[best])
        if score is not None:
            word = "better" if score.value > 0 else "worse"
            clear = "" if abs(score.value) > 2 * score.error else " (within two standard errors)"
            parts.append(
                f"{abs(score.value):.3f} ± {score.error:.2g} nats a row {word} than {label(best, models[best])}{clear}"
            )
    # Beside what it predicts: intervals, and whether training has settled.
    model = models[last]
    if (half := (judged[last].coverage or {}).get(0.5)) is not None:
        parts.append(f"50% intervals hold {half.value:.0%}")
    if "trained_by" in model:
        parts.append(f"fitted by {model['trained_by']}")
    elif "num_steps" in model:
        is_settled = model.get("is_settled", False)
        parts.append(
            f"{'settled' if is_settled else 'not settled, more steps may help,'} after {model['num_steps']} steps"
        )
    return f"{label(last, model)}: {'; '.join(parts)}." if parts else ""


def html(
    model: Any, X: ArrayLike, y: ArrayLike, *, others: Mapping[str, object] | None = None, heading: str = ""
) -> str:
    """A report on a trained model as the text of one HTML file, which needs no network.

        model = gpflow_deep.DeepGPRegressor().fit(X_train, y_train)
        Path("report.html").write_text(gpflow_deep.report.html(model, X_test, y_test), encoding="utf-8")

    Verdict, scores with their errors, calibration with the band of right probabilities, the function over its most
    relevant inputs, relevance of all inputs, and residuals.

    :param model: a fitted `DeepGPRegressor` or `DeepGPClassifier`, or a `Predictor`.
    :param X: inputs [N, D] that the model has not seen, or a data frame as the model was fitted to, whose names are
        shown.
    :param y: targets [N] or [N, P], or labels.
    :param others: models to compare with on the same rows, by name; whatever `evaluate` takes.
    :param heading: of the page.
    :raises ValueError: as `evaluate`.
    """
    # The model, and rows in the form that it takes.
    predictor = getattr(model, "predictor_", model)
    if not isinstance(predictor, Predictor):
        raise ValueError(
            f"model must be a fitted DeepGPRegressor or DeepGPClassifier, or a Predictor, got {type(model).__name__}."
        )
    inputs, names = pages.inputs_and_names(model, X)
    targets = np.asarray(y)
    if hasattr(model, "classes_"):
        targets = label_numbers(model.classes_, targets)
    targets = targets.reshape(len(targets), -1)
    own_title = title(depth(predictor.model))
    # All models on the same rows, this one last.
    judged = {name: evaluate(other, (inputs, targets)) for name, other in (others or {}).items()}
    judged[own_title] = evaluate(predictor, (inputs, targets))
    models = {name: _trained(model, predictor) if name == own_title else {} for name in judged}
    # The verdict, and what to try where intervals are off.
    can_have_tails = isinstance(predictor.model.likelihood, gpflow.likelihoods.StudentT)
    words = coverage_in_words(
        judged[own_title],
        can_have_tails=can_have_tails,
        is_trained_by_steps=not (_is_single(predictor) or "trained_by" in models[own_title]),
    )
    sentences = [verdict(models, judged), words, caption(predictor.task, predictor.target_names)]
    parts = pages.model_parts(predictor, judged, inputs, targets, names)
    return page(heading or own_title, "\n".join(filter(None, sentences)), parts)


def _found_by(model: DeepGP) -> str:
    """How a model is fitted that has no steps."""
    return "draws of its inner outputs" if model.is_sampled else "L-BFGS"


def _trained(model: Any, predictor: Predictor) -> Summary:
    """What is known of the training of a model, for :func:`verdict`."""
    entries: Summary = {"num_layers": depth(predictor.model)}
    # By L-BFGS, or without steps; or by steps that settled or not; of a predictor alone nothing is known.
    choice = getattr(model, "choice_", None)
    if choice is not None and (_is_single(predictor) or choice.config.posterior == "imputed"):
        return {**entries, "trained_by": _found_by(predictor.model)}
    if hasattr(model, "is_settled_"):
        return {**entries, "num_steps": model.n_iter_, "is_settled": model.is_settled_}
    return entries


def _is_single(predictor: Predictor) -> bool:
    """Whether a model is a single layer with Gaussian noise, which has no steps unless one asks for them."""
    return depth(predictor.model) == 1 and isinstance(predictor.model.likelihood, gpflow.likelihoods.Gaussian)


def label(name: str, model: Summary) -> str:
    """What a model is called in tables: a deep GP by its layers, others by their names."""
    return title(model["num_layers"]) if "num_layers" in model else name


def caption(task: Task, target_names: Sequence[str]) -> str:
    """What the units of the scores in a table are."""
    scores = f"; it and RMSE in the units of {', '.join(target_names)!r}" if task == "regression" else ""
    return f"log-likelihood: nats per row{scores}"


def _with_errors(found: Evaluation) -> dict[str, float]:
    """Scores of a part and their standard errors, by the names that reports use."""
    numbers = {name.replace("log_density", "log_likelihood"): value for name, value in found.to_json().items()}
    if found.error is not None:
        numbers["accuracy_se"] = found.error.error
    return {name: value for name, value in numbers.items() if name not in ("num_rows", "error", "error_se")}


def _tagged(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"{part}/{name}": value for part, values in scores.items() for name, value in values.items()}
