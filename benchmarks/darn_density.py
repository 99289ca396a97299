#!/usr/bin/env python3
"""What is a density of rows of bits good for: odd rows and missing bits, beside independent columns and neighbours?

    darn_density.py --output=density.json
    darn_density.py --dataset=tables --splits=5

On scikit-learn's digits, 64 bits: densities learn all digits but the eights, and log p(x) tells eights of unseen rows
from the others (AUC). And they give the probabilities of bits that are missing, a quarter of all at random (log loss in
nats a bit). Densities are `DARNDensity` with stochastic units, and a MADE without any. Beside them: independent
columns, and the ten nearest neighbours (their distance; the mean of their missing bits, with half a row of each value
added). Each split is another draw of training rows, unseen rows, missing bits and initial weights; ± is the standard
error over splits.

On tables of people: cities of a state and of unequal size, whole and real numbers, an ordered level, truth values, rows
that occur twice, and in every other table gaps. `DARNDensity(architecture="chain")` learns 1,400 rows; printed are how
many of 100,000 of its samples have a level that does not exist or a number beyond those of the training rows, how many
have a city in another state, and how often `blame` names the column, or one of the two, that was spoilt in 60 others.
"""

import os
import time
import warnings
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
import pandas as pd
import scipy.special
from absl import flags
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from darn import DARN, DARNDensity

ODD = 8
NEIGHBOURS = 10
SHARE = 0.25
TRAIN_ROWS = 1400  # of tables
NUM_SAMPLES = 100_000
NAMES = ("DARN", "MADE", "independent columns", "ten neighbours")


class Split(NamedTuple):
    """Rows to learn from; unseen rows, and which of them are odd."""

    train: NDArray
    test: NDArray
    is_odd: NDArray


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_enum("dataset", "digits", ["digits", "tables"], "Bits, or tables of people.", flag_values=fv)
    flags.DEFINE_integer("splits", 3, "Splits of the rows, or tables.", 1, flag_values=fv)
    flags.DEFINE_integer("rows", 300, "Unseen rows with missing bits; at most all.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    if FLAGS.dataset == "tables":
        tables = [table_scores(number) for number in range(FLAGS.splits)]
        bench.print_table(tables, {name: "{" + name + ":.4g}" for name in tables[0]})
        bench.keep({"metrics": tables}, "drawn by the numbers of the tables", seed=0)
        return
    splits = [scores(split(i), i, FLAGS.rows) for i in range(FLAGS.splits)]
    bench.print_titles("", *NAMES)
    for name in splits[0]:
        numbers = np.array([row[name] for row in splits])  # [splits, densities]
        bench.print_markdown([name, *map(bench.mean_and_error, numbers.T)])
    bench.keep({"columns": NAMES, "splits": splits}, "by name", seed=0)


def split(number: int) -> Split:
    """A split of the digits."""
    images, labels = load_digits(return_X_y=True)
    train, test, digits, is_of = train_test_split((images >= 8).astype(int), labels, random_state=number)
    return Split(train[digits != ODD], test, is_of == ODD)


def people(number: int) -> pd.DataFrame:
    """A table, of which the last 60 rows are not for training."""
    rng = np.random.default_rng([number, 46])
    num_rows = TRAIN_ROWS + 60
    # Four cities in each state, of unequal size.
    sizes = 0.05 / (3 + number) + 0.8 * rng.dirichlet(np.ones(4 * (3 + number)))
    city = rng.choice(len(sizes), num_rows, p=sizes)
    wealth = 0.7 * rng.normal(size=len(sizes) // 4)[city // 4]
    age = np.clip(rng.gamma(9, 4.5, num_rows), 18, 90).astype(int)
    kids = np.minimum(rng.poisson(np.where(age < 30, 0.3, 1.6)), 7)
    income = np.round(np.exp(9.6 + 0.6 * wealth + 0.012 * (age - 40) + 0.25 * rng.normal(size=num_rows)), 2)
    table = pd.DataFrame({"city": city, "state": city // 4}).astype(str).add("x")
    table = table.assign(age=age, kids=kids, household=kids + 1 + (rng.random(num_rows) < 0.6), income=income)
    table["plan"] = pd.cut(income * rng.choice([1, 9], num_rows, p=[0.97, 0.03]), [0, 1e4, 2e4, 1e9]).astype("category")
    table["owner"] = rng.random(num_rows) < scipy.special.expit((age - 45) / 8)
    # Some rows occur twice, and columns stand in any order.
    places = np.where(rng.random(num_rows) < 0.05, rng.integers(0, num_rows, num_rows), np.arange(num_rows))
    return table.iloc[places, rng.permutation(table.shape[1])].reset_index(drop=True)


def table_scores(number: int) -> dict[str, float]:
    """Percent of samples that cannot be, and of spoilt rows whose column is blamed."""
    rng = np.random.default_rng([number, 47])
    table = people(number)
    known = table[:TRAIN_ROWS].copy()
    others = table[TRAIN_ROWS:].reset_index(drop=True)
    # Every other table has gaps.
    for name in ("city", "income", "kids") if number % 2 else ():
        known[name] = known[name].where(rng.random(TRAIN_ROWS) > 0.05)
    density = DARNDensity(architecture="chain", random_state=number).fit(known)
    drawn = density.sample(NUM_SAMPLES, random_state=number)
    # Levels that do not exist, numbers beyond those of the training rows, and cities elsewhere.
    numbers = ["age", "kids", "household", "income"]
    is_possible = ((drawn[numbers] >= known[numbers].min()) & (drawn[numbers] <= known[numbers].max())).all(axis=1)
    for name in {*known} - {*numbers}:
        is_possible &= drawn[name].astype(str).isin(known[name].dropna().astype(str))
    is_place = (drawn.city + drawn.state).isin(table.city + table.state)
    row = {
        "table": number,
        "impossible": 100 * float(1 - is_possible.mean()),
        "moved": 100 * float(1 - is_place.mean()),
    }
    # Each kind of error in all of the other rows, and the columns that may be blamed.
    states = sorted(known.state.unique())
    spoilt = {
        ("state", "city"): [states[states.index(state) - 1] for state in others.state],
        ("income",): others.income * rng.choice([100.0, 0.01], len(others)),
        ("age",): rng.integers(120, 999, len(others)),
        ("kids", "household"): rng.integers(12, 40, len(others)),
        ("household", "kids"): np.where(others.kids >= 4, 1, 9),
    }
    for names, values in spoilt.items():
        blamed = known.columns[density.blame(others.assign(**{names[0]: values})).argmax(axis=1)]
        row[names[0]] = 100.0 * float(blamed.isin(names).mean())
    return row


def scores(of: Split, seed: int, num_rows: int) -> dict[str, list[float]]:
    """AUC of odd rows and log loss of missing bits, of each of `NAMES`."""
    densities = (
        DARNDensity(16, 100, learning_rate=1e-3, weight_decay=0.0, random_state=seed),
        DARNDensity(
            (),
            model={"visible_conditional": "made", "conditional_units": 200},
            learning_rate=1e-3,
            weight_decay=0.0,
            random_state=seed,
        ),
    )
    # Independent columns, with half a row of each value added.
    mean = (of.train.sum(axis=0) + 0.5) / (len(of.train) + 1)
    usual = of.test[~of.is_odd][:num_rows]
    is_missing = np.random.default_rng(seed).uniform(size=usual.shape) < SHARE
    # Each density scores all unseen rows, and completes the usual ones.
    odd = list[NDArray]()
    filled_in = list[NDArray]()
    for density in densities:
        start = time.process_time()
        model = density.fit(of.train).model_
        seconds = time.process_time() - start
        assert isinstance(model, DARN)
        config = model.config
        odd.append(-density.score_samples(of.test))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            filled_in.append(density.complete(usual, is_missing))
        print(f"{len(of.train)} rows; {config.hidden} and {config.units} units, {seconds:.0f} s of CPU")
        print(
            f"{time.process_time() - start - seconds:.0f} s of CPU to score and complete;", *(w.message for w in caught)
        )
    # The rivals: independent columns, and the nearest rows.
    odd += [-log_p(of.test, mean[None]), distances(of.train, of.test)]
    filled_in += [np.broadcast_to(mean, usual.shape), filled(of.train, usual, is_missing)]
    return {
        "auc": [float(roc_auc_score(of.is_odd, score)) for score in odd],
        "log_loss_nats": [log_loss(usual, p, is_missing) for p in filled_in],
    }


def log_p(x: NDArray, p: NDArray) -> NDArray:
    """log-probability of rows of independent bits, [N], nats."""
    return np.where(x, np.log(p), np.log1p(-p)).sum(axis=1)


def distances(train: NDArray, x: NDArray) -> NDArray:
    """Mean number of different bits to the nearest rows, [N]."""
    different = x @ (1 - train).T + (1 - x) @ train.T
    return np.sort(different, axis=1)[:, :NEIGHBOURS].mean(axis=1)


def filled(train: NDArray, x: NDArray, is_missing: NDArray) -> NDArray:
    """Means of the rows that are nearest by the known bits, [N, n_x]."""
    near = [
        np.argsort(((row != train) & ~mask).sum(axis=1), kind="stable")[:NEIGHBOURS]
        for row, mask in zip(x, is_missing, strict=True)
    ]
    return np.stack([(train[rows].sum(axis=0) + 0.5) / (NEIGHBOURS + 1) for rows in near])


def log_loss(x: NDArray, p: NDArray, is_missing: NDArray) -> float:
    """Mean over the missing bits of -log p, nats; p is kept 1e-3 away from 0 and 1."""
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return float(-np.where(x, np.log(p), np.log1p(-p))[is_missing].mean())


if __name__ == "__main__":
    bench.run(define_flags, main)
