"""Infrastructure for running experiments: the folder of a run, its loop, data, command lines. It knows no model."""

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise
