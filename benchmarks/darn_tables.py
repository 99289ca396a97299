#!/usr/bin/env python3
"""What does `DARNDensity()` find on tables of bits, beside an L1 chain, a tree and a mixture of Bernoullis?

    darn_tables.py --datasets=adult,connect4 --data_dir=DATA --output=tables.json

Each density learns training and validation rows, of which a tenth chooses, and scores test rows in a fixed random
order: all, or as many blocks as take a minute where stochastic units are sampled. The rivals are those that the choice
tried, with the settings that it found, fitted anew: their seconds are of the one fit. NLL is in nats a row, ± the
standard error over rows; "behind" is how many nats a rival is better on the same rows, beside the error of the
difference.
"""

import os
import re
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
from absl import flags
from numpy.typing import NDArray

from darn import DARNDensity
from darn.more.mixture import Density, log_prob
from darn.train.chain_fitting import fit_chain, fit_chow_liu, fit_mixture_of_bernoullis

BLOCK = 500
SCORING_SECONDS = 60.0


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("datasets", ["adult", "connect4", "nips", "ocr_letters", "web", "rcv1"], "Sets.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder of the data sets.", flag_values=fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    rows = bench.kept()
    for dataset in FLAGS.datasets:
        rows = [row for row in rows if row["dataset"] != dataset]
        parts = bench.load(dataset, FLAGS.data_dir, "binary").parts
        train = np.concatenate([parts["train"].X, parts["valid"].X])
        rows.append({"dataset": dataset, **measured(train, np.random.default_rng(0).permutation(parts["test"].X))})
        bench.keep({"metrics": rows}, bench.KNOWN_DATA, seed=0)
        bench.print_table(rows, {"set": "{dataset}", "NLL": "{nll:.3f} ± {se:.3f}", "CPU s": "{seconds:.0f}"})


def measured(known: NDArray, test: NDArray) -> bench.Row:
    """The density that is chosen for the known rows, and its rivals."""
    start = time.process_time()
    density = DARNDensity(verbose=2).fit(known)
    seconds = time.process_time() - start
    choice = density.density_choice_
    assert choice is not None
    log_p = scores(density.score_samples, test)
    row = {"model": choice.trials[0].name, "nll": -log_p.mean(), "se": error(log_p), "seconds": seconds}
    row |= {"test_rows": len(log_p), "candidates": [vars(trial) for trial in choice.trials]}
    # The rivals have the strength and the number of members that were tried first.
    chains, mixtures = ([t.name for t in choice.trials if t.name.startswith(kind)] for kind in ("L1 chain", "mixture"))
    strength = float(re.split("C = |C by column from ", chains[0])[1].split(" to ")[0])
    members = int(mixtures[0].split()[2])
    rivals: dict[str, Callable[[], Density]] = {
        "chain": lambda: fit_chain(known, strength),
        "tree": lambda: fit_chow_liu(known),
        "mixture": lambda: fit_mixture_of_bernoullis(known, members),
    }
    # Each rival's time, and how far it is behind on the same rows.
    for name, fit in rivals.items():
        start = time.process_time()
        model = fit()
        row[f"{name}_seconds"] = time.process_time() - start
        of_rival = log_prob(model, test[: len(log_p)])
        row |= {name: -of_rival.mean(), f"{name}_behind": (of_rival - log_p).mean()}
        row[f"{name}_behind_se"] = error(of_rival - log_p)
    print({name: value for name, value in row.items() if name != "candidates"})
    return row


def scores(score: Callable[[NDArray], NDArray], test: NDArray) -> NDArray:
    """log p of the rows, or of the first blocks of them."""
    start = time.process_time()
    scored = list[NDArray]()
    for begin in range(0, len(test), BLOCK):
        scored.append(score(test[begin : begin + BLOCK]))
        if time.process_time() - start > SCORING_SECONDS:
            break
    return np.concatenate(scored)


def error(values: NDArray) -> float:
    """Of their mean."""
    return float(values.std() / np.sqrt(len(values)))


if __name__ == "__main__":
    bench.run(define_flags, main)
