#!/usr/bin/env python3
"""How much memory do predictions take on top of what the process held before, as points and draws grow?

    memory.py --layers=2 --output=memory.json

Each line is one prediction of a deep GP (M = 100, D = 8 inputs and inner outputs, default precision) in a fresh
process, which is the first thing that the process does with the model: tracing, thread pools and the result count too.
"peak MB" is the highest resident size during the prediction less the size before it (Linux: the kernel's high-water
mark, reset before; elsewhere the growth of the process' own maximum, which is too small if building the model took
more). The last column says whether it stayed below --limit_mb.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import bench
import numpy as np
import tensorflow as tf
from absl import flags

import gpflow_deep

M, D = 100, 8


class Case(NamedTuple):
    """One prediction: a method, its model or posterior, N points, S draws."""

    method: str
    num_points: int
    num_samples: int
    full_cov: bool = False
    #: "model", "posterior" or "float32" (a posterior with a float32 cache).
    source: str = "model"


CASES = (
    Case("predict_f", 1_000, 100),
    Case("predict_f", 1_000, 100, source="float32"),
    Case("predict_f", 10_000, 100, source="posterior"),
    Case("predict_y", 100_000, 10),
    Case("predict_log_density", 5_000, 100),
    Case("predict_f", 50, 20_000),
    Case("predict_f", 5, 100_000),
    Case("predict_f", 500, 100, full_cov=True),
    Case("predict_f_samples", 500, 100, full_cov=True),
)
#: Minutes of work each.
LARGE_CASES = (
    Case("predict_f", 100_000, 100),
    Case("predict_f", 100, 100_000),
    Case("predict_f", 1_000, 100, full_cov=True),
)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_list("layers", ["2", "3"], "Numbers of layers.", flag_values=fv)
    flags.DEFINE_integer("repetitions", 1, "Processes for each line; the largest peak counts.", 1, flag_values=fv)
    flags.DEFINE_float("limit_mb", 500.0, "The limit that is reported on, in units of 10^6 bytes.", 0.0, flag_values=fv)
    flags.DEFINE_boolean("graph", True, "Predict within a tf.function; --nograph: eagerly.", flag_values=fv)
    flags.DEFINE_boolean("large", False, "Also predictions that take minutes.", flag_values=fv)
    flags.DEFINE_string("case", None, "Measure this one in this process, as JSON; the script calls itself.", fv)
    bench.define_common(fv)


# One case, in its own process.


def resident_mb() -> tuple[float, float]:
    """Resident size of this process now and at its highest, in units of 10^6 bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        now, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        now = peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return now / 1e6, peak / 1e6


def reset_peak() -> bool:
    """Make the highest resident size the one of now; whether the kernel allowed it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def measure(case: Case, num_layers: int, is_graph: bool) -> dict[str, Any]:
    """Peak memory and time of one prediction in this process."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, D))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(2_000, 1))
    model = gpflow_deep.paper2017(X, Y, num_layers, num_inducing=M)
    source = model
    if case.source != "model":
        source = model.posterior(dtype=tf.float32 if case.source == "float32" else None)
    Xnew = tf.constant(rng.normal(size=(case.num_points, D)))
    Ynew = tf.sin(Xnew[:, :1])
    options: dict[str, Any] = {"num_samples": case.num_samples}
    if case.method in ("predict_f", "predict_f_samples"):
        options["full_cov"] = case.full_cov

    def predict(Xnew: tf.Tensor, Ynew: tf.Tensor) -> Any:
        given = (Xnew, Ynew) if case.method == "predict_log_density" else Xnew
        return getattr(source, case.method)(given, **options)

    predict = tf.function(predict) if is_graph else predict
    is_reset = reset_peak()
    before, highest_before = resident_mb()
    start = time.perf_counter()
    result = predict(Xnew, Ynew)
    last = result[-1] if isinstance(result, tuple) else result
    if not np.all(np.isfinite(last.numpy())):
        raise ValueError(f"the prediction of {case} must be finite; it is not.")
    seconds = time.perf_counter() - start
    after, peak = resident_mb()
    peak_mb = peak - (before if is_reset else highest_before)
    return {"peak_mb": peak_mb, "kept_mb": after - before, "seconds": seconds, "is_peak_reset": is_reset}


# All cases.


def main(FLAGS: flags.FlagValues) -> None:
    if FLAGS.case:
        num_layers, is_graph, *fields = json.loads(FLAGS.case)
        print(json.dumps(measure(Case(*fields), num_layers, is_graph)))
        return
    line = "{:>6}  {:<19}  {:<9}  {:>7}  {:>7}  {:<8}  {:>8}  {:>7}  {:>7}  {}"
    print(line.format("layers", "method", "source", "N", "S", "full_cov", "peak MB", "kept MB", "seconds", "below"))
    results = []
    for num_layers in map(int, FLAGS.layers):
        for case in CASES + (LARGE_CASES if FLAGS.large else ()):
            runs = [bench.apart([num_layers, FLAGS.graph, *case]) for _ in range(FLAGS.repetitions)]
            row = max(runs, key=lambda run: run["peak_mb"])
            is_below = row["peak_mb"] < FLAGS.limit_mb
            results.append({"layers": num_layers, **case._asdict(), **row, "is_below_limit": is_below})
            numbers = [f"{row['peak_mb']:.0f}", f"{row['kept_mb']:.0f}", f"{row['seconds']:.1f}"]
            words = [case.method, case.source, case.num_points, case.num_samples, str(case.full_cov)]
            print(line.format(num_layers, *words, *numbers, "yes" if is_below else "NO"), flush=True)
    bench.write({"metrics": results}, "none: drawn with seed 0")


if __name__ == "__main__":
    bench.run(define_flags, main)
