#!/usr/bin/env python3
"""How often is a stream predicted right before it is learned, row by row, beside the learners of river?

    pip install river
    ebp_streams.py --output=streams.jsonl

Phishing (1,250 rows, 9 inputs) and Bananas (the first 2,000 rows, 2 inputs), as river has them. Each row is predicted,
then learned. Printed are errors in percent, log loss in nats (probabilities are at least 0.001), and CPU milliseconds
of a row, predicted and learned, as means over seeds where a learner has one. Nothing is tuned: ours by the defaults of
`EBPGaussianClassifier` in `OneByOne`, river's by theirs, behind its StandardScaler where that helps.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import bench
import numpy as np
from absl import flags
from threadpoolctl import threadpool_limits

from ebp import EBPGaussianClassifier, OneByOne

MIN_PROBABILITY = 1e-3
MAX_ROWS = 2000


class Learner(Protocol):
    """What river's classifiers have, and ours in `OneByOne`."""

    def predict_proba_one(self, x: dict[str, float]) -> dict[object, float]:
        """Probabilities of the labels so far."""

    def learn_one(self, x: dict[str, float], y: object) -> object:
        """One row."""


def models() -> dict[str, Callable[[int], Learner]]:
    """Learners by name, each from its seed."""
    from river import forest, linear_model, preprocessing, tree

    return {
        "EBPGaussianClassifier": lambda seed: OneByOne(EBPGaussianClassifier(random_state=seed)),
        "the same, five networks": lambda seed: OneByOne(EBPGaussianClassifier(num_networks=5, random_state=seed)),
        "the same, 150 units": lambda seed: OneByOne(EBPGaussianClassifier(150, random_state=seed)),
        "river, logistic regression": lambda seed: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        "river, Hoeffding tree": lambda seed: tree.HoeffdingAdaptiveTreeClassifier(seed=seed),
        "river, AMF of 10 trees": lambda seed: forest.AMFClassifier(n_estimators=10, seed=seed),
    }


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("streams", ["Phishing", "Bananas"], "Phishing, Bananas.", flag_values=fv)
    flags.DEFINE_list("models", [], "Learners, by the beginning of their names; all if empty.", flag_values=fv)
    flags.DEFINE_integer("seeds", 5, "Seeds.", 1, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each seed's numbers to this file, a JSON line each.")


def scores(model: Learner, rows: Iterable[tuple[dict[str, float], object]]) -> dict[str, float]:
    """Error in percent and log loss of predictions before learning, and CPU milliseconds of a row."""
    is_wrong = []
    losses = []
    start = time.process_time()
    for x, y in rows:
        # Predicted first, unless no label is known yet.
        probabilities = model.predict_proba_one(x)
        if probabilities:
            is_wrong.append(max(probabilities, key=probabilities.__getitem__) != y)
            losses.append(-np.log(max(probabilities.get(y, 0.0), MIN_PROBABILITY)))
        model.learn_one(x, y)
    seconds = time.process_time() - start
    return {
        "error": 100.0 * float(np.mean(is_wrong)),
        "log_loss": float(np.mean(losses)),
        "ms": 1000.0 * seconds / (len(losses) + 1),
    }


def main(options: flags.FlagValues) -> None:
    from river import datasets

    threadpool_limits(options.threads or None)
    lines: list[bench.Row] = []
    for stream in options.streams:
        for name, make in models().items():
            if options.models and not name.startswith(tuple(options.models)):
                continue
            # Each seed meets the same rows in the same order.
            seed_scores = []
            for seed in range(options.seeds):
                seed_scores.append(scores(make(seed), itertools.islice(getattr(datasets, stream)(), MAX_ROWS)))
                lines.append({"stream": stream, "model": name, "seed": seed, **seed_scores[-1]})
            bench.keep_lines(lines)
            print(f"{stream:9} {name:27} " + bench.means(seed_scores), flush=True)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, sets_threads=False)
