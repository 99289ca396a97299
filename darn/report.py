"""What is said about a DARN, while it is trained and at the end: numbers by name, curves, and text.

    evaluate(trainer, {"train": X, "valid": X_valid}, seeds)          # at an evaluation
    found = final(model, {"train": X, "valid": X_valid, "test": X_test}, seeds)
    found["test/description_length_bits"], found["test/exact_nll_nats"]

Everything is a pure function of models, rows and seeds. `seeds` gives the seed, int32 [2], of the stream of a name.
Names are "part/quantity_unit"; a value is the mean over the rows of the part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from darn.model.config import check_numbers
from darn.model.description_length import (
    DescriptionLength,
    description_length,
    exact_log_likelihood,
    fast_sampling_cost,
    importance_log_likelihood,
    is_fdarn,
)
from darn.model.model import DARN
from darn.more.distribution import FEW_SAMPLES, MAX_EXACT_UNITS
from darn.train.training import Observed, Trainer
from gpflow_deep_base.text import duration

__all__ = [
    "ReportConfig",
    "curves",
    "evaluate",
    "exact_scalars",
    "final",
    "importance_scalars",
    "length_scalars",
    "notes",
    "table",
    "training_scalars",
    "wants_exact",
]

Seeds = Callable[[str], tf.Tensor]
Rows = np.ndarray
Points = tuple[list[int], list[float]]

EXACT_SECONDS = 600.0  # exact=auto gives up beyond this rough estimate
NATS_TO_BITS = 1.0 / math.log(2.0)
_SAMPLES = (100, 300, 1000)  # importance samples of a row, where their number is not given
_SMALL = 1 / 3  # of the rows' standard error: adds 5 % to it
PARTS = ("description_length", "hidden", "bits_back", "visible")


@dataclass(frozen=True)
class ReportConfig:
    """What to find out about a trained model.

    :param final_samples: draws of h for each row for the description length that is reported.
    :param exact: sum over all states of the stochastic units for the likelihood that is reported; auto: if there are
        at most 16 of them, and it takes some minutes at most.
    :param is_samples: importance samples S for each test row where the likelihood is not exact, 100000 in the paper; 0
        for none. As many as it takes, 100 to 1000, if this is not given: until what sampling leaves open is a third of
        the standard error of the rows.
    :param is_repeats: repeats of importance sampling, for its confidence interval.
    :raises ValueError: naming the field that is wrong.
    """

    final_samples: int = 10
    exact: Literal["auto", "yes", "no"] = "auto"
    is_samples: int | None = None
    is_repeats: int = 10

    def __post_init__(self) -> None:
        check_numbers(self, "final_samples", "is_samples", "is_repeats")
        for name, least in (("final_samples", 1), ("is_samples", 0), ("is_repeats", 2)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        if self.exact not in ("auto", "yes", "no"):
            raise ValueError(f"exact must be auto, yes or no, got {self.exact!r}.")

    def check(self, model: DARN) -> None:
        """Refuse what cannot be found out about a model.

        :raises ValueError: if the exact likelihood is asked for, and there are too many stochastic units.
        """
        if self.exact == "yes" and model.num_hidden > MAX_EXACT_UNITS:
            raise ValueError(
                f"exact=yes needs at most {MAX_EXACT_UNITS} stochastic units, got {model.num_hidden}; leave it out for "
                "importance sampling."
            )


# In training.


def training_scalars(observed: Observed) -> dict[str, float]:
    """Means over the steps that were observed, with the parts of the description length in bits; the gradient's norm is
    that of the last step."""
    # The description length, Eq. (15), of which the objective is more where there are penalties.
    total = observed.prior + observed.bits_back + observed.visible
    return {
        "train/objective_nats": float(observed.objective.mean()),
        "train/batch_description_length_bits": NATS_TO_BITS * float(total.mean()),
        "train/batch_hidden_bits": NATS_TO_BITS * float(observed.prior.mean()),
        "train/batch_bits_back_bits": NATS_TO_BITS * float(observed.bits_back.mean()),
        "train/batch_visible_bits": NATS_TO_BITS * float(observed.visible.mean()),
        "train/activity": float(observed.activity.mean()),
        "train/gradient_norm": float(observed.gradient_norm[-1]),
    }


def evaluate(trainer: Trainer, parts: Mapping[str, Rows], seeds: Seeds, num_samples: int = 1) -> dict[str, float]:
    """Description lengths of each part by the averaged parameters, and the noise of the gradient estimator.

    :param parts: "train", whose first rows measure that noise, and others.
    :param seeds: the streams "eval/train", ... and "estimator", the same at each evaluation.
    :param num_samples: draws of h for each row.
    """
    scalars: dict[str, float] = {}
    with trainer.averaged():
        for name, rows in parts.items():
            lengths = description_length(trainer.model, rows, seed=seeds(f"eval/{name}"), num_samples=num_samples)
            scalars |= length_scalars(name, lengths)
    if trainer.model.encoders:
        rows = tf.constant(parts["train"][:100], trainer.model.dtype)
        scalars["estimator/relative_std"] = trainer.gradient_noise(rows, seeds("estimator"), num_draws=8)
    return scalars


def curves(records: Sequence[Mapping[str, Any]], model: DARN) -> dict[str, dict[str, Points]]:
    """What was logged of description lengths, in bits: title -> label -> (steps, values).

    :param records: the scalars of :func:`evaluate` with their "step", one dictionary for each step.
    """

    def points(tag: str) -> Points:
        logged = [record for record in records if record.get(tag) is not None]
        return [int(record["step"]) for record in logged], [float(record[tag]) for record in logged]

    titled_curves = {
        "description length": {part: points(f"{part}/description_length_bits") for part in ("train", "valid")}
    }
    if model.encoders:
        titled_curves["validation, parts"] = {part: points(f"valid/{part}_bits") for part in PARTS[1:]}
    return titled_curves


# At the end.


def final(
    model: DARN,
    parts: Mapping[str, Rows],
    seeds: Seeds,
    config: ReportConfig = ReportConfig(),
    *,
    importance_rows: Rows | None = None,
    jit_compile: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Description lengths of all parts; the negative log-likelihood of the rows "test", and of "valid" if it is exact.

    :param parts: "train", "valid" and "test".
    :param seeds: the streams "final/train", ..., "importance" and "cost".
    :param importance_rows: the test rows to sample for; all if not given.
    :param jit_compile: compile importance sampling with XLA.
    :param say: gets a line of text before each part that may take long.
    """
    result: dict[str, Any] = {}
    num_rows = sum(map(len, parts.values()))
    # Description lengths of all parts.
    say(f"final report: description lengths of {num_rows} rows with {config.final_samples} draws each")
    for name, rows in parts.items():
        lengths = description_length(model, rows, seed=seeds(f"final/{name}"), num_samples=config.final_samples)
        result |= length_scalars(name, lengths)
    # The likelihood: exact, or by importance sampling.
    start = time.monotonic()
    if wants_exact(model, config.exact, len(parts["test"])):
        num_rows = len(parts["valid"]) + len(parts["test"])
        say(f"final report: exact likelihood, {2**model.num_hidden} states for each of {num_rows} rows")
        for name in ("valid", "test"):
            result |= exact_scalars(name, model, parts[name])
        result["exact_seconds"] = time.monotonic() - start
    elif config.is_samples != 0:
        rows = parts["test"] if importance_rows is None else importance_rows
        result |= importance_scalars("test", model, rows, seeds("importance"), config, jit_compile=jit_compile, say=say)
        result["is_seconds"] = time.monotonic() - start
    # What a sample costs.
    if is_fdarn(model.config):
        cost, active = fast_sampling_cost(model, seeds("cost"))
        result |= {"multiplications_per_sample": cost, "active_units_per_sample": active}
    return result


def length_scalars(name: str, lengths: DescriptionLength) -> dict[str, float]:
    """Means over the rows of the part `name`: the description length, its parts, and what the stochastic units carry.

    :param lengths: in nats.
    """
    scalars = {f"{name}/description_length_nats": float(lengths.total.mean())}
    scalars[f"{name}/description_length_bits"] = NATS_TO_BITS * float(lengths.total.mean())
    for part in PARTS[1:]:
        scalars[f"{name}/{part}_bits"] = NATS_TO_BITS * float(getattr(lengths, part).mean())
    scalars[f"{name}/kl_nats"] = float(lengths.kl.mean())
    scalars[f"{name}/kl_bits"] = NATS_TO_BITS * float(lengths.kl.mean())
    return scalars


def exact_scalars(name: str, model: DARN, rows: Rows) -> dict[str, float]:
    """Exact -log p(x) of the part `name`, nats: its mean, and the standard error of that for other rows like these."""
    log_p = exact_log_likelihood(model, rows)
    return {
        f"{name}/exact_nll_nats": -float(log_p.mean()),
        f"{name}/exact_nll_standard_error": float(log_p.std() / math.sqrt(len(log_p))),
    }


def importance_scalars(
    name: str,
    model: DARN,
    rows: Rows,
    seed: tf.Tensor,
    config: ReportConfig,
    *,
    jit_compile: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """-log p(x) of the part `name` by importance sampling, nats: its mean, the 95 % interval of that over repeats, its
    standard error for other rows like these, the effective number of samples that half of the rows have at least, and
    the description length of the same rows, which bounds it.
    """
    per_sample = 0.0
    # About three times the samples again, until what they leave open is small beside the rows' own spread.
    for num_samples in _SAMPLES if config.is_samples is None else (config.is_samples,):
        cost = f", about {duration(per_sample * num_samples)}" if per_sample else ""
        say(f"final report: {num_samples} importance samples x {config.is_repeats} for each of {len(rows)} rows{cost}")
        start = time.monotonic()
        estimated = importance_log_likelihood(
            model,
            rows,
            seed=seed,
            num_samples=num_samples,
            repeats=config.is_repeats,
            jit_compile=jit_compile,
        )
        # The clock is for the announcement of the next round alone.
        per_sample = (time.monotonic() - start) / num_samples
        rows_error = float(estimated.log_likelihood.std() / math.sqrt(len(rows)))
        if max(estimated.standard_error, estimated.bias) <= _SMALL * rows_error:
            break
    return {
        f"{name}/is_nll_nats": -estimated.mean,
        f"{name}/is_nll_95_interval": [-estimated.interval[1], -estimated.interval[0]],
        f"{name}/is_nll_standard_error": rows_error,
        f"{name}/is_effective_samples": float(np.median(estimated.effective)),
        f"{name}/is_description_length_nats": float(description_length(model, rows, seed=seed).total.mean()),
        "is_samples": num_samples,
        "is_rows": len(rows),
    }


def wants_exact(model: DARN, exact: str, num_rows: int) -> bool:
    """Whether to enumerate, by `ReportConfig.exact` and a rough estimate of the time for the test rows."""
    if exact != "auto":
        return exact == "yes"
    if model.num_hidden > MAX_EXACT_UNITS:
        return False
    # Seconds: 0.1 ns a multiplication of one matrix product, 10 ns a logarithm.
    numbers = 2.0**model.num_hidden * num_rows * model.config.visible
    is_product = model.config.visible_conditional == "factorial"
    return numbers * (1e-10 if is_product else 1e-8) < EXACT_SECONDS


CAPTION = "description lengths of a row: nats; bits: length = hidden + bits back + visible, and KL"
"""What the numbers of :func:`table` are."""


def table(result: Mapping[str, object]) -> list[list[str]]:
    """Description lengths of :func:`final` as cells of text, with a line of titles."""
    # Nats once, and all parts in bits.
    parts = (*PARTS, "kl")
    titles = [part.removeprefix("description_").replace("_", " ") for part in parts]
    rows = [["", "nats", *titles]]
    for name in ("train", "valid", "test"):
        numbers = [result[f"{name}/description_length_nats"], *(result[f"{name}/{part}_bits"] for part in parts)]
        rows.append([name, *(f"{number:.3f}" for number in numbers)])
    return rows


def notes(result: Mapping[str, Any]) -> list[str]:
    """The likelihood of the test rows and the cost of a sample, as lines of text."""
    # The likelihood, exact or by importance sampling, with the errors of each.
    lines = []
    if "test/exact_nll_nats" in result:
        error = result["test/exact_nll_standard_error"]
        lines.append(
            f"test negative log-likelihood: {result['test/exact_nll_nats']:.3f} nats, exact (rows: ± {error:.3f})"
        )
    if "test/is_nll_nats" in result:
        (low, high) = result["test/is_nll_95_interval"]
        error = result["test/is_nll_standard_error"]
        bound = result["test/is_description_length_nats"]
        lines.append(
            f"test negative log-likelihood: {result['test/is_nll_nats']:.3f} nats by {result['is_samples']} importance "
            f"samples for each of {result['is_rows']} rows, 95 % interval {low:.3f} to {high:.3f} (rows: ± {error:.3f})"
            f"; description length of these rows: {bound:.3f}"
        )
        if (effective := result["test/is_effective_samples"]) < FEW_SAMPLES:
            lines.append(
                f"of the importance samples of a row only {effective:.1f} count (median): the likelihood is higher "
                "than this says, by an unknown amount; take more samples (--is_samples)"
            )
    if "multiplications_per_sample" in result:
        cost = result["multiplications_per_sample"]
        active = result["active_units_per_sample"]
        lines.append(f"a sample costs {cost:.3g} multiplications ({active:.1f} active units)")
    return lines
