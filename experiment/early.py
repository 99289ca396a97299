"""To be imported first by a script that trains: a --run_dir in use is refused before TensorFlow starts."""

import sys

from experiment.locks import refuse_run_dir_in_use

refuse_run_dir_in_use(sys.argv)
