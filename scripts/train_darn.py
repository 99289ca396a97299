#!/usr/bin/env python3
"""Train a deep autoregressive network (DARN) on binary data, and report its likelihood.

    gpflow-deep darn --run_dir=runs/own --data=table.csv
    gpflow-deep darn --run_dir=runs/adult --dataset=adult --data_dir=DATA
    gpflow-deep darn --run_dir=runs/digits --hidden=500 --visible_conditional=factorial --strategy=mirrored

Without --hidden, the number of stochastic units, and what is not given of --units, --learning_rate and --weight_decay,
are chosen by the validation rows first, and chains of L1-penalised logistic regressions, masked networks (MADE) and
mixtures are tried beside the DARN. The model with their best description length is reported, and the best density of
all. Ctrl-C saves a checkpoint. The folder of the run gets:

    result.json   description length in bits and nats, negative log-likelihood; what was chosen, and what rejected
    choice.json   what was chosen, for --resume (also of an unfinished choice); darn.npz: the model, for darn.load_darn
    density.npz   the best of chains, networks, trees, mixtures, the DARN and their means, for darn.load_density
    plots/        description length over training; for images: filters, and samples beside the nearest training images
    scalars.jsonl, tensorboard/, checkpoints/
"""

import dataclasses
import functools
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import Later, at_least, group
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.density import bits, planes
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.supply import Minibatches
from gpflow_deep_runs.report.images import picture
from gpflow_deep_runs.run import Devices, Fitted, Interrupted, Run, Seeds, Settings, Shown, devices, lowest, open_run

import darn
import numpy as np
import tensorflow as tf
from darn import pictures, report
from darn.more.mixture import Density, log_prob, log_prob_by_column, member_log_prob, name_of
from darn.train.density_choice import NEAR, stored_density
from darn.train.rivals import given
from darn.train.selection import few_steps, stored_choice
from darn.train.training import MAX_BLOCK, evaluation_interval
from gpflow_deep_base.page import Bars, Panel, Panels, Part, curve_panels
from gpflow_deep_base.text import aligned, within

REPORT_FLAGS = frozenset({"exact", "final_samples", "is_repeats", "is_rows", "is_samples"})
"""Flags of the final report alone, which may differ when a run is resumed."""

_ODD_ROWS = 3  # test rows of the lowest log p that are shown
_COLUMN_ROWS = 200  # test rows whose columns are measured
_MOST_COLUMNS = 20  # of a table that are shown
_VALID_SAMPLES = 200  # importance samples of a validation row, where densities are compared


@dataclass(frozen=True)
class Flags:
    """Train a deep autoregressive network (DARN) on binary data, and report its likelihood.

    Stochastic and deterministic units, learning rate and weight decay are chosen by the validation rows if --hidden is
    not given; those of the others that are given stay. (Layers of images, grey levels, several devices need --hidden.)

    :param architecture: auto: where --hidden is not given, chains of logistic regressions, masked networks, trees and
        mixtures are tried beside the DARN, and the best by the validation rows is kept, too; darn: nothing beside it,
        and a longer search. Columns of one category are one variable of each of them.
    :param bins: numbers of --data besides 0 and 1 become at most so many ordered bins, which are one variable.
    :param use_local: locally connected layers next to the image, as with --visible_conditional=local: in place of
        --units there, or with --local_stochastic below the layers that --hidden names.
    :param eval_every: steps between evaluations on validation data; about an epoch if this is not given.
    :param patience: stop after so many evaluations in a row without improvement; 0 for never. A chosen learning rate
        that falls to 0 is trained with until then.
    :param eval_rows: rows of the training and of the validation part (drawn once) to look at during training.
    :param eval_samples: draws of h for each row at an evaluation.
    :param is_rows: at most so many test rows, drawn once, for importance sampling; the standard error is that of rows.
    :param jit: compile with XLA: faster steps for small models, after up to a minute. If not given: on one GPU, where
        it makes steps ten times as fast, without layers of images.
    :param bit_planes: grey levels as so many bits a pixel, the highest first.
    """

    run: Settings = group(batch_size=100, num_steps=40_000, omit=("eval_every",))
    devices: Devices = group()
    source: views.Source = group()
    table: views.TableSpec = group(omit=("target", "task", "unknown"))
    model: Later[darn.DARNConfig] = group(hidden=None, units=None, visible_conditional=None, omit=("categories",))
    local: Later[darn.LocalConfig] = group(prefix="local_")
    pixelcnn: Later[darn.PixelCNNConfig] = group(prefix="pixelcnn_")
    training: Later[darn.TrainingConfig] = group(optimizer=None, learning_rate=None, weight_decay=None, average=None)
    search: darn.SearchConfig = group(omit=("validation_fraction",))
    final: report.ReportConfig = group()
    architecture: Literal["auto", "darn"] = "auto"
    bins: int = 16
    use_local: bool = False
    eval_every: int | None = None
    patience: int = 10
    eval_rows: int = 10_000
    eval_samples: int = 1
    is_rows: int = 1000
    jit: bool | None = None
    bit_planes: int | None = None

    def __post_init__(self) -> None:
        positive = ("eval_every", "eval_rows", "eval_samples", "is_rows", "bit_planes")
        at_least(self, {**dict.fromkeys(positive, 1), "patience": 0, "bins": 2})
        views.check_table(self.source, self.table)
        # What does not fit is refused before data are read, which may take minutes.
        darn.TrainingConfig(**given(self.training.keywords))
        fields = given(self.model.keywords)
        if not self.has_images:
            check_model({"visible": 8, **fields})
        # What is chosen needs the usual model: no layers of images, no grey levels, one device.
        is_usual = not self.has_images and fields["observations"] == "binary" and self.devices.strategy == "none"
        if "hidden" not in fields and not (is_usual and self.final.exact != "yes"):
            reasons = "local layers, a PixelCNN, --observations=intensities, --strategy or --exact=yes"
            raise ValueError(f"--hidden must be given with {reasons}; else it is chosen by the validation rows.")

    @property
    def has_images(self) -> bool:
        """Whether there are layers that need the shape of images."""
        return self.use_local or given(self.model.keywords).get("visible_conditional") in ("local", "pixelcnn")

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the steps; layers of images take it minutes."""
        if self.jit is not None:
            return self.jit
        is_simple = not self.has_images and self.devices.strategy == "none"
        return is_simple and bool(tf.config.list_physical_devices("GPU"))

    def load(self) -> Rows:
        """The data in the view that the model needs."""
        is_grey = self.bit_planes or self.model.keywords["observations"] == "intensities"
        data = views.load(self.source, "grey" if is_grey else "binary", table=self.table, bins=self.bins)
        return planes.in_planes(data, self.bit_planes) if self.bit_planes else data

    def model_fields(self, data: Rows) -> dict[str, Any]:
        """Fields of the `DARNConfig` of these data; without `hidden` if that is to be chosen."""
        fields = {"visible": data.train.X.shape[1], **given(self.model.keywords)}
        shape = data.image_shape
        kind = fields.get("visible_conditional")
        # Layers of images need their shape; local layers are hidden layers below the others.
        if (self.use_local or kind in ("local", "pixelcnn")) and shape is None:
            raise ValueError(f"layers of images need images, but the rows of {data.name} have no image shape.")
        if self.use_local or kind == "local":
            local = self.local(image_shape=shape)
            fields = {"visible_conditional": "factorial", **fields, "local": local}
            fields |= {"hidden": (*local.hidden, *fields["hidden"])} if "hidden" in fields else {}
        fields |= {"pixelcnn": self.pixelcnn(image_shape=shape)} if kind == "pixelcnn" else {}
        # The bits of one category are one variable, where the conditional can have it so.
        groups = bits.categories(data)
        if groups and not self.use_local and fields["observations"] == "binary" and kind in (None, "linear"):
            fields["categories"] = darn.as_categories(groups, *(data.parts[part].X for part in bits.PARTS))
        check_model(fields)
        return fields


def check_model(fields: Mapping[str, Any]) -> None:
    """:raises ValueError: for fields of a `DARNConfig` that do not fit, whatever `hidden` and `units` are chosen."""
    darn.DARNConfig(**{**({} if "hidden" in fields else {"hidden": (8,), "units": (8,)}), **fields})


def main(flags: Flags) -> None:
    """One run, from the data to the report."""
    strategy = flags.devices.prepare()
    seeds = Seeds(flags.run.seed)
    data = flags.load()
    # What the flags say of the model; without --hidden, the rest is chosen within the run.
    fields = flags.model_fields(data)
    choice = None
    num_data = len(data.train.X)
    training = darn.TrainingConfig(**given(flags.training.keywords))
    settings = replace(flags.run, eval_every=flags.eval_every or evaluation_interval(num_data, flags.run.batch_size))
    if "hidden" in fields:
        trainer = new_trainer(flags, data, strategy, darn.DARNConfig(**fields), training)

    # Rows of each step, and the rows that are looked at on the way.
    minibatches = Minibatches(num_data, settings.batch_size, seeds)
    x = tf.constant(data.train.X)
    watched = {part: data.some(part, flags.eval_rows, seeds).X for part in ("train", "valid")}

    with open_run(
        settings,
        cli.flags.text(flags),
        data,
        strategy,
        name="darn",
        free=REPORT_FLAGS,
        changed=cli.flags.changed(flags),
    ) as run:
        # Densities beside the DARN, then its own size and settings, by the validation rows.
        densities = None
        if "hidden" not in fields:
            if flags.architecture == "auto":
                densities = stored_density(
                    run.path / "exact.npz", data.valid.X, functools.partial(choose_density, flags, data, run)
                )
            choice = stored_choice(run.path / "choice.json", functools.partial(choose, flags, data, run, fields))
            trainer = new_trainer(flags, data, strategy, choice.model, choice.training)
        # How long to train: to --num_steps, to the end of a chosen schedule, or a few steps.
        cosine = last = choice.training.cosine if choice else None
        if choice and densities and choice.trials[0].valid_nats > (1.0 + NEAR) * densities.valid_nats:
            # It is one of several and none of the best: it is not trained to its end.
            last = min(few_steps(data.train.X.shape[1]), cosine or settings.num_steps)
        # Train, and keep the model of the best evaluation.
        fitted = run.fit(
            lambda first, count: trainer.advance(x, minibatches(first, count), seeds("train")),
            state=lambda: {"trainer": trainer},
            scalars=report.training_scalars,
            evaluate=lambda step: report.evaluate(trainer, watched, seeds, flags.eval_samples),
            rule=lowest("valid/description_length_nats"),
            patience=None if cosine else flags.patience or None,
            is_done=lambda step: last is not None and step >= last,
            keep=lambda path: darn.save_darn(trainer.copied(), path),
            show=lambda: Shown(*pictures.glance(trainer, watched["valid"], seeds, data.image_shape)),
            steps_per_call=MAX_BLOCK,
            max_seconds=run.share_of_seconds(1),
        )
        if run.is_chief:
            finish(flags, data, run, fitted, watched["train"], choice, densities)


def _say(line: str) -> None:
    print(within(line), flush=True)


def _look(run: Run) -> None:
    if run.share_of_seconds(1) == 0:
        raise Interrupted(0, "max_seconds")


def choose_density(flags: Flags, data: Rows, run: Run) -> darn.DensityChoice:
    """The best chain, network, tree or mixture by the validation rows."""
    return darn.choose_density(
        data.train.X,
        data.valid.X,
        seed=flags.run.seed,
        groups=bits.categories(data),
        report=_say,
        look=functools.partial(_look, run),
    )


def choose(flags: Flags, data: Rows, run: Run, fields: dict[str, Any], folder: Path) -> darn.Choice:
    """What flags leave open, by the validation rows; what is known on the way is in the folder.

    :param fields: of the `DARNConfig` that are given.
    """
    is_one_of_several = flags.architecture == "auto"
    search = flags.search.beside_others(data.train.X.shape[1]) if is_one_of_several else flags.search
    return darn.choose(
        data.train.X,
        data.valid.X,
        search=search,
        batch_size=flags.run.batch_size,
        folder=folder,
        look=functools.partial(_look, run),
        seed=Seeds(flags.run.seed)("choose"),
        report=_say,
        model={name: value for name, value in fields.items() if name != "visible"},
        training=given(flags.training.keywords),
    )


def new_trainer(
    flags: Flags,
    data: Rows,
    strategy: tf.distribute.Strategy | None,
    model: darn.DARNConfig,
    training: darn.TrainingConfig,
) -> darn.Trainer:
    """A new model of the data, ready to be trained."""
    devices.worker_of(strategy).batch_size(min(flags.run.batch_size, len(data.train.X)))
    with devices.scope(strategy):
        network = darn.DARN(model, seed=Seeds(flags.run.seed)("init"), data=data.train.X)
    flags.final.check(network)
    return darn.Trainer(network, training, num_data=len(data.train.X), strategy=strategy, jit_compile=flags.is_compiled)


def finish(
    flags: Flags,
    data: Rows,
    run: Run,
    fitted: Fitted,
    train: np.ndarray,
    choice: darn.Choice | None,
    exact: darn.DensityChoice | None,
) -> None:
    """Report the best model: all validation and test rows, and those training rows that were looked at."""
    seeds = Seeds(flags.run.seed)
    # The model of the best evaluation is that of the run.
    best = darn.load_darn(run.best_file)
    darn.save_darn(best, run.path / "darn.npz")
    # Its likelihood: exact or by importance sampling, beside the description length.
    parts = {"train": train, "valid": data.valid.X, "test": data.test.X}
    test_rows = data.some("test", flags.is_rows, seeds).X
    scores = report.final(
        best, parts, seeds, flags.final, importance_rows=test_rows, jit_compile=flags.is_compiled, say=_say
    )
    steps = {"steps": fitted.step, "stopped_early": fitted.is_stopped, "step": fitted.best.step}
    settings = {"model": json.loads(best.config.to_json()), **steps, "train_seconds": fitted.seconds}
    settings |= {"choice": choice.to_json()} if choice else {}
    notes = [*(choice.notes() if choice else []), *report.notes(scores)]
    # The best density of all, which may be another one.
    if exact is not None:
        best_density, densities = joined(flags, data, exact, best)
        darn.save_density(best_density.model, run.path / "density.npz")
        settings |= densities
        notes += density_notes(best_density, densities)
        if bits.categories(data):
            notes.append(
                "none of its samples is an impossible row"
                + ("" if best.config.categories else "; those of the DARN may have two levels of a category")
            )
    # The report, figures, and bits by column.
    text = "\n".join([aligned(report.table(scores)), report.CAPTION, *notes, f"reported: {fitted.summary}"])
    lengths = [scores.get(f"test/{name}_nats") for name in ("exact_nll", "is_nll", "description_length")]
    nll = next(length for length in lengths if length is not None)
    metrics = {"log_density_nats": -nll, "train_seconds": fitted.seconds}
    verdict = notes[0] if notes else f"test description length: {nll:.3f} nats a row"
    model = best if exact is None else best_density.model
    shown = [
        *column_parts(model, data, test_rows[:_COLUMN_ROWS], flags.run.seed),
        *figures(data, best, run.records(), seeds("samples")),
    ]
    run.finish({**settings, **scores}, text=text, metrics=metrics, verdict=verdict, parts=shown)


def joined(
    flags: Flags, data: Rows, exact: darn.DensityChoice, best: darn.DARN
) -> tuple[darn.DensityChoice, dict[str, Any]]:
    """The choice with the DARN, and its numbers: of all test rows, or some where the DARN is in it. With categories a
    DARN of free bits is listed and not taken, for its samples may be impossible rows."""
    seeds = Seeds(flags.run.seed)
    # The DARN as one of the candidates, by the same validation rows.
    log_p = member_log_prob(best, data.valid.X, num_samples=_VALID_SAMPLES, seed=flags.run.seed, warns=False)
    with_darn = exact.with_rival(name_of(best), best, log_p)
    chosen = exact if bits.categories(data) and not best.config.categories else with_darn
    # All test rows where log p is exact, some where it is sampled.
    rows = data.test.X if chosen.model is exact.model else data.some("test", flags.is_rows, seeds).X
    log_p = log_prob(chosen.model, rows, seed=flags.run.seed)
    # Its mean negative log-likelihood, and the rows that surprise it most.
    least_probable = rows[np.argsort(log_p, kind="stable")[:_ODD_ROWS]]
    numbers = {
        "candidates": [dataclasses.asdict(trial) for trial in with_darn.trials],
        "density": chosen.trials[0].name,
        "test/density_rows": len(rows),
        "test/density_nll_nats": float(-log_p.mean()),
        "test/density_nll_standard_error": float(log_p.std() / math.sqrt(len(log_p))),
        "odd_rows": odd_rows(chosen, data, least_probable),
    }
    return chosen, numbers


def odd_rows(chosen: darn.DensityChoice, data: Rows, rows: np.ndarray) -> list[dict[str, Any]]:
    """Rows with the value of each that fits the others least, and what another one would give."""
    groups = bits.categories(data)
    log_p = log_prob(chosen.model, rows)
    # What another value of a column would gain is how odd this one is.
    gains = darn.blame(chosen.model, rows, groups=groups)
    names = data.feature_names or tuple(f"x{j}" for j in range(rows.shape[1]))
    descriptions = []
    for row, value, gain in zip(rows, log_p, gains, strict=True):
        place = int(gain.argmax())
        # Of a category, the level that the row has.
        level = next((j for group in groups if place in group for j in group if row[j]), place)
        descriptions.append(
            {
                "log_p_nats": float(value),
                "column": names[level],
                "value": int(row[level]),
                "gain_nats": float(gain[place]),
            }
        )
    return descriptions


def density_notes(chosen: darn.DensityChoice, found: dict[str, Any]) -> list[str]:
    """The candidates and the best of them, as lines of text."""
    value, error, number = (found[f"test/density_{name}"] for name in ("nll_nats", "nll_standard_error", "rows"))
    trials = tuple(darn.DensityTrial(**trial) for trial in found["candidates"])
    lines = ["", "densities by the validation rows:", replace(chosen, trials=trials).table()]
    lines.append(f"density.npz: {found['density']}: {value:.3f} ± {error:.3f} nats on {number} test rows")
    for odd in found["odd_rows"]:
        lines.append(
            f"odd test row: {odd['log_p_nats']:.2f} nats, {odd['column']} = {odd['value']} fits the others least: "
            f"{odd['gain_nats']:.2f} nats more with another value"
        )
    return lines


def column_parts(model: Density, data: Rows, rows: np.ndarray, seed: int) -> list[Part]:
    """Bits of each column given those before it: of images as one, of tables the longest ones. Of a model with several
    orders of the columns, or of numbers between 0 and 1, none."""
    # Of several orders of columns, or of grey levels, there is no length of a column.
    for member in getattr(model, "members", (model,)):
        if isinstance(member, darn.DARN) and (
            member.config.observations != "binary" or member.decoders[0].conditional.is_mixture
        ):
            return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the report says how many importance samples count
        log_p = log_prob_by_column(model, rows, num_samples=_VALID_SAMPLES, seed=seed)
    # Mean bits of each column given those before it.
    lengths = -log_p.mean(axis=0) / math.log(2)
    title = "Description length by column"
    note = f"Mean bits of {len(rows)} test rows given the columns before."
    # Of an image, a picture of its pixels.
    if data.image_shape is not None:
        image = lengths.reshape(data.image_shape)
        shown = np.clip(image / max(float(image.max()), 1e-12), 0, 1)
        return [picture(title, shown[None], note=f"{note} White: {image.max():.2f} bits; black: none.")]

    # Of a table, bars of the longest columns.
    names = data.feature_names or tuple(f"x{j}" for j in range(len(lengths)))
    longest = np.argsort(-lengths, kind="stable")[:_MOST_COLUMNS]
    bars = Bars(lengths[longest], names=[names[j] for j in longest])
    others = len(lengths) - len(longest)
    note += (
        f" The other {others} columns have {lengths.sum() - lengths[longest].sum():.2f} bits together."
        if others
        else ""
    )
    return [Panels(title, [Panel(title, [bars], "bits")], note)]


def figures(data: Rows, model: darn.DARN, records: list[dict[str, Any]], seed: tf.Tensor) -> list[Part]:
    """Description length over training; of images also filters, and samples beside the nearest training images."""
    curves = report.curves(records, model)
    parts: list[Part] = [Panels("Description length", curve_panels(curves, "step", "bits per row"))]
    if data.image_shape is not None:
        images = pictures.pictures(model, seed, data.train.X, data.image_shape)
        columns = 3 if len(images["samples"]) == 6 else 8
        parts += [picture(title.capitalize(), image, columns) for title, image in images.items()]
        if (filters := pictures.filters(model, data.image_shape)) is not None:
            parts.append(picture("Filters", filters))
    return parts


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
