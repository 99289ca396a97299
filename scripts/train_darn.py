#!/usr/bin/env python3
"""Train a deep autoregressive network (DARN) on binary data, and report its likelihood.

    train_darn.py --run_dir=runs/digits
    train_darn.py --run_dir=runs/adult --dataset=adult --data_dir=DATA --hidden=8 --units=100 --patience=10
    train_darn.py --run_dir=runs/mnist --dataset=binarized_mnist --data_dir=DATA --hidden=500 --units=500
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

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import experiment.early  # noqa: F401 (a folder in use is refused before TensorFlow starts)
from experiment import cli
from experiment.cli.flags import Later, at_least, group
from experiment.data import views
from experiment.data.batches import Minibatches
from experiment.data.rows import Rows
from experiment.report import plots
from experiment.report.text import aligned
from experiment.run import Devices, Fitted, Run, Seeds, Settings, Shown, devices, lowest, open_run

import tensorflow as tf
from darn import DARN, DARNConfig, LocalConfig, Trainer, TrainingConfig, load_darn, pictures, report, save_darn
from darn.training import MAX_BLOCK, Observed


@dataclass(frozen=True)
class Flags:
    """Train a deep autoregressive network (DARN) on binary data, and report its likelihood.

    :param use_local: locally connected layers next to the image, in place of --units there; with
        --visible_conditional=local they are used anyway.
    :param patience: stop after so many evaluations in a row without improvement; never if this is not given.
    :param eval_rows: rows of the training and of the validation part (drawn once) to look at during training.
    :param eval_samples: draws of h for each row at an evaluation.
    :param is_rows: test rows (drawn once) for importance sampling; all if this is not given.
    :param jit: compile with XLA: faster steps for small models, after up to a minute.
    """

    run: Settings = group(batch_size=100)
    devices: Devices = group()
    source: views.Source = group()
    table: views.TableSpec = group(omit=("target", "task", "unknown"))
    model: Later[DARNConfig] = group()
    local: Later[LocalConfig] = group(prefix="local_")
    training: TrainingConfig = group()
    final: report.ReportConfig = group()
    use_local: bool = False
    patience: int | None = None
    eval_rows: int = 10_000
    eval_samples: int = 1
    is_rows: int | None = None
    jit: bool = False

    def __post_init__(self) -> None:
        at_least(self, dict.fromkeys(("patience", "eval_rows", "eval_samples", "is_rows"), 1))

    def load(self) -> Rows:
        """The data in the view that the model needs."""
        is_grey = self.model.keywords["observations"] == "intensities"
        return views.load(self.source, "grey" if is_grey else "binary", table=self.table)

    def model_config(self, data: Rows) -> DARNConfig:
        """The model of these data."""
        width = data.train.X.shape[1]
        if not self.use_local and self.model.keywords["visible_conditional"] != "local":
            return self.model(visible=width)
        if data.image_shape is None:
            raise ValueError(f"--use_local needs images, but the rows of {data.name} have no image shape.")
        return self.model(visible=width, local=self.local(image_shape=data.image_shape))


def main(flags: Flags) -> None:
    """One run, from the data to the report."""
    strategy, seeds = flags.devices.prepare(), Seeds(flags.run.seed)
    data = flags.load()
    trainer = new_trainer(flags, data, seeds, strategy)
    minibatches, x = Minibatches(len(data.train.X), flags.run.batch_size, seeds), tf.constant(data.train.X)
    watched = {part: data.some(part, flags.eval_rows, seeds).X for part in ("train", "valid")}

    def advance(first: int, count: int) -> Observed:
        return trainer.advance(x, minibatches(first, count), seeds("train"))

    with open_run(flags.run, cli.flags.text(flags), data, strategy, name="darn") as run:
        fitted = run.fit(
            advance,
            state=lambda: {"trainer": trainer},
            scalars=report.training_scalars,
            evaluate=lambda step: report.evaluate(trainer, watched, seeds, flags.eval_samples),
            rule=lowest("valid/description_length_nats"),
            patience=flags.patience,
            keep=lambda path: save_darn(path, trainer.copied()),
            show=lambda: Shown(*pictures.glance(trainer, watched["valid"], seeds, data.image_shape)),
            steps_per_call=MAX_BLOCK,
        )
        if run.is_chief:
            finish(flags, data, run, fitted, watched["train"])


def new_trainer(flags: Flags, data: Rows, seeds: Seeds, strategy: tf.distribute.Strategy | None) -> Trainer:
    """A new model of the data, ready to be trained.

    :raises ValueError: if settings do not fit each other or the data.
    """
    devices.worker_of(strategy).batch_size(min(flags.run.batch_size, len(data.train.X)))
    with devices.scope(strategy):
        model = DARN(flags.model_config(data), seed=seeds("init"), data=data.train.X)
    flags.final.check(model)
    num_data = len(data.train.X)
    return Trainer(model, flags.training, num_data=num_data, strategy=strategy, jit_compile=flags.jit)


def finish(flags: Flags, data: Rows, run: Run, fitted: Fitted, train: Any) -> None:
    """Report the best model: all validation and test rows, and those training rows that were looked at."""
    seeds, best = Seeds(flags.run.seed), load_darn(run.best_file)
    save_darn(run.path / "darn.npz", best)
    parts = {"train": train, "valid": data.valid.X, "test": data.test.X}
    some_test = data.some("test", flags.is_rows, seeds).X
    found = report.final(best, parts, seeds, flags.final, importance_rows=some_test, jit_compile=flags.jit)
    about = {
        "model": dataclasses.asdict(best.config),
        "steps": fitted.step,
        "stopped_early": fitted.is_stopped,
        "step": fitted.best.step,
        "train_seconds": fitted.seconds,
    }
    text = "\n".join([aligned(report.table(found)), *report.notes(found), f"reported: {fitted.summary}"])
    run.finish({**about, **found}, text=text, figures=figures(data, best, run.records(), seeds("samples")))


def figures(
    data: Rows, model: DARN, records: list[dict[str, Any]], seed: tf.Tensor
) -> dict[str, Callable[[Path], None]]:
    """Description length over training; of images also filters, and samples beside the nearest training images."""
    curves = report.curves(records, model)
    drawn = {"description_length": lambda path: plots.lines(path, curves, xlabel="step", ylabel="bits per row")}
    if data.image_shape is not None:
        images = pictures.pictures(model, seed, data.train.X, data.image_shape)
        columns = 3 if len(images["samples"]) == 6 else 8
        drawn["samples"] = lambda path: plots.image_grid(path, images, columns=columns)
        filters = pictures.filters(model, data.image_shape)
        if filters is not None:
            drawn["filters"] = lambda path: plots.image_grid(path, {"filters": filters})
    return drawn


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
