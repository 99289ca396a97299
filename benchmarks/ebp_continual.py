#!/usr/bin/env python3
"""What does a classifier still know of the classes of the first half of a stream after the second half?

    ebp_continual.py --datasets=digits,mnist --data_dir=DATA
    ebp_continual.py --datasets=stream

Split: the classes 0 to 4, then 5 to 9, three passes each in chunks of 500 rows, by `partial_fit` with all ten classes
named. Permuted: all classes, then all of them with the inputs in another order. Accuracy in percent on test rows after
both halves, of the first and of the second. One seed. CPU ms a call is the median over calls after the first.

Stream: a million rows of 20 normal inputs, each seen once, in chunks of 500; the label is which of 5 classes a fixed
random network of 30 tanh units takes for the largest. Accuracy on each chunk before it is learned, of the first tenth
of the stream and of the last.

EBP: `EBPClassifier(hidden, batch_size=10)`. Rivals: SGDClassifier (log loss) and MLPClassifier (100 units) of
scikit-learn with their defaults, on inputs scaled by the rows of the first half. "20 kept": `memory=20`, so that 20
rows of each class are kept and learned again with each chunk once the class no longer comes; rivals get them, too.
"""

import time
import warnings
from collections.abc import Callable, Iterator

import bench
import numpy as np
from absl import flags
from sklearn.base import ClassifierMixin
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier

from ebp import EBPClassifier
from ebp.estimators.streams.continual import Stream
from ebp.estimators.streams.recency import Recency

CHUNK = 500
PASSES = 3
KEPT = 20
MODELS: dict[str, Callable[[], ClassifierMixin]] = {
    "EBP no hidden layer": lambda: EBPClassifier((), batch_size=10),
    "EBP 100": lambda: EBPClassifier(100, batch_size=10),
    "EBP 600": lambda: EBPClassifier(600, batch_size=10),
    "SGDClassifier": lambda: SGDClassifier(loss="log_loss", random_state=0),
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "EBP no hidden layer; 20 kept": lambda: EBPClassifier((), batch_size=10, memory=KEPT),
    "EBP 100; 20 kept": lambda: EBPClassifier(100, batch_size=10, memory=KEPT),
    "EBP 600; 20 kept": lambda: EBPClassifier(600, batch_size=10, memory=KEPT),
    "SGDClassifier; 20 kept": lambda: Remembering(SGDClassifier(loss="log_loss", random_state=0)),
    "MLPClassifier; 20 kept": lambda: Remembering(MLPClassifier(random_state=0)),
}

Half = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Remembering:
    """A classifier that learns kept rows of absent classes with each chunk, the rows that `EBPClassifier` keeps."""

    def __init__(self, model: ClassifierMixin) -> None:
        self.model = model
        self.stream = Stream(Recency.start(10))

    def partial_fit(self, X: np.ndarray, y: np.ndarray, classes: np.ndarray) -> None:
        """Learn a chunk."""
        self.stream, chunk = self.stream.after(X, y, size=KEPT, seed=0, has_outputs=False)
        self.model.partial_fit(chunk.X, chunk.numbers, classes=classes)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The most probable class of each row."""
        return self.model.predict(X)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with MNIST.", flag_values=fv)
    flags.DEFINE_list("datasets", ["digits"], "digits, mnist, stream.", flag_values=fv)
    flags.DEFINE_list("models", list(MODELS), f"Some of: {', '.join(MODELS)}.", flag_values=fv)
    flags.DEFINE_integer("max_rows", 10_000, "Training rows.", 10, flag_values=fv)
    flags.DEFINE_integer("stream_rows", 1_000_000, "Rows of the stream.", 10_000, flag_values=fv)
    bench.define_common(fv, threads=1, output="Write the results to this file, a JSON line each.")


def halves(task: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> list[Half]:
    """Training and test rows of both halves of a stream."""
    # All classes twice, the second time with the inputs in another order.
    if task == "permuted":
        order = np.random.default_rng(0).permutation(X.shape[1])
        return [(X, y, X_test, y_test), (X[:, order], y, X_test[:, order], y_test)]
    # Or half of the classes first, and then the others.
    low = y < 5
    low_test = y_test < 5
    return [(X[part], y[part], X_test[test], y_test[test]) for part, test in ((low, low_test), (~low, ~low_test))]


def learn(model: ClassifierMixin, parts: list[Half]) -> tuple[list[float], float]:
    """Accuracy in percent on each half after both, and CPU milliseconds of a call."""
    seconds = []
    # Passes over one part after the other, in chunks.
    for X, y, _, _ in parts:
        for _ in range(PASSES):
            for start in range(0, len(X), CHUNK):
                begin = time.process_time()
                model.partial_fit(X[start : start + CHUNK], y[start : start + CHUNK], classes=np.arange(10))
                seconds.append(time.process_time() - begin)
    accuracies = [100.0 * float(np.mean(model.predict(X) == y)) for _, _, X, y in parts]
    return accuracies, 1000.0 * float(np.median(seconds[1:]))


def stream(num_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of inputs and labels."""
    rng = np.random.default_rng(0)
    # A fixed network of random weights says the labels.
    W = rng.normal(size=(20, 30)) / np.sqrt(20)
    V = rng.normal(size=(30, 5))
    for _ in range(num_rows // CHUNK):
        X = rng.normal(size=(CHUNK, 20))
        yield X, np.argmax(np.tanh(2.0 * X @ W) @ V, axis=1)


def learn_stream(model: ClassifierMixin, num_rows: int) -> tuple[list[float], float]:
    """Accuracy in percent before learning on the first tenth and on the last, and CPU milliseconds of a call."""
    percents = []
    seconds = []
    # Each chunk is predicted before it is learnt.
    for number, (X, y) in enumerate(stream(num_rows)):
        if number:
            percents.append(100.0 * float(np.mean(model.predict(X) == y)))
        begin = time.process_time()
        model.partial_fit(X, y, classes=np.arange(5))
        seconds.append(time.process_time() - begin)
    tenth = len(percents) // 10
    return [float(np.mean(percents[:tenth])), float(np.mean(percents[-tenth:]))], 1000.0 * float(np.median(seconds[1:]))


def report(name: str, task: str, model: str, accuracies: list[float], milliseconds: float) -> bench.Row:
    """A line of the results, which is printed, too."""
    first, second = accuracies
    print(
        f"{name:7} {task:9} {model:28} first {first:5.1f}  second {second:5.1f}  {milliseconds:6.1f} ms a call",
        flush=True,
    )
    return {"dataset": name, "task": task, "model": model, "first": first, "second": second, "ms": milliseconds}


def main(options: flags.FlagValues) -> None:
    warnings.simplefilter("ignore")
    lines: list[bench.Row] = []
    for name in options.datasets:
        if name == "stream":
            for model in options.models:
                lines.append(report(name, "once", model, *learn_stream(MODELS[model](), options.stream_rows)))
            continue
        # Rows of all classes, of which a task makes two halves.
        data = bench.load(name, options.data_dir, "supervised", split=None)
        X = data.parts["all"].X.astype(np.float64)
        y = data.parts["all"].Y[:, 0].astype(int)
        rows, test = data.folds(4)[0]
        rows = rows[: options.max_rows]
        for task in ("split", "permuted"):
            parts = halves(task, X[rows], y[rows], X[test], y[test])
            # Rivals get inputs in units of the first half's deviation.
            scale = max(float(parts[0][0].std()), 1e-9)
            for model in options.models:
                by = 1.0 if model.startswith("EBP") else scale
                scaled = [(a / by, b, c / by, d) for a, b, c, d in parts]
                lines.append(report(name, task, model, *learn(MODELS[model](), scaled)))
    bench.keep_lines(lines)
    bench.print_machine()


if __name__ == "__main__":
    bench.run(define_flags, main)
