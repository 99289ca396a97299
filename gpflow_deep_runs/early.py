"""To be imported first by a script that trains: what can be said before TensorFlow starts is said at once.

That is --help, flags that are wrong, files that are not there, and a --run_dir that cannot be had.
"""

import sys

from gpflow_deep_runs.cli.described import answer
from gpflow_deep_runs.cli.output import open_closed_streams

open_closed_streams()
answer(sys.argv)
