#!/usr/bin/env python3
"""How many CPU seconds does a test log-likelihood of the digits cost, beside scikit-learn's BernoulliRBM and PCD?

    rbm_digits.py --threads=1 --output=results.json

The digits of scikit-learn as bits (above 8), 1,397 rows to train with and 400 to test, 100 hidden units. Ours with no
other setting, so that its seconds hold the choice of updates, early stopping and all checks of log Z; `BernoulliRBM`
with its defaults and with a tuned rate and 240 passes; persistent contrastive divergence in NumPy; and, where
RIVAL_PYTHON names an interpreter that has it, that of the PyPI package rbms, with our batches, chains and falling rate.
The log-likelihoods of all are by the same long AIS. Fits are made one after the other in each repetition, so that all
see the same load.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import bench
import numpy as np
import tensorflow as tf
from absl import flags
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import BernoulliRBM

from rbm_tracking import TrackedRBM
from rbm_tracking.estimates.ais import ais, linear_schedule
from rbm_tracking.model.rbm import RBM, base_rate_biases, log_probs_unnormalised

HIDDEN = 100
Rows = NDArray[np.float64]


class Fit(NamedTuple):
    """A trained RBM, the log Z that its training states, and the CPU seconds of a fit in a process of its own."""

    rbm: RBM
    log_z: float = np.nan
    seconds: float | None = None


def tracked(X: Rows, seed: int) -> Fit:
    """Ours."""
    model = TrackedRBM(HIDDEN, random_state=seed).fit(X)
    return Fit(model.rbm_, model.log_z_)


def bernoulli(**options: Any) -> Callable[[Rows, int], Fit]:
    def fit(X: Rows, seed: int) -> Fit:
        model = BernoulliRBM(HIDDEN, random_state=seed, **options).fit(X)
        return Fit(as_rbm(model.components_, model.intercept_visible_, model.intercept_hidden_))

    return fit


def pcd(X: Rows, seed: int, *, passes: int = 240, size: int = 20, rate: float = 0.05) -> Fit:
    """Persistent contrastive divergence, with a rate that falls to zero."""
    # Visible biases start at the logits of the columns' means, weights near zero.
    rng = np.random.default_rng(seed)
    W = 0.01 * rng.normal(size=(HIDDEN, X.shape[1]))
    mean = np.clip(X.mean(axis=0), 1e-3, 1 - 1e-3)
    b = np.log(mean / (1 - mean))
    c = np.zeros(HIDDEN)
    v = X[:100].copy()
    for number in range(passes):
        step = rate * (1 - number / passes)
        for chosen in np.array_split(rng.permutation(len(X)), len(X) // size):
            # Positive phase: the data. Negative phase: the chains, after a round of Gibbs sampling.
            rows = X[chosen]
            h = expit(rows @ W.T + c)
            a = expit(v @ W.T + c)
            v = (rng.random(v.shape) < expit((rng.random(a.shape) < a) @ W + b)).astype(float)
            a = expit(v @ W.T + c)
            # The gradient, with weight decay.
            W += step * (h.T @ rows / len(rows) - a.T @ v / len(v) - 1e-4 * W)
            b += step * (rows.mean(axis=0) - v.mean(axis=0))
            c += step * (h.mean(axis=0) - a.mean(axis=0))
    return Fit(as_rbm(W, b, c))


_RIVAL = r"""
import json, sys, time
import numpy as np
import torch
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.training.pcd import fit_batch_pcd
torch.set_num_threads(1)
order = json.loads(sys.argv[1])
torch.manual_seed(order["seed"])
X = torch.tensor(np.load(order["rows"]), dtype=torch.float32)
begin = time.process_time()
with torch.no_grad():
    mean = X.mean(0).clamp(1e-3, 1 - 1e-3)
    W = 0.01 * torch.randn(X.shape[1], order["hidden"])
    model = BBRBM(W, torch.log(mean / (1 - mean)), torch.zeros(order["hidden"]))
    model.init_grad()
    chains = model.init_chains(100)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, maximize=True)
    for number in range(order["updates"]):
        share = 1 - number / order["updates"]
        optimiser.param_groups[0]["lr"] = order["rate"] * min(1.0, share / 0.7)
        chosen = torch.randperm(len(X))[:100]
        optimiser.zero_grad(set_to_none=False)
        chains, _ = fit_batch_pcd((X[chosen], torch.ones(100)), chains, model, 1, 1.0)
        optimiser.step()
seconds = time.process_time() - begin
parts = [part.tolist() for part in (model.weight_matrix.T, model.vbias, model.hbias)]
print("ANSWER" + json.dumps({"seconds": seconds, "parts": parts}))
"""


def rbms(X: Rows, seed: int, *, updates: int = 2000, rate: float = 0.5) -> Fit:
    """PCD of the package rbms, and its CPU seconds without imports."""
    with tempfile.TemporaryDirectory() as folder:
        # In its own interpreter, with rows in a file.
        path = os.path.join(folder, "rows.npy")
        np.save(path, X)
        order = json.dumps({"rows": path, "seed": seed, "hidden": HIDDEN, "updates": updates, "rate": rate})
        answer = bench.answer_of(os.environ["RIVAL_PYTHON"], _RIVAL, order, OMP_NUM_THREADS="1", PYTHONPATH="")
    return Fit(as_rbm(*map(np.array, answer["parts"])), seconds=answer["seconds"])


def as_rbm(*parts: Rows) -> RBM:
    return RBM(*(tf.constant(part, tf.float32) for part in parts))


FITS: dict[str, Callable[[Rows, int], Fit]] = {
    "TrackedRBM(100)": tracked,
    "BernoulliRBM(100)": bernoulli(),
    "BernoulliRBM(100, n_iter=240, learning_rate=0.01)": bernoulli(n_iter=240, learning_rate=0.01),
    "PCD in NumPy, 240 passes": pcd,
    **({"rbms, 2,000 updates at a rate of 0.5": rbms} if "RIVAL_PYTHON" in os.environ else {}),
}
COLUMNS = {
    "fit": "{name}",
    "seed": "{seed}",
    "CPU s": "{seconds:.1f}",
    "test, nats": "{test:.2f}",
    "train": "{train:.2f}",
    "log Z stated - AIS": "{error:.2f}",
}


def measured(name: str, seed: int, parts: list[Rows]) -> bench.Row:
    """One fit and its log-likelihoods."""
    train, test = parts
    begin = time.process_time()
    rbm, stated, own_seconds = FITS[name](train, seed)
    seconds = time.process_time() - begin if own_seconds is None else own_seconds
    # log Z by a long AIS, for all fits alike.
    betas = linear_schedule(3000)
    base_b = base_rate_biases(train)
    sampled = ais(rbm, betas, seed=tf.constant([0, seed]), base_b=base_b, generator="numpy")
    mean_q = [float(log_probs_unnormalised(rbm, rows).mean()) for rows in (train, test)]
    return {
        "name": name,
        "seed": seed,
        "seconds": seconds,
        "train": mean_q[0] - sampled.log_z,
        "test": mean_q[1] - sampled.log_z,
        "error": stated - sampled.log_z,
        "std": sampled.standard_error,
    }


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("fits", [str(number) for number in range(len(FITS))], "Numbers of the fits, from 0.", fv)
    flags.DEFINE_integer("seeds", 1, "Repetitions.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(arguments: flags.FlagValues) -> None:
    digits = load_digits()
    X = (digits.data > 8).astype(float)
    parts = train_test_split(X, test_size=400, random_state=0, stratify=digits.target)
    rows: list[bench.Row] = []
    bench.print_titles(*COLUMNS)
    for seed in range(arguments.seeds):
        for number in map(int, arguments.fits):
            rows.append(measured(list(FITS)[number], seed, parts))
            bench.print_row(rows[-1], COLUMNS)
            bench.keep({"metrics": rows}, "the digits of scikit-learn")


if __name__ == "__main__":
    bench.run(define_flags, main)
