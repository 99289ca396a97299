"""To be imported first by a script that trains: what can be said before TensorFlow starts is said at once.

That is --help, flags that are wrong, files that are not there, tables that are refused, and a --run_dir that cannot
be had; and, in a terminal, that it takes some seconds until there is more to be said.
"""

import sys
from pathlib import Path

from gpflow_deep_runs.cli.described import answer
from gpflow_deep_runs.cli.output import open_streams

_SLOW = ("train_dgp", "predict_dgp", "train_ebp", "train_darn", "track_rbm", "compress_network", "compress_with_darn")
"""Scripts that need TensorFlow from the start."""

open_streams()
answer(sys.argv)
if sys.flags.optimize > 1:
    message = "Keras needs docstrings; leave out -OO, or PYTHONOPTIMIZE=2."
    print(f"{Path(sys.argv[0]).name}: error: {message}", file=sys.stderr)
    raise SystemExit(2)
if sys.stderr.isatty() and Path(sys.argv[0]).stem in _SLOW:
    print("TensorFlow starts, which takes some seconds", file=sys.stderr, flush=True)
