#!/usr/bin/env python3
"""Train a deep Gaussian process on a data set or your own table, and a single-layer GP beside it.

    gpflow-deep train --run_dir=runs/houses --data=houses.csv --target=price
    gpflow-deep train --run_dir=runs/houses --resume --num_steps=20000
    gpflow-deep train --run_dir=runs/mnist --dataset=mnist --data_dir=DATA --kernel=convolutional \\
        --num_layers=1 --stride=2
    gpflow-deep train --run_dir=runs/taxi --stream --stream_preset=taxi --data="trips/*.parquet" --strategy=mirrored

Inputs (and regression targets) are standardised with the training part; every reported number is in the units of the
data. Of a table of numbers in memory the rows choose depth, kernel, inducing inputs, likelihood and posterior, as far
as no flag gives them, whatever --num_steps is: what was tried is printed, and kept in choice/ for --resume. The
learning rate falls to 0 over the last half of the steps, or after the bound has stopped rising, and training ends.
Scores on the test rows choose nothing: the last parameters are reported. Ctrl-C saves a checkpoint. The folder gets:

    result.json             scores of the deep GP and of what it is compared with
    model.npz, inputs.json  the trained model and how its inputs are made, for gpflow-deep predict
    choice/                 what was tried before a model was taken, and where its training began
    scalars.jsonl, tensorboard/, plots/, checkpoints/, gp/ (the same for the single-layer GP)

--posterior=sghmc: a chain follows, and its samples predict. --stream: Parquet larger than memory, see docs/scaling.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import Later, at_least, group
from gpflow_deep_runs.data import supply, tables, views
from gpflow_deep_runs.data.streams.reader import BatchReader
from gpflow_deep_runs.data.streams.scan import StreamSpec
from gpflow_deep_runs.run import Devices, Interrupted, Run, Seeds, Settings, Shown, devices, open_run

import numpy as np
import tensorflow as tf
from absl import logging
from gpflow_deep import ModelConfig, Predictor, Scale, TrainingConfig, Units, float_type, pages, report
from gpflow_deep.judge.evaluation import Evaluation
from gpflow_deep.train.choosing.selection import Begun, begin_chosen, can_choose
from gpflow_deep.train.choosing.stored_choice import FoundTrainer, is_stored, stored_choice
from gpflow_deep.train.config import KernelName, Posterior
from gpflow_deep.train.fitting import choose_kl_weight
from gpflow_deep.train.sampled_training import SamplingConfig, trainer_for
from gpflow_deep_base.page import Part
from gpflow_deep_base.text import aligned, within

FREE_SETTINGS = ("num_layers", "num_inducing", "kernel", "posterior")
"""Settings of a model that the rows choose if no flag gives them; the likelihood has a word for that."""


@dataclass(frozen=True)
class Flags:
    """Train a deep Gaussian process on a data set or your own table, and a single-layer GP beside it.

    :param num_layers: number of layers; 1 is a sparse variational GP. Chosen by the rows if not given, or 2 where they
        cannot choose: labels, streams, several devices, float32, posteriors and presets that are not the usual ones.
    :param num_inducing: number of inducing inputs of every layer; chosen likewise, or 100.
    :param kernel: of a layer's inputs; with "+linear" the last layer has a linear kernel beside it, for a trend. Or
        convolutional, of patches of images. auto: chosen likewise, or squared_exponential.
    :param posterior: of the inducing values: gaussian is what training finds; sghmc are samples, drawn from there on;
        global is one that is correlated across layers; sigma_points is Gaussian, trained by the predictive density;
        imputed are draws of the inner outputs of two layers, of few rows without noise.
        auto: chosen with the number of layers, or gaussian.
    :param eval_rows: rows of each part (drawn once) to look at during training; the end uses all test rows.
    :param standardise: whether to standardise the inputs; auto: all but images.
    :param dtype: what to compute in; float32 is faster on a GPU, but float64 is safer.
    :param compare: what to fit beside the deep GP: gp, linear, both, or nothing (--compare=).
    """

    run: Settings = group(num_steps=5000, batch_size=1000)
    devices: Devices = group()
    source: views.Source = group()
    table: views.TableSpec = group()
    division: supply.Division = group()
    pieces: StreamSpec = group()
    model: Later[ModelConfig] = group(preset="modern", omit=FREE_SETTINGS)
    training: TrainingConfig = group()
    sampling: SamplingConfig = group(prefix="chain_")
    num_layers: int | None = None
    num_inducing: int | None = None
    kernel: Literal["auto", KernelName] = "auto"
    posterior: Literal["auto", Posterior] = "auto"
    eval_rows: int = 10_000
    standardise: Literal["auto", "yes", "no"] = "auto"
    dtype: Literal["float64", "float32"] = "float64"
    compare: tuple[str, ...] = ("gp",)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.compare) - {"gp", "linear"}):
            raise ValueError(f"--compare may list gp and linear, got {', '.join(unknown)}.")
        at_least(self, {"eval_rows": 1})
        views.check_table(self.source, self.table)
        _ = self.config  # refuses what does not fit

    @property
    def free(self) -> list[str]:
        """What no flag gives."""
        numbers = {"num_layers": self.num_layers, "num_inducing": self.num_inducing}
        words = {"kernel": self.kernel, "likelihood": self.config.likelihood}
        # Numbers that are not given, and words that are "auto".
        free = [name for name, number in numbers.items() if number is None]
        free += [name for name, word in words.items() if word == "auto"]
        return [*free, "posterior"] if self.posterior == "auto" and "num_layers" in free else free

    @property
    def config(self) -> ModelConfig:
        """The model, with the usual number or name for what no flag gives."""
        kernel = "squared_exponential" if self.kernel == "auto" else self.kernel
        num_layers = 2 if self.num_layers is None else self.num_layers
        num_inducing = 100 if self.num_inducing is None else self.num_inducing
        posterior = "gaussian" if self.posterior == "auto" else self.posterior
        return self.model(num_layers=num_layers, num_inducing=num_inducing, kernel=kernel, posterior=posterior)

    def single(self) -> "Flags":
        """Of the single layer beside a deeper model."""
        # Settings that only a deep model has are as usual.
        plain = {name: getattr(ModelConfig, name) for name in ("points", "latents")}
        model: Any = partial(ModelConfig, **{**self.model.keywords, **plain})
        return replace(self, model=model, num_layers=1, posterior="gaussian")


class Study(NamedTuple):
    """The data, the model for them, and their units; the training part as the model sees it, and the devices.

    :ivar can_choose: whether the rows choose what no flag gives; then `config` has a place-holder for it at first.
    :ivar begun: what they chose.
    """

    flags: Flags
    data: supply.Supply
    config: ModelConfig
    units: Units
    train: tuple[np.ndarray, np.ndarray]
    strategy: tf.distribute.Strategy | None
    can_choose: bool
    begun: Begun | None = None


class Job(NamedTuple):
    """What trains a model (as `trainer_for` gives it), the rows that are scored, and its minibatches by step."""

    trainer: Any
    watch: report.Watch
    batches: supply.ArrayBatches | BatchReader


class Compared(NamedTuple):
    """The models so far by name, the linear baseline first: scores, predictions of test rows, and by title the logs."""

    models: dict[str, report.Summary]
    judged: dict[str, Evaluation]
    courses: dict[str, list[dict[str, Any]]]


def main(flags: Flags) -> None:
    """One run, from the data to the report."""
    with float_type(flags.dtype):
        study = prepare(flags)
        data = study.data
        compared = baselines(study)
        # The models to train: the run has as many steps as the longest of them.
        jobs = new_jobs(study)
        with open_run(
            replace(flags.run, num_steps=max(job.trainer.max_steps for job in jobs.values())),
            cli.flags.text(flags),
            data.rows,
            study.strategy,
            name=list(jobs)[-1],
            changed=cli.flags.changed(flags),
        ) as run:
            if run.is_chief:
                data.keep(run.path)
                print(within(data.description), flush=True)
            # On tables in memory the rows choose what no flag gives; the models are made anew then.
            if study.can_choose:
                study = chosen(study, run)
                jobs = new_jobs(study)
            # The weight of the KL of sigma points is chosen before training.
            config = study.config
            if study.begun is None and config.posterior == "sigma_points" and config.points.kl_weight is None:
                weight = choose_kl_weight(
                    config,
                    *data.rows.train,
                    path=run.path / "kl_weight.json",
                    max_iter=flags.run.num_steps,
                    batch_size=flags.run.batch_size,
                    seed=flags.run.seed,
                    training=flags.training,
                    class_names=data.rows.class_names,
                    show=print,
                )
                jobs[list(jobs)[-1]].trainer.model.kl_weight = weight.kl_weight
            train(study, jobs, run, compared)


def baselines(study: Study) -> Compared:
    """What has a closed form and is no training: the linear baseline; a `ValueError` if it does not fit the data."""
    compared = Compared({}, {}, {})
    if "linear" in study.flags.compare:
        data = study.data
        summary, by_part = report.linear_baseline(data.rows.train, data.parts, study.config.likelihood)
        compared.models["linear"] = summary
        compared.judged["linear"] = by_part["test"]
    return compared


def train(study: Study, jobs: Mapping[str, Job], run: Run, compared: Compared) -> None:
    """Each model in turn, which shares what is left of the time; the last is that of the run, others are children."""
    single = study.flags.single()
    for num_left, (name, job) in zip(range(len(jobs), 0, -1), jobs.items(), strict=True):
        is_last = num_left == 1
        job_run = run if is_last else run.child(name, cli.flags.text(single), cli.flags.changed(single))
        compared.models[name], final = fit(job_run, job, study, run.share_of_seconds(num_left))
        compared.judged[name] = final.judged["test"]
        if run.is_chief:
            compared.courses[report.title(report.depth(job.trainer.model))] = job_run.records()
            finish(job_run, name, job, study, compared, is_last=is_last)


def finish(run: Run, name: str, job: Job, study: Study, compared: Compared, *, is_last: bool) -> None:
    """What a run reports: the last one all models beside each other, a child of it the own one."""
    config = study.config
    models = compared.models
    result = {
        **study.data.about(),
        "likelihood": config.likelihood,
        "num_predict_samples": config.num_predict_samples,
        "models": models if is_last else {name: models[name]},
    }
    chosen: dict[str, bool | float | str] = {"num_layers": report.depth(job.trainer.model)}
    text: list[str | list[list[str]]] = []
    # Only the last one has a page, and a text for the console.
    if is_last:
        chosen |= {"kernel": config.kernel, "likelihood": config.likelihood}
        text = report.text(models, compared.judged, study.data.task, study.data.rows.target_names)
    run.finish(
        result,
        text="\n".join(part if isinstance(part, str) else aligned(part) for part in text),
        metrics=report.metrics(models[name]),
        chosen=chosen,
        verdict="\n".join([report.verdict(models, compared.judged), *report.warnings(models)]),
        parts=page_parts(study, job, compared, has_page=is_last),
    )


def prepare(flags: Flags) -> Study:
    """Devices, data, and what the model has to know of them; a `ValueError` if the flags do not fit the data."""
    strategy = flags.devices.prepare()
    data = supply.load(
        flags.source,
        flags.division,
        flags.pieces,
        table=flags.table,
        default="airline_nyc",
        seed=flags.run.seed,
        kept=flags.run.run_dir if flags.run.is_resumed else None,
        progress=flags.run.progress,
    )
    # The model's settings for these data, and their units: scales of inputs and targets.
    rows = data.rows
    stream = data.stream
    config = flags.config.for_data(data.task, rows.parts.values(), rows.image_shape)
    is_image = config.is_convolutional or rows.name in ("mnist", "rectangles_images")
    is_scaled = {"yes": True, "no": False}.get(flags.standardise, not is_image)
    stream_scales = None if stream is None else (Scale(*stream.x_scale), Scale(*stream.y_scale))
    units = Units.fit(*rows.train, config.likelihood, standardise=is_scaled, known=stream_scales)
    # Rows choose only for a table of numbers in memory, on one device.
    is_plain = stream is None and strategy is None and is_scaled and data.task == "regression"
    rows_choose = is_plain and can_choose(flags.config, len(rows.class_names))
    # A note on what the rows will choose anyway would mislead.
    for note in report.notes(config, units, rows.feature_names, len(rows.train.X)):
        if not (rows_choose and "num_inducing" in flags.free and note.startswith("num_inducing")):
            logging.warning(note)
    return Study(flags, data, config, units, units.transform(*rows.train), strategy, rows_choose)


def chosen(study: Study, run: Run) -> Study:
    """The study with the model that the rows choose, or that they chose when the run began."""
    flags = study.flags
    rows = study.data.rows

    def choose() -> Begun:
        return begin_chosen(
            flags.config,
            flags.free,
            *rows.train,
            training=flags.training,
            batch_size=flags.run.batch_size,
            seed=flags.run.seed,
            with_single="gp" in flags.compare,
            show=partial(print, flush=True),
        )

    # On --resume the stored choice is taken and shown.
    folder = run.path / "choice"
    is_kept = is_stored(folder)
    begun = stored_choice(folder, choose, study.config, flags.training)
    if is_kept:
        print(begun.choice, flush=True)
    return study._replace(begun=begun, config=begun.choice.config)


def new_jobs(study: Study) -> dict[str, Job]:
    """The models to train, by name, the last one that of the run; a `ValueError` if settings do not fit."""
    num_layers = study.config.num_layers
    depths = {"gp": 1} if "gp" in study.flags.compare or num_layers == 1 else {}
    depths |= {"dgp": num_layers} if num_layers > 1 else {}
    return {name: new_job(study, depth) for name, depth in depths.items()}


def new_job(study: Study, num_layers: int) -> Job:
    """A new model of so many layers, ready to be trained; a `ValueError` if settings do not fit."""
    flags = study.flags
    data = study.data
    units = study.units
    rows = data.rows
    worker = devices.worker_of(study.strategy)
    seeds = Seeds(flags.run.seed)
    begun = study.begun
    is_own = num_layers == study.config.num_layers
    # What the choice has trained already is where the training goes on.
    begun_model = None if begun is None else begun.model if is_own else begun.single
    # The model, made in the scope of the devices.
    with devices.scope(study.strategy):
        config = study.config if is_own else study.config.plain(num_layers)
        seed = int(seeds.rng("init").integers(2**31))
        if begun_model is not None:
            model = begun_model.model
        else:
            model = config.build(
                *study.train, num_classes=len(rows.class_names), num_data=data.sizes["train"], seed=seed
            )
    # What predicts and scores: the model with units, names and columns.
    predictor = Predictor(
        model,
        units,
        task=data.task,
        target_names=rows.target_names,
        class_names=rows.class_names,
        schema=tables.schema_of(rows).to_json(),
    )
    watch = report.Watch(
        predictor,
        data.parts,
        rng=lambda part: seeds.rng(f"eval/{part}"),
        eval_rows=flags.eval_rows,
        input_names=rows.feature_names,
    )
    # The batches of this worker, by step.
    size = data.rows_in_batch(flags.run.batch_size if begun is None else begun.batch_size)
    batches = data.batches(
        study.train,
        batch_size=worker.batch_size(size),
        seed=flags.run.seed,
        transform=units.transform,
        lane=worker.index,
        num_lanes=worker.count,
    )
    # A model that the choice has trained to its end is not trained again.
    if begun_model is not None and begun is not None and (begun.is_finished or not is_own):
        return Job(FoundTrainer(model, study.train, seconds=begun.single_seconds), watch, batches)
    training = flags.training if begun is None else begun.training
    trainer = trainer_for(
        config.posterior,
        model,
        study.train,
        training.for_rows(data.sizes["train"], size),
        flags.sampling,
        flags.run.num_steps,
        batch_size=flags.run.batch_size,
        seed=flags.run.seed,
        strategy=study.strategy,
    )
    return Job(trainer, watch, batches)


def fit(run: Run, job: Job, study: Study, max_seconds: float | None) -> tuple[report.Summary, report.Final]:
    """Train a model, or continue it, and score it: what result.json says of it, and its predictions."""
    trainer = job.trainer
    watch = job.watch
    seed = Seeds(study.flags.run.seed)("train")
    final = cache(watch.final)
    batch_at = devices.shared(run.strategy, job.batches)
    print(f"training: {report.title(report.depth(trainer.model))}", flush=True)
    # Train to the last step, or to the end of the time, and score all test rows.
    try:
        step = run.fit(
            lambda first, count: trainer.advance(batch_at, first, count, seed),
            state=trainer.state,
            scalars=lambda bound: {**trainer.scalars(), **job.batches.scalars()},
            evaluate=lambda step: final().scalars if trainer.is_done(step) else watch.during(),
            is_done=trainer.is_done,
            show=lambda: Shown(histograms=report.histograms(trainer.model)),
            saved=lambda: watch.predictor.save(run.path),
            max_seconds=max_seconds,
        ).step
    except Interrupted as stop:
        if stop.reason != "max_seconds":
            raise
        step = stop.step
        run.log(step, final().scalars)
    # Scores, and a warning where they cannot be trusted.
    summary = report.summary(trainer, final(), study.data.rows.train, study.data.rows.test)
    if "warning" in summary:
        logging.warning(summary["warning"])
    return {"num_steps": step, "is_finished": trainer.is_done(step), **summary}, final()


def page_parts(study: Study, job: Job, compared: Compared, *, has_page: bool) -> list[Part]:
    """What report.html and plots/ show of the newest model: calibration, its predictions, its training; in report.html
    also the scores beside the others, and the function over its inputs."""
    rows = study.data.rows
    predictor = job.watch.predictor
    names = rows.feature_names
    judged = {report.label(name, compared.models[name]): judged for name, judged in compared.judged.items()}
    parts: list[Part] = []
    if has_page:
        parts += pages.model_parts(predictor, judged, *rows.test, names, train=rows.train)
    else:
        parts += pages.calibration_parts({title: judged[title] for title in [*judged][-1:]})
        parts += pages.prediction_parts(predictor, *rows.test, train=rows.train, input_name=names[0])
    # The newest training first.
    courses = dict(reversed(compared.courses.items()))
    return [*parts, pages.course_part(courses, pages.tags(predictor.task, study.data.parts))]


command = partial(cli.run, main, explain=devices.explain)
if __name__ == "__main__":
    command()
