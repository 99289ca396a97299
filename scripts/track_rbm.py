#!/usr/bin/env python3
"""Train a restricted Boltzmann machine while its log partition function is tracked at every update.

    gpflow-deep rbm --run_dir=runs/mnist --dataset=mnist --data_dir=DATA --hidden=500 --adaptive
    gpflow-deep rbm --run_dir=runs/own --data=table.csv
    gpflow-deep rbm --run_dir=runs/own --resume --num_steps=50000

Every log-likelihood is in nats per row. Ctrl-C saves a checkpoint. The folder of the run gets:

    result.json   log-likelihoods by the tracker, by AIS from below and above, exactly, by all of this evidence
    rbm.npz       the parameters with their log Z, for rbm_tracking.load_rbm
    plots/        log-likelihood and log Z over training, measurements of the filter, filters and samples
    scalars.jsonl, tensorboard/, checkpoints/
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import Later, at_least, group
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.density.bits import categories
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.supply import Minibatches
from gpflow_deep_runs.report.images import picture
from gpflow_deep_runs.run import Devices, Fitted, Run, Seeds, Settings, Shown, devices, newest, open_run

from absl import logging
from gpflow_deep_base import page
from gpflow_deep_base.text import aligned
from rbm_tracking import SMLConfig, Trainer, base_rate_biases, evaluation, load_rbm, new_trainer, report, save_rbm
from rbm_tracking.model.units import HiddenName, UnitsConfig, as_tensor, choose_units, hidden_units
from rbm_tracking.model.visible import Visible
from rbm_tracking.track.settings import ScheduleName
from rbm_tracking.use.training import MAX_BLOCK


@dataclass(frozen=True)
class Flags:
    """Train a restricted Boltzmann machine while its log partition function is tracked at every update.

    :param hidden: number of hidden units.
    :param hidden_units: what they are; those without bounds (gaussian, relu, drelu) want --learning_rate=0.03.
    :param num_temps: number of temperatures, from beta = 1 to 0.
    :param num_chains: chains at each temperature; those at beta = 1 and the target chains estimate the gradient.
    :param num_track_chains: more chains at each temperature, which only track.
    :param spawn_up_to: add temperatures where swaps are rare, up to this number; 0: never.
    :param schedule: of the learning rate: linear or cosine to 0 at the end, constant, paper (by learning_rate_decay).
    :param modes: start from so many leading modes of the data; 0: from small random weights.
    :param trajectory: keep parameters along the way in trajectory/.
    :param dtype: precision of the parameters.
    :param eval_every: updates between evaluations; if this is not given twenty passes over the rows, ten over
        fewer than a thousand, from 50 to 500.
    :param patience: stop after so many evaluations in a row that were worse beyond their errors, or not trusted, and
        report the best, which AIS has checked; 0: train to the end and report the last. 10 if log Z is tracked.
    :param eval_rows: rows of the training and of the validation part (drawn once) to look at during training.
    :param ais_every: updates between AIS estimates of log Z; 0: only at the end.
    :param exact_every: updates between exact log Z, for 25 units or fewer; 0: only at the end.
    :param jit: compile with XLA.
    """

    run: Settings = group(batch_size=100, checkpoint_every=5000, omit=("eval_every",))
    devices: Devices = group(omit=("strategy", "replicas"))
    source: views.Source = group()
    table: views.TableSpec = group(omit=("target", "task", "unknown"))
    training: Later[SMLConfig] = group(omit=("gradient_chains", "schedule", "decay_steps"))
    log_z: evaluation.EvidenceConfig = group()
    units: UnitsConfig = group()
    hidden: int = 100
    hidden_units: HiddenName = "bernoulli"
    num_temps: int = 10
    num_chains: int = 20
    num_track_chains: int = 0
    spawn_up_to: int = 0
    schedule: ScheduleName = "linear"
    modes: int = 0
    trajectory: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    eval_every: int | None = None
    patience: int | None = None
    eval_rows: int = 10_000
    ais_every: int = 0
    exact_every: int = 0
    jit: bool = True

    def __post_init__(self) -> None:
        least = dict.fromkeys(("num_track_chains", "spawn_up_to", "modes", "ais_every", "exact_every", "patience"), 0)
        at_least(self, least | {"eval_every": 1, "hidden": 1, "num_temps": 2, "num_chains": 2, "eval_rows": 1})
        views.check_table(self.source, self.table)
        if not self.sml.track and self.patience:
            raise ValueError("--patience needs the tracked log Z; leave out --notrack.")

    @property
    def sml(self) -> SMLConfig:
        """How to train and track."""
        given = self.training.keywords
        return self.training(
            gradient_chains=self.num_chains if self.num_track_chains else None,
            schedule=self.schedule,
            decay=dataclasses.replace(given["decay"], decay_steps=self.run.num_steps),
            adaptive=given["adaptive"] or self.spawn_up_to > 0,
        )


def main(flags: Flags) -> None:
    """One run, from the data to the report."""
    flags.devices.prepare()
    # The rows, the machine, and what is looked at during training.
    data, visible = read(flags)
    seeds = Seeds(flags.run.seed)
    trainer = started(flags, data, visible, seeds)
    minibatches = Minibatches(len(data.train.X), flags.run.batch_size, seeds)
    x = as_tensor(data.train.X)
    watched = {part: data.some(part, flags.eval_rows, seeds).X for part in ("train", "valid")}
    base_b = base_rate_biases(data.train.X, visible=visible)
    evaluations = evaluation.Evaluations(watched, flags.log_z)
    patience = (10 if flags.patience is None else flags.patience or None) if flags.sml.track else None

    # AIS at a step is asked for by the evaluation and by --ais_every, and computed once.
    @functools.lru_cache(maxsize=2)
    def by_ais(step: int, **side: bool) -> dict[str, float]:
        return evaluation.ais_scalars(trainer.model, base_b, flags.log_z, seeds("ais"), flags.sml.generator, **side)

    def evaluate(step: int) -> Mapping[str, float]:
        scalars = report.filter_scalars(trainer)
        if trainer.config.track:
            is_asked = patience or (flags.ais_every and step % flags.ais_every == 0)
            scalars |= evaluations(
                trainer.model, trainer.observed, functools.partial(by_ais, step) if is_asked else None
            )
            if evaluations.news:
                logging.warning("update %d: %s", step, evaluations.news)
        return scalars | (evaluation.exact_scalars(trainer.model.rbm) if step == flags.run.num_steps else {})

    def spawn(step: int) -> Mapping[str, float]:
        trainer.spawn()
        return {}

    eval_every = flags.eval_every or evaluation.interval(len(data.train.X), flags.run.batch_size)
    settings = dataclasses.replace(flags.run, eval_every=eval_every)
    # Train; AIS and exact values come at steps of their own.
    with open_run(settings, cli.flags.text(flags), data, name="rbm", changed=cli.flags.changed(flags)) as run:
        fitted = run.fit(
            lambda first, count: trainer.advance(x, minibatches(first, count), seeds("train")),
            state=lambda: {"trainer": trainer.store, "evaluations": evaluations.store},
            scalars=lambda observed: report.filter_scalars(trainer),
            evaluate=evaluate,
            rule=evaluation.highest() if patience else newest,
            patience=patience,
            keep=lambda path: save_rbm(trainer.saved(), path),
            show=lambda: Shown(report.pictures(trainer.model, data.image_shape), {"weights": trainer.model.rbm.W}),
            also=(
                (flags.exact_every, lambda step: evaluation.checked_scalars(trainer.model)),
                (flags.ais_every, by_ais),
                (flags.run.log_every, spawn),
            ),
            steps_per_call=MAX_BLOCK,
        )
        finish(flags, data, run, fitted, trainer)


def read(flags: Flags) -> tuple[Rows, Visible]:
    """The rows, and the visible units that they call for."""
    data = views.load(flags.source, "continuous" if flags.units.visible == "gaussian" else "binary", table=flags.table)
    units = choose_units(flags.units, {name: part.X for name, part in data.parts.items()}, categories(data))
    parts = {name: Part(X) for name, X in units.parts.items()}
    return dataclasses.replace(data, parts=parts, source=f"{data.source}; {units.note}"), units.visible


def started(flags: Flags, data: Rows, visible: Visible, seeds: Seeds) -> Trainer:
    """A new RBM of the data, ready to be trained."""
    return new_trainer(
        data.train.X,
        flags.hidden,
        flags.sml,
        seeds,
        num_temps=flags.num_temps,
        num_chains=flags.num_chains + flags.num_track_chains,
        modes=flags.modes,
        dtype=flags.dtype,
        visible=visible,
        hidden_units=hidden_units(flags.hidden_units, flags.hidden),
        trajectory=Path(flags.run.run_dir) / "trajectory" if flags.trajectory else None,
        spawn_up_to=flags.spawn_up_to,
        jit_compile=flags.jit,
    )


def finish(flags: Flags, data: Rows, run: Run, fitted: Fitted, trainer: Trainer) -> None:
    """Report the best parameters or, with --patience=0, the last."""
    seeds = Seeds(flags.run.seed)
    # The best parameters if they were looked for, else the last.
    records = run.records()
    saved = load_rbm(run.best_file) if fitted.best.step >= 0 else trainer.saved()
    save_rbm(saved._replace(beta=trainer.state.ladder.beta.numpy()), run.path / "rbm.npz")
    # Estimates of log Z by tracker, AIS and, where that can be, exactly; scores of all parts.
    parts = {name: part.X for name, part in data.parts.items()}
    errors = report.logged_errors(records)
    scores = evaluation.final(
        trainer.model,
        saved,
        parts,
        seeds,
        flags.log_z,
        trainer.config,
        records=records,
        along=trainer.along(saved.step),
    )
    # What is reported in result.json, as text and in TensorBoard.
    training = {
        "hidden": flags.hidden,
        "updates": fitted.step,
        "stopped_early": fitted.is_stopped,
        "num_temps": trainer.num_temps,
        "tracking": errors,
        "train_seconds": fitted.seconds,
    }
    table = aligned(report.table(scores))
    stopped = ", stopped early" * fitted.is_stopped
    text = [
        table,
        *report.notes(scores, errors, flags.log_z.ais_chains),
        f"reported: update {saved.step} of {fitted.step}{stopped}",
    ]
    best = scores.get("evidence", {})
    metrics = {"log_density_nats": best.get("test_log_likelihood_nats"), "train_seconds": fitted.seconds}
    verdict = best.get("statement", "")
    shown = figures(data, trainer, records)
    run.finish({**training, **scores}, text="\n".join(text), metrics=metrics, verdict=verdict, parts=shown)


def figures(data: Rows, trainer: Trainer, records: list[dict[str, Any]]) -> list[page.Part]:
    """Figure 3 and Figure 4 of this run, filters and samples."""
    parts: list[page.Part] = []
    if trainer.config.track:
        curves = report.filter_curves(records, trainer.num_temps)
        units = {"log Z": "nats", "change in an update": "nats"}
        scores = {"log-likelihood": report.likelihood_curves(records)}
        parts.append(page.Panels("Log Z", page.curve_panels(curves, "update", units)))
        parts.append(page.Panels("Log-likelihood", page.curve_panels(scores, "update", "nats per row")))
    if data.image_shape is not None:
        images = report.pictures(trainer.model, data.image_shape)
        images |= {"data": data.train.X[:100].reshape(-1, *data.image_shape)}
        parts += [picture(title.capitalize(), image) for title, image in images.items()]
    return parts


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
