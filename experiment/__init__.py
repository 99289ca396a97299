"""Infrastructure for running experiments: the folder of a run, its loop, data, command lines. It knows no model."""

import os
from pathlib import Path

# TensorFlow reads it when it is imported. Without NVIDIA's driver its errors are only that there is no GPU, and about
# instructions that the processor lacks; what fails in a step is raised as an exception at any level.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if Path("/proc/driver/nvidia").exists() else "3")
