#!/usr/bin/env python3
"""Pictures from numbers in results/ and outputs of notebooks: one panel for each system, these alone, and some more.

python docs/picture.py
"""

import base64
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from gpflow_deep_runs.report.cells import Entry, Figure
from gpflow_deep_runs.report.results import read_all

ROOT = Path(__file__).resolve().parent.parent
STORED = read_all(ROOT / "results")
OURS = "#1f5fa8"
OTHERS = "#8a8f98"
LIGHT = "#7fb2e5"


def value(entry: Entry) -> float:
    """The number of an entry, the mean of several."""
    assert isinstance(entry, int | float | Figure)
    return entry.mean if isinstance(entry, Figure) else float(entry)


def values(figure: Entry) -> np.ndarray:
    """The numbers of an entry, one a repetition."""
    assert isinstance(figure, Figure)
    return np.asarray(figure.values, np.float64)


def legend_above(axes: Axes) -> None:
    """In one row above the title, as it would hide marks elsewhere."""
    anchor = (0.4, 1.12)
    axes.legend(
        loc="lower center",
        bbox_to_anchor=anchor,
        ncols=3,
        frameon=False,
        fontsize="small",
        handlelength=1,
        handletextpad=0.4,
        columnspacing=1,
    )


def deep_gp(axes: Axes) -> None:
    """What layers add to one sparse GP, on the same splits."""
    rows = STORED["uci"].rows
    # Differences of the same splits, as the splits differ far more than the models.
    for shift, model, color in ((0.2, "dgp2", LIGHT), (-0.2, "dgp3", OURS)):
        gains = [values(row[f"test_log_likelihood_{model}"]) - values(row["test_log_likelihood_gp"]) for row in rows]
        errors = [np.std(gain, ddof=1) / np.sqrt(len(gain)) for gain in gains]
        places = len(rows) - 1 - np.arange(len(rows)) + shift
        label = f"{model[-1]} layers"
        axes.barh(places, [gain.mean() for gain in gains], 0.36, xerr=errors, color=color, label=label)
    axes.set_yticks(len(rows) - 1 - np.arange(len(rows)), [str(row["dataset"]) for row in rows])
    axes.set(title="gpflow_deep", xlabel="nats a test row above one GP (right is better)")
    axes.legend(frameon=False, loc="lower right")


def darn(axes: Axes) -> None:
    """How many times smaller tables become as files that give them back."""
    rows = STORED["darn_files"].rows
    places = np.arange(len(rows))[::-1]
    for shift, (name, color, label) in zip((0.2, -0.2), (("coded", OURS, "ours"), ("xz", OTHERS, "xz")), strict=True):
        times = [value(row["bytes"]) / value(row[name]) for row in rows]
        axes.barh(places + shift, times, 0.36, color=color, label=label)
    names = [str(row["table"]).removesuffix(" shuffled").replace(", ", "\n") for row in rows]
    axes.set_yticks(places, names)
    axes.set(title="darn", xlabel="times smaller as a file (right is better)")
    legend_above(axes)


def rbm(axes: Axes) -> None:
    """Errors of the tracked log Z, against enumeration, by learning rate and decay."""
    rows = STORED["rbm_accuracy_large"].rows
    places = np.arange(len(rows))[::-1]
    axes.plot([value(row["rmse"]) for row in rows], places, "o", color=OURS, label="root mean square")
    axes.plot([value(row["largest"]) for row in rows], places, "o", color=OTHERS, label="largest")
    axes.set_yticks(places, [f"rate {row['setting']}" for row in rows])
    axes.set(title="rbm_tracking", xlabel="error of log Z, nats (left is better)", xscale="log")
    legend_above(axes)


def ebp(axes: Axes) -> None:
    """Test errors on text, with standard errors over folds."""
    names = {"Reuters I6": "Reuters I6", "20News comp vs HW": "comp", "20News elec vs med": "elec"}
    names |= {"Pang and Lee reviews": "reviews", "Amazon apparel_books": "Amazon", "SpamAssassin": "spam"}
    rows = [*STORED["ebp_probabilities"].rows, *STORED["ebp_text_probabilities"].rows]
    methods = (
        ("logistic regression, C tuned", OTHERS, "logistic regr."),
        ("TF-IDF, LinearSVC", "black", "TF-IDF, SVM"),
        ("binary", OURS, "EBP, binary"),
    )
    places = np.arange(len(names))[::-1]
    for shift, (model, color, label) in zip((0.22, 0.0, -0.22), methods, strict=True):
        # The score of each set from whichever file has it.
        scores = [
            next(
                row["error"]
                for row in rows
                if row["dataset"] == name and model in (row.get("model"), row.get("weights"))
            )
            for name in names
        ]
        errors = np.array([getattr(score, "se", None) for score in scores], np.float64)
        axes.errorbar(list(map(value, scores)), places + shift, xerr=errors, fmt="o", ms=3, color=color, label=label)
    axes.set_yticks(places, list(names.values()))
    axes.set(title="ebp", xlabel="test error, % (left is better)", xlim=(0, None))
    legend_above(axes)


def compression(axes: Axes) -> None:
    """LeNet-300-100 on MNIST: bytes and errors."""
    groups = (
        ("compression_groups_weights", "", OURS, "o", "priors"),
        ("compression_files", "w^2", LIGHT, "s", "magnitudes"),
    )
    for name, first, color, marker, label in groups:
        rows = [row for row in STORED[name].rows if "bytes" in row and str(row["method"]).startswith(first)]
        sizes, errors = ([value(row[quantity]) for row in rows] for quantity in ("bytes", "error"))
        axes.plot(sizes, errors, marker, color=color, ms=4, label=label)
    axes.set(title="compression", xlabel="bytes of LeNet-300-100", ylabel="test error, %", xscale="log")
    axes.set(ylim=(1, None))
    ticks = [5_000, 10_000, 20_000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    legend_above(axes)


def turned_images(axes: Axes) -> None:
    """Log loss of a CNN and of a GP on its features, on images of MNIST as they are and turned."""
    angles = (0, 30, 60)
    for model, color in (("CNN", OTHERS), ("GP, trained with it", OURS)):
        scores = next(row for row in STORED["keras_gp_head"].rows if (row["dataset"], row["model"]) == ("MNIST", model))
        axes.plot(angles, [value(scores[f"log_loss_{angle}"]) for angle in angles], "o-", color=color, label=model)
    axes.set(title="digits that are turned", xlabel="degrees", ylabel="log loss, nats", xticks=angles)
    axes.legend(frameon=False, loc="upper left")


def depth(axes: Axes) -> None:
    """Delays of flights, what `make train` prints: log density by three models."""
    rows = STORED["flights"].rows
    places = np.arange(len(rows))[::-1]
    scores, errors = ([value(row[f"test_log_likelihood{end}"]) for row in rows] for end in ("", "_error"))
    axes.errorbar(scores, places, xerr=errors, fmt="o", color=OURS, ecolor="black")
    axes.set_yticks(places, ["least squares", "GP, one layer", "deep GP, two"])
    axes.set(title="delays of 20,000 flights", xlabel="nats per test row (right is better)", ylim=(-0.5, 2.5))


def coverage(axes: Axes) -> None:
    """How many test rows are in 95 % intervals, by table."""
    sets = ("boston", "energy", "concrete", "kin8nm", "power", "naval")
    methods = (("quantile boosting", OTHERS), ("deep ensemble", "black"), ("DeepGPRegressor, 2 layers", OURS))
    for model, color in methods:
        # Sets that a method was not run on have no mark.
        scores = {str(row["dataset"]): row for row in STORED["tabular_rivals"].rows if row["model"] == model}
        shares = [value(scores[name]["coverage"]) for name in sets if name in scores]
        label = "deep GP" if color == OURS else model
        axes.plot(shares, [sets.index(name) for name in sets if name in scores], "o", color=color, label=label)
    axes.axvline(95, color="black", linestyle="--", linewidth=0.8)
    axes.set_yticks(range(len(sets)), sets)
    axes.set(title="gpflow_deep: calibration", xlabel="test rows in 95 % intervals, %")
    legend_above(axes)


def flash(axes: Axes) -> None:
    """Classifiers of MNIST in C: bytes of flash and errors."""
    rows = [row for row in STORED["ebp_c"].rows if "flash" in row and "error" in row]
    ours = [row for row in rows if "error_p" in row]
    others = [row for row in rows if row not in ours]
    groups = ((others, OTHERS, "scikit-learn's"), (ours, OURS, "EBP"))
    # A mark for each classifier, and its name beside it.
    for group, color, label in groups:
        sizes = [value(row["flash"]) for row in group]
        axes.plot(sizes, [value(row["error"]) for row in group], "o", color=color, label=label)
    for row in rows:
        name = str(row["what"]).replace("hidden weights of ", "").replace(", 196 inputs", "")
        place = (value(row["flash"]), value(row["error"]))
        shift = -10 if row in others else 3 if "bits" in name else -2
        axes.annotate(name, place, textcoords="offset points", xytext=(6, shift), fontsize=6)
    ticks = [1_000, 2_000, 5_000, 10_000, 20_000]
    axes.set(title="MNIST in C", xlabel="bytes of flash", ylabel="test error, %", xscale="log")
    axes.set(xlim=(1000, 25_000), ylim=(1.9, 8.6))
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.legend(frameon=False, loc="center left", fontsize=7)


def tables(axes: Axes) -> None:
    """How many times smaller networks for tables become by the defaults, each seed."""
    rows = [row for row in STORED["compression_defaults"].rows if isinstance(row["bytes"], Figure)]
    for place, row in zip(np.arange(len(rows))[::-1], rows, strict=True):
        smaller = values(row["smaller"])
        axes.plot(smaller, np.full(len(smaller), place), "o", color=OURS)
    axes.set_yticks(np.arange(len(rows))[::-1], [str(row["dataset"]) for row in rows])
    axes.set(title="compression.fit and pack by default", xlabel="times smaller (right is better)", xscale="log")


def regret(axes: Axes, problem: str) -> None:
    """Simple regret of Bayesian optimisation: mean and standard error over the seeds, and each seed."""
    rows = [row for row in STORED["optimisation"].rows if row["problem"] == problem]
    evaluations = [value(row["evaluations"]) for row in rows]
    methods = (("global", OURS, "deep GP"), ("trieste", "#c8553d", "trieste's deep GP"), ("gp", "black", "GP"))
    for name, color, label in (*methods, ("random", OTHERS, "Sobol points")):
        # Means with their errors as bands, and a thin line for each seed.
        regrets = np.array([values(row[name]) for row in rows])  # [evaluations, seeds]
        mean = regrets.mean(axis=1)
        error = regrets.std(axis=1, ddof=1) / np.sqrt(regrets.shape[1])
        axes.plot(evaluations, mean, color=color, label=label)
        axes.fill_between(evaluations, mean - error, mean + error, color=color, alpha=0.2, lw=0)
        axes.plot(evaluations, regrets, color=color, lw=0.3, alpha=0.5)
    axes.set(title=problem, xlabel="evaluations", ylim=(0, None))


def first_picture(notebook: str) -> bytes:
    """A PNG: the first one of the outputs of a notebook."""
    cells = json.loads((ROOT / "docs" / "notebooks" / "outputs" / f"{notebook}.ipynb").read_text("utf-8"))["cells"]
    shown = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    return base64.b64decode(next(data["image/png"] for data in shown if "image/png" in data))


def main(folder: Path = ROOT / "docs") -> None:
    """Draw them into a folder."""
    # One picture is that of a notebook, the others are drawn from results.
    (folder / "emulator.png").write_bytes(first_picture("11_emulate_a_simulator"))
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    # All systems side by side, for the start page.
    figure, every = plt.subplots(3, 2, figsize=(7, 7.5), layout="constrained")  # readable on a phone
    for panel, axes in zip((deep_gp, coverage, darn, rbm, ebp, compression), every.flat, strict=True):
        panel(axes)
    figure.savefig(folder / "five_systems.png", dpi=120)
    plt.rcParams.update({"font.size": 8})
    # Each panel as a picture of its own.
    alone = {
        "deep_gp_layers": deep_gp,
        "darn_bits": darn,
        "rbm_accuracy": rbm,
        "ebp_errors": ebp,
        "compression_bytes": compression,
        "turned_images": turned_images,
        "depth": depth,
        "coverage": coverage,
        "ebp_flash": flash,
        "compression_tables": tables,
    }
    for name, panel in alone.items():
        figure, axes = plt.subplots(figsize=(4.5, 2.6), layout="constrained")
        panel(axes)
        figure.savefig(folder / f"{name}.png", dpi=150)
        plt.close(figure)
    # And the courses of optimisation in one row.
    figure, beside = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
    for panel, problem in zip(beside, ("Michalewicz 2", "Michalewicz 5", "Hartmann 6"), strict=True):
        regret(panel, problem)
    beside[0].set_ylabel("simple regret")
    beside[1].legend(frameon=False, loc="lower left")
    figure.savefig(folder / "optimisation.png", dpi=150)


if __name__ == "__main__":
    main()
