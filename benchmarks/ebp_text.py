#!/usr/bin/env python3
"""How good are the labels and the probabilities of EBPClassifier on text, beside linear classifiers?

    ebp_text.py --data_dir=DATA --datasets=reuters_i6,ng20_comp_hw --output=text.jsonl

Eight folds, the same for all; nothing is chosen by test rows. Printed are means over folds with their standard errors:
error in percent, log loss in nats, expected calibration error in percent (15 bins), and CPU seconds of a fit.

EBP: defaults (120 hidden units, calibrated), batches of 10. "tuned LR": logistic regression on the same counts, whose
C is the best of five by the log loss of three inner folds; "TF-IDF LR": the same on TF-IDF, sublinear; "TF-IDF SVC":
LinearSVC on it, with probabilities by Platt's scaling on three inner folds; "TF-IDF LinearSVC": without them. What is
in --output is not done again.
"""

import warnings
from collections.abc import Callable, Sequence

import bench
import numpy as np
from absl import flags
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from ebp import EBPClassifier

DATASETS = ("reuters_i6", "ng20_comp_hw", "amazon_apparel_books", "ng20_elec_med", "movie_reviews", "spamassassin")


def tuned_lr(cs: Sequence[float]) -> LogisticRegressionCV:
    """Logistic regression, whose C is chosen by the log loss."""
    return LogisticRegressionCV(Cs=list(cs), cv=3, solver="liblinear", scoring="neg_log_loss")


MODELS: dict[str, Callable[[], ClassifierMixin]] = {
    "EBP binary": lambda: EBPClassifier(batch_size=10),
    "EBP real": lambda: EBPClassifier(weights="real", batch_size=10),
    "tuned LR": lambda: tuned_lr([1e-3, 1e-2, 0.1, 1.0, 10.0]),
    "TF-IDF LR": lambda: make_pipeline(TfidfTransformer(sublinear_tf=True), tuned_lr([0.1, 1.0, 10.0, 100.0, 1e3])),
    "TF-IDF LinearSVC": lambda: make_pipeline(TfidfTransformer(), LinearSVC()),
    "TF-IDF SVC": lambda: make_pipeline(TfidfTransformer(sublinear_tf=True), CalibratedClassifierCV(LinearSVC(), cv=3)),
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the text sets.", flag_values=fv)
    flags.DEFINE_list("datasets", list(DATASETS), "Data sets.", flag_values=fv)
    flags.DEFINE_list("models", list(MODELS), f"Some of {', '.join(MODELS)}.", flag_values=fv)
    flags.DEFINE_integer("max_folds", 8, "Folds of the eight to use.", 1, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each fold's numbers to this file, a JSON line each.")


def main(options: flags.FlagValues) -> None:
    warnings.simplefilter("ignore", FutureWarning)
    lines = bench.kept_lines()
    for name in options.datasets:
        # The same folds for all models; counts of words as floats.
        data = bench.load(name, options.data_dir, "text", split=None)
        X = data.parts["all"].X.astype(np.float64).tocsr()
        y = data.parts["all"].Y[:, 0].astype(int)
        folds = data.folds(8)[: options.max_folds]
        for model in options.models:
            # What an earlier call has done, and the folds that are left.
            fold_lines = [line for line in lines if (line["dataset"], line["model"]) == (name, model)]
            for fold, (rows, test) in list(enumerate(folds))[len(fold_lines) :]:
                numbers = bench.classifier_scores(MODELS[model], X[rows], y[rows], X[test], y[test])
                fold_lines.append({"dataset": name, "model": model, "fold": fold, **numbers})
                lines.append(fold_lines[-1])
                bench.keep_lines(lines)
            # Means over the folds so far.
            numbers = [
                {key: line[key] for key in ("error", "log_loss", "calibration_error", "cpu_s") if key in line}
                for line in fold_lines
            ]
            print(f"{name:20} {model:17} {len(fold_lines)} folds  " + bench.means(numbers), flush=True)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir"])
