"""Infrastructure for running experiments: the folder of a run, its loop, data, command lines. It knows no model."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow reads it when it is imported
