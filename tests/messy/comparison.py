"""What reading a messy table costs against preparing it by hand, in nats per test row of the same model.

    python -m tests.messy.comparison                                # prints a line for each table
    python -m tests.messy.comparison results/messy_tables.json      # and enters the numbers

The model is a GP of one layer: exact regression, or 100 inducing inputs for labels. Rows are cut into three folds, each
of which is tested once. Inputs that are read and those prepared by hand meet the same folds, start and steps.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep import ModelConfig, Trainer, TrainingConfig
from gpflow_deep_runs.cli.flags import group, parse
from gpflow_deep_runs.data.rows import divide
from gpflow_deep_runs.data.supply import ArrayBatches
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import read_table
from gpflow_deep_runs.report.results import write
from gpflow_deep_runs.run import Seeds
from tests.messy.by_hand import PREPARED, filled
from tests.messy.tables import TABLES, Messy

__all__ = ["Comparison", "compared", "spec_of"]

FOLDS, STEPS = 3, 200
MACHINE = "2 cores of an AMD EPYC (virtual, shared), 24 GiB, no GPU; one thread"


@dataclass(frozen=True)
class Flags:
    """Those of a table.

    :param data: the file.
    """

    data: str
    table: TableSpec = group()


class Comparison(NamedTuple):
    """Mean log density of the test rows, nats: ours, by hand, and the mean difference with its standard error."""

    ours: float
    by_hand: float
    difference: float
    error: float


def spec_of(made: Messy) -> TableSpec:
    """What the flags of a table say."""
    return parse(Flags, [f"--data={made.file}", f"--target={made.target}", *made.flags], "test").table


def compared(name: str) -> Comparison:
    """Cross-validation on the rows of a table, with our inputs and with those prepared by hand."""
    made = TABLES[name]
    path = made.path
    rows, prepared = read_table(path, spec_of(made)), PREPARED[name](path)
    num_data, num_classes = len(prepared.y), len(rows.class_names)
    order = np.random.default_rng(0).permutation(num_data)
    tests = [np.sort(part) for part in np.array_split(order, FOLDS)]
    splits = tuple((np.setdiff1d(order, test), test) for test in tests)
    rows = replace(rows, splits=splits)
    ours, by_hand = [], []
    for number, (train, test) in enumerate(splits):
        parts = divide(rows, split=number, valid_fraction=0)
        ours.append(_log_density(parts.train, parts.test, made.task, num_classes))
        X, Y = filled(prepared.X, train), prepared.y[:, None]
        by_hand.append(_log_density((X[train], Y[train]), (X[test], Y[test]), made.task, num_classes))
    a, b = np.concatenate(ours), np.concatenate(by_hand)
    return Comparison(a.mean(), b.mean(), (a - b).mean(), (a - b).std() / np.sqrt(num_data))


def _log_density(train: Any, test: Any, task: Any, num_classes: int) -> NDArray[np.float64]:
    """Of each test row, in the units of the target."""
    x_mean, x_scale = train[0].mean(axis=0), train[0].std(axis=0)
    x_scale[x_scale == 0] = 1
    X, X_test = [(X - x_mean) / x_scale for X in (train[0], test[0])]
    if task == "regression":
        mean, scale = train[1].mean(), train[1].std()
        return _exact(X, (train[1] - mean) / scale, X_test, (test[1] - mean) / scale) - float(np.log(scale))
    config = ModelConfig(num_layers=1, num_inducing=100, preset="modern").for_task(task)
    model = config.build(X, train[1], num_classes=num_classes)
    batches = ArrayBatches((X, train[1]), batch_size=len(X), seed=0)
    Trainer(model, TrainingConfig(learning_rate=0.03)).advance(batches, 0, STEPS, Seeds(0)("train"))
    return np.ravel(model.predict_log_density((X_test, test[1])))


def _exact(X: Any, Y: Any, X_test: Any, Y_test: Any) -> NDArray[np.float64]:
    """GP regression after the steps of Adam, which ends at the same point whatever the order of the inputs."""
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
    model = gpflow.models.GPR((X, Y), kernel, likelihood=gpflow.likelihoods.Gaussian(0.1))
    adam, variables = tf.keras.optimizers.Adam(0.05), model.trainable_variables

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(STEPS):
        step()
    return np.ravel(model.predict_log_density((X_test, Y_test)))


def _rows() -> Iterator[dict[str, Any]]:
    """The comparison of every table, printed and for the file of results."""
    for name in TABLES:
        found, made = compared(name), TABLES[name]
        print(f"{name}: {found.ours:.4f}, by hand {found.by_hand:.4f}, difference {found.difference:+.4f} "
              f"± {found.error:.4f} nats per row", flush=True)  # fmt: skip
        yield {
            "file": made.file,
            "flags": " ".join(made.flags) or "none",
            "size": len(made.truth[made.target]),
            "ours": found.ours,
            "by_hand": found.by_hand,
            "difference": {"value": found.difference, "se": found.error},
        }


def main(output: Path | None) -> None:
    """Compare all tables; enter the numbers if there is a file for them."""
    start, rows = time.time(), tuple(_rows())
    if output is None:
        return
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    titles = {
        "file": "table",
        "flags": "flags besides --data and --target",
        "size:.0f": "rows",
        "ours:.4f": "read",
        "by_hand:.4f": "by hand",
        "difference:+.4f": "difference",
    }
    columns = [{"title": title, "cell": f"{{{key}}}"} for key, title in titles.items()]
    seconds = round(time.time() - start)
    document = {
        "title": "Messy tables",
        "origin": "run",
        "date": str(date.today()),
        "commit": commit,
        "machine": MACHINE,
        "runs": [{"command": "python -m tests.messy.comparison results/messy_tables.json", "seconds": seconds}],
        "units": {"size": "rows", **dict.fromkeys(("ours", "by_hand", "difference"), "nats per test row")},
        "tables": {"likelihoods": {"title": "messy tables, read and prepared by hand", "columns": columns}},
        "rows": rows,
    }
    write(output, document)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
