#!/usr/bin/env python3
"""How far is Table 1 of the paper (Soudry, Hubara and Meir, 2014) from what our networks and their rivals reach?

    ebp_table1.py --data_dir=DATA --datasets=reuters_i6,ng20_comp_hw,amazon_apparel_books --seeds=10

Networks D-120-1 of real and of binary weights, three passes in batches of 10, on eight contiguous folds with each seed;
backpropagation and AROW with the first one, their rates chosen on an eighth of each training part. Errors in percent
after the last pass and after the best one (that of the smallest mean test error, as in the paper), with standard errors
over seeds (of one seed: over folds), beside what is published.
"""

from typing import Any

import bench
from absl import flags

from ebp import CrossValidation, CrossValidationConfig, encode_labels
from ebp.estimators.baselines import RIVALS
from gpflow_deep_base import quiet

PUBLISHED: dict[str, dict[str, float]] = {
    "reuters_i6": {"real D": 14.5, "real P": 11.35, "binary D": 21.7, "binary P": 9.95, "arow": 11.72, "bp": 13.3},
    "ng20_comp_hw": {"real D": 5.06, "real P": 4.96, "binary D": 7.54, "binary P": 4.44, "arow": 5.79, "bp": 7.02},
    "amazon_apparel_books": {"real D": 2.14, "real P": 2.09, "binary D": 2.45, "binary P": 2.01, "arow": 2.24},
    "mnist": {"real P": 1.66, "binary P": 2.12},
}
"""Errors in percent from Table 1 of the paper, and for MNIST from Cheng, Soudry, Mao and Lan (2015)."""


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the data sets.", flag_values=fv)
    flags.DEFINE_list("datasets", ["reuters_i6"], f"Some of {', '.join(PUBLISHED)}.", flag_values=fv)
    flags.DEFINE_list("methods", ["ebp", *RIVALS], "ebp and rivals.", flag_values=fv)
    flags.DEFINE_integer("seeds", 1, "Seeds of the networks.", 1, flag_values=fv)
    flags.DEFINE_integer("epochs", 3, "Passes.", 1, flag_values=fv)
    flags.DEFINE_integer("max_folds", 8, "The first of the eight folds.", 1, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each method's numbers to this file, a JSON line each.")


def paper_of(dataset: str, method: str) -> float | None:
    """What is published for a method; "bp" stands for every backpropagation that is not clipped."""
    return PUBLISHED[dataset].get("bp" if method in ("bp_ce", "bp_mse") else method)


@quiet.without_warnings()  # folds of different sizes are traced more than once
def main(options: flags.FlagValues) -> None:
    lines: list[dict[str, Any]] = []
    config = CrossValidationConfig(
        weights=("real", "binary"),
        methods=tuple(options.methods),
        epochs=options.epochs,
        num_seeds=options.seeds,
    )
    for dataset in options.datasets:
        view = "supervised" if dataset == "mnist" else "text"
        data = bench.load(dataset, options.data_dir, view, split=None)
        X, labels = data.parts["all"]
        Y, _ = encode_labels(labels[:, 0])
        folds = data.folds(8)[: options.max_folds]
        results = CrossValidation(config, X, Y, folds, dataset=dataset).run()
        rows = [
            {
                "set": dataset,
                "method": RIVALS.get(method) or f"EBP {method}",
                "paper": paper_of(dataset, method),
                **{name: value for name, value in errors.items() if name.startswith(("last", "best"))},
            }
            for method, errors in results.items()
        ]
        lines += rows
        bench.keep_lines(lines)
        columns = {
            "set": "{set}",
            "": "{method}",
            "last": "{last_percent:.2f}",
            "±": "{last_standard_error:.2f}",
            "best": "{best_percent:.2f}",
            "paper": "{paper:.2f}",
        }
        bench.print_table(rows, columns)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir"])
