#!/usr/bin/env python3
"""Train a network by Bayesian compression, remove its superfluous units, and write it in as few bytes as it needs.

    gpflow-deep compress --run_dir=runs/first
    gpflow-deep compress --run_dir=runs/300 --network=lenet300 --dataset=mnist --data_dir=DATA --shift=1 \\
        --pretrain_epochs=12 --epochs=12 --warmup=1 --kl_weight=0.2 --polish_epochs=6 --polish_kl=0.1 \\
        --shrink_every=2 --learning_rate=5e-4 --scale_speed=16 --initial_log_std=-4 --decay_from=0.3
    gpflow-deep compress --run_dir=runs/caffe --network=lenet5 --prior=gnj --dataset=mnist --data_dir=DATA --shift=1 \\
        --pretrain_epochs=5 --epochs=30 --warmup=1 --polish_epochs=24 --polish_kl=0.05 --shrink_every=1 \\
        --learning_rate=1e-3 --decay_from=0.55 --scale_speed=12 --initial_log_std=-4 --tune_steps=1000 --tolerance=0.05
    gpflow-deep compress --run_dir=runs/table --network=mine.keras --data=flowers.csv --target=kind
    gpflow-deep compress --run_dir=runs/first --resume

With several GPUs, --strategy=mirrored: each takes its part of every batch, and the results are those of one, up to
rounding, unless an own network has dropout: its noise repeats on each GPU.

Training goes in up to three phases: the plain network (--pretrain_epochs); the Bayesian one with the KL of the weight
--kl_weight, which decides about the architecture; and the units that are left with a smaller weight of the KL
(--polish_epochs). The paper has the second only. For a --target of numbers the phases and their settings are the same,
the Gaussian noise is learnt, and there is one file, files/model.bcz; --last_epochs are half of --epochs if not given.

Thresholds, bits and codebooks are chosen on images set aside from the training part; the test part is looked at once,
at the end, for each network that is reported. Ctrl-C finishes the running epoch and saves; --resume goes on to the same
bits (a network of numbers begins anew).

The folder of the run gets:

    result.json   errors, architecture, bits, the three rates as the paper counts them, sizes
    files/        shrunk.bcz (float32), fixed.bcz (fixed point), book_K.bcz and rate_K.bcz (K values), entropy-coded
    plots/        thresholds, bits of the weights, the mask of inputs; scalars.jsonl, tensorboard/, checkpoints/
"""

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, group
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.report.images import picture
from gpflow_deep_runs.run import Devices, Settings, Shown, checkpoints, devices, open_run
from gpflow_deep_runs.run.progress import Progress

import keras
import tensorflow as tf
from compression import PackConfig, Packed, Recipe, RecipeConfig, networks, report
from compression.files.export import export_all, is_new_folder
from compression.train.recipes.classification import reshaped
from compression.train.recipes.regression import check_targets, compress_regression, summary
from gpflow_deep_base.page import Bars, Line, Panel, Panels, Part, Table
from gpflow_deep_base.runtime import quiet
from gpflow_deep_base.text import aligned

_LATENCY_ROWS = 100
_LATENCY_CALLS = 50


@dataclass(frozen=True)
class Flags:
    """Train a network by Bayesian compression, remove its superfluous units, and write it in as few bytes as it needs.

    :param num_valid: training images to set aside, to choose by; a tenth of them if there are few.
    :param max_images: use only so many training and test images, drawn at random but always the same; all if not given.
    :param export: also write a SavedModel, TensorFlow Lite files and NumPy arrays to this folder.
    """

    run: Settings = group(
        batch_size=128,
        log_every=1,
        eval_every=1,
        checkpoint_every=2**31 - 1,
        checkpoint_seconds=30.0,
        omit=("num_steps", "log_every", "checkpoint_every"),
    )
    devices: Devices = group()
    source: views.Source = group()
    table: views.TableSpec = group()
    network: networks.NetworkConfig = group()
    recipe: RecipeConfig = group()
    files: PackConfig = group()
    num_valid: int = 5000
    max_images: int | None = None
    export: str | None = None

    def __post_init__(self) -> None:
        if self.devices.strategy == "multi_worker":
            raise ValueError(
                "--strategy must be none or mirrored here, got multi_worker: networks are compressed on one machine, "
                "with one or more devices."
            )
        at_least(self, {"num_valid": 1, "max_images": 1})
        views.check_table(self.source, self.table)
        if self.export is not None and not is_new_folder(self.export):
            raise ValueError(f"--export={self.export} must be a new or empty folder.")


@quiet.without_warnings()  # networks of different shapes are traced more than once
def main(flags: Flags) -> None:
    """One run, from the data to the files."""
    strategy = flags.devices.prepare()
    data = read(flags)
    if data.task == "regression":
        return regression(flags, data)
    recipe = new_recipe(flags, data, strategy)
    # The network to begin with is kept: its latency stands beside that of what is left.
    original = recipe.model
    settings = replace(flags.run, num_steps=flags.recipe.num_epochs)
    name = flags.network.name_for(data.name)
    with open_run(settings, cli.flags.text(flags), data, strategy, name=name, changed=cli.flags.changed(flags)) as run:
        print(f"network {name}: {recipe.original.weights} weights, prior {flags.recipe.prior}", flush=True)
        # The phases of training, epoch by epoch; units are removed on the way.
        run.fit(
            lambda first, count: recipe.epoch(first),
            state=lambda: recipe.state(run.folder.checkpoint_dir),
            scalars=lambda line: line,
            evaluate=lambda epoch: recipe.evaluate() if epoch % settings.eval_every == 0 else {},
            show=lambda: Shown(histograms=recipe.scores()),
            restore=lambda folder, own: recipe.restore(
                folder, lambda state: checkpoints.restore(folder, **state, **own)
            ),
        )
        # Thresholds, bits and codebooks are chosen on images set aside, and the files written.
        with Progress(0, flags.recipe.ending.last_epochs, is_shown=settings.progress) as last:
            packed = recipe.pack(flags.files, run.path / "files", last.advance)
        published = report.published(name, flags.recipe.prior, data.name)
        run.finish(
            {
                "network": name,
                "prior": flags.recipe.prior,
                "epochs": flags.recipe.epochs,
                **{f"{part}_images": size for part, size in data.sizes.items()},
                "train_seconds": float(recipe.seconds),
                **report.details(packed),
                "published": published,
            },
            text="\n".join([*report.notes(packed, published), aligned(report.table(packed))]),
            verdict=report.verdict(packed),
            metrics=report.metrics(packed) | {"train_seconds": float(recipe.seconds)},
            parts=[
                Table("Layers", report.layers(packed), "Bytes of the numbers of fixed point, before they are coded."),
                latency(original, packed.model, recipe.parts["valid"].X[:_LATENCY_ROWS]),
                *figures(packed, flags.recipe.prior),
            ],
        )
        # Last, as other programs may have no operations for what the network does.
        if flags.export is not None:
            export_all(packed.model, flags.export, recipe.parts["train"].X[:500].numpy())


def latency(before: keras.Model, left: keras.Model, x: tf.Tensor) -> Panels:
    """What the layers with weights cost, in the network that was given and in what is left of it."""
    panels = []
    for title, model in (("the network before", before), ("what is left", left)):
        times = layer_seconds(model, x)
        names = list(times)
        heights = [1000 * seconds for seconds in times.values()]
        panels.append(Panel(f"{title}: {sum(heights):.2f} ms", [Bars(heights, names=names)], "CPU milliseconds"))
    note = f"{len(x)} rows, each layer alone, the cheapest of {_LATENCY_CALLS} calls on this machine."
    return Panels("Latency by layer", panels, note)


def layer_seconds(model: keras.Model, x: tf.Tensor) -> dict[str, float]:
    """The least CPU time of each layer with weights, by name, for the inputs that it has in the model."""
    seconds_by_layer = dict[str, float]()
    for layer in model.layers:
        if layer.weights and not isinstance(layer.input, list):
            # The inputs of the layer in the model; the first call compiles and is not measured.
            inputs = keras.Model(model.inputs, layer.input)(x)
            call = tf.function(layer)
            call(inputs)
            # The least of several calls: other programs can only add to it.
            times = []
            for _ in range(_LATENCY_CALLS):
                start = time.process_time()
                call(inputs)
                times.append(time.process_time() - start)
            seconds_by_layer[layer.name] = min(times)
    return seconds_by_layer


def read(flags: Flags) -> Rows:
    """Images, or the rows of a table in its own units, with labels or targets."""
    source = flags.source
    # Images, unless the flags or the data set say that it is a table.
    only_tables = set(views.names("supervised")) - set(views.names("images"))
    is_own_table = source.data is not None and not source.data.endswith(".npz")
    if not (flags.table.given() or is_own_table or source.dataset in only_tables):
        return views.load(source, "images", num_valid=flags.num_valid, max_images=flags.max_images)
    data = views.load(source, "supervised", table=flags.table, seed=flags.run.seed)
    if flags.network.name_for(data.name) != "own":
        raise ValueError(f"the rows of {data.name} are no images: give a network of your own, --network=FILE.keras.")
    return data


def regression(flags: Flags, data: Rows) -> None:
    """One run on targets, which a stopped one begins anew."""
    model = networks.load(str(flags.network.file))
    settings = replace(flags.run, num_steps=flags.recipe.num_epochs)
    # What cannot be trained is refused before the run has a folder.
    check_targets(model, data.parts)
    with open_run(settings, cli.flags.text(flags), data, None, name="own", changed=cli.flags.changed(flags)) as run:
        compressed = compress_regression(
            flags.recipe,
            model,
            data.parts,
            run.path / "files" / "model.bcz",
            files=flags.files,
            batch_size=settings.batch_size,
            seed=settings.seed,
        )
        numbers = {**compressed._asdict(), "packed": compressed.packed._asdict()}
        run.finish(numbers, text=summary(compressed), metrics={"bytes": compressed.packed.bytes})


def new_recipe(flags: Flags, data: Rows, strategy: tf.distribute.Strategy | None) -> Recipe:
    """The network to begin with, and what is done with it."""
    network = flags.network
    with devices.scope(strategy):
        model = networks.build(
            *(network.name_for(data.name), data.train.X.shape[1:], len(data.class_names)),
            pretrained=network.file,
            seed=flags.run.seed,
        )
    flags.files.check(model)
    parts = reshaped(data.parts, model)
    size = flags.run.batch_size
    return Recipe(flags.recipe, model, parts, batch_size=size, seed=flags.run.seed, strategy=strategy)


def figures(packed: Packed, prior: str) -> list[Part]:
    """Histograms of scores with thresholds (Figs. 4 to 7), of the bits of weights (Fig. 11), and the kept inputs."""
    scores = "negative log-mode" if prior == "ghs" else "log alpha"
    parts: list[Part] = [
        Panels("Thresholds", histograms(report.score_histograms(packed), scores)),
        Panels("Bits", histograms(report.bit_histograms(packed), "significant bits")),
    ]
    if (mask := report.input_mask(packed.model)) is not None:
        parts.append(picture("Inputs that are kept", mask[None]))
    return parts


def histograms(by_title: Mapping[str, report.Histogram], xlabel: str) -> list[Panel]:
    """Plots of histograms, with vertical lines where their marks are."""
    panels = []
    for title, (counts, edges, marks) in by_title.items():
        lines = [Line([at, at], [0, max(counts)], label, is_dashed=True) for label, at in marks.items()]
        panels.append(Panel(title, [Bars(counts, edges), *lines], xlabel, "count"))
    return panels


command = functools.partial(cli.run, main, explain=devices.explain)

if __name__ == "__main__":
    command()
