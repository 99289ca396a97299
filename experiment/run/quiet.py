"""TensorFlow's start without its noise: lines about its build, and about GPUs on a machine that has none.

They are written before any setting of its log level has an effect, and one of them looks like a failure.
"""

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["start_tensorflow", "without_noise", "without_warnings"]

NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog|[IW]0000 |To enable the following instructions:|"
    r"E0000 .*Unable to register cu\w+ factory"
)
NO_GPU = re.compile(r"E0000 .*(failed call to cuInit|CUDA error)")
NVIDIA = Path("/proc/driver/nvidia")


def start_tensorflow() -> None:
    """Import TensorFlow and let it look for devices."""
    with without_noise():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextmanager
def without_noise() -> Iterator[None]:
    """Hold back what is written to standard error, from C++ too; write it at the end without TensorFlow's noise.

    On a machine with NVIDIA's driver, errors about GPUs are no noise. After an exception nothing is left out.
    """
    try:
        saved = None if sys.stderr is None else os.dup(2)
    except OSError:
        saved = None
    if saved is None:  # there is no standard error
        yield
        return
    with suppress(OSError):
        sys.stderr.flush()
    is_failed = True
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            is_failed = False
        finally:
            with suppress(OSError):
                sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            text = held.read().decode(errors="replace")
            with suppress(OSError):  # a standard error that is lost ends no training
                sys.stderr.write(text if is_failed else "".join(filter(_is_wanted, text.splitlines(keepends=True))))


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hold back TensorFlow's warnings: for work that has to trace functions again and again."""
    logger = logging.getLogger("tensorflow")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _is_wanted(line: str) -> bool:
    return not NOISE.match(line) and (NVIDIA.exists() or not NO_GPU.match(line))
