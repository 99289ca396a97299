#!/usr/bin/env python3
"""How good are the labels and the probabilities of EBPClassifier on text, beside linear classifiers?

    ebp_text.py --data_dir=DATA --datasets=reuters_i6,ng20_comp_hw --output=text.json

Eight folds, the same for all; nothing is chosen by test rows. Printed are means over folds with their standard errors:
error in percent, log loss in nats, expected calibration error in percent (15 bins), and CPU seconds of a fit.

EBP: defaults (120 hidden units, calibrated), batches of 10. "tuned LR": logistic regression on the same counts, whose
C is the best of five by the log loss of three inner folds. The others have their default settings: LinearSVC and
logistic regression on TF-IDF, and NB-SVM (Wang and Manning, 2012), a LinearSVC on presences times log-count ratios.
"""

import warnings
from collections.abc import Callable
from typing import Any

import bench
import numpy as np
import scipy.sparse
from absl import flags
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from ebp import EBPClassifier

DATASETS = ("reuters_i6", "ng20_comp_hw", "amazon_apparel_books", "ng20_elec_med", "movie_reviews", "spamassassin")


class LogCountRatios(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Presences of words times log ratios of their frequencies in the two classes, with one added to each count."""

    def fit(self, X: Any, y: Any) -> "LogCountRatios":
        """Learn the ratios."""
        classes, counts = np.unique(y), []
        for label in classes:
            count = 1.0 + np.asarray((X[y == label] > 0).sum(axis=0)).reshape(-1)
            counts.append(count / count.sum())
        self.ratio_ = np.log(counts[1] / counts[0])
        return self

    def transform(self, X: Any) -> Any:
        """Scale the columns."""
        return (X > 0).astype(float) @ scipy.sparse.diags(self.ratio_)


def tuned_lr() -> Any:
    """Logistic regression, whose C is chosen by the log loss."""
    return LogisticRegressionCV(Cs=np.logspace(-3, 1, 5), cv=3, solver="liblinear", scoring="neg_log_loss")


MODELS: dict[str, Callable[[], Any]] = {
    "EBP binary": lambda: EBPClassifier(batch_size=10),
    "EBP real": lambda: EBPClassifier(weights="real", batch_size=10),
    "tuned LR": tuned_lr,
    "TF-IDF LinearSVC": lambda: make_pipeline(TfidfTransformer(), LinearSVC()),
    "TF-IDF LR": lambda: make_pipeline(TfidfTransformer(), LogisticRegression()),
    "NB-SVM": lambda: make_pipeline(LogCountRatios(), LinearSVC()),
}


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the text sets.", flag_values=fv)
    flags.DEFINE_list("datasets", list(DATASETS), "Data sets.", flag_values=fv)
    flags.DEFINE_list("models", list(MODELS), f"Some of {', '.join(MODELS)}.", flag_values=fv)
    flags.DEFINE_integer("max_folds", 8, "Folds of the eight to use.", 1, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write each fold's numbers to this file, a JSON line each.")


def main(options: flags.FlagValues) -> None:
    warnings.simplefilter("ignore", FutureWarning)
    lines: list[dict[str, Any]] = []
    for name in options.datasets:
        data = bench.load(name, options.data_dir, "text", split=None)
        X, y = data.parts["all"].X.astype(np.float64).tocsr(), data.parts["all"].Y[:, 0].astype(int)
        folds = data.folds(8)[: options.max_folds]
        for model in options.models:
            found = []
            for fold, (rows, test) in enumerate(folds):
                found.append(bench.classifier_scores(MODELS[model], X[rows], y[rows], X[test], y[test]))
                lines.append({"dataset": name, "model": model, "fold": fold, **found[-1]})
            print(f"{name:20} {model:17} {len(found)} folds  " + bench.means(found), flush=True)
            bench.keep_lines(lines)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main, required=["data_dir"])
