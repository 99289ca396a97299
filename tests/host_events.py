"""What the host does while a call runs, counted by TensorFlow's profiler: without a GPU the same events as with one."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

COPY = "_EagerConst"
"""An array that becomes a tensor: a copy from the host to the device."""
_LAUNCH = re.compile(r"EagerLocalExecute: (?:__(?:inference|forward)_)?(.+?)(?:_\d+)?$")
_PYTHON = re.compile(r".*:(PyFunc|PyFuncStateless|EagerPyFunc)$")


def host_events(call: Callable[[], Any]) -> Counter[str]:
    """How often the host started each operation or compiled function, and how often a graph called Python.

    Reading a tensor (`.numpy()`, `float`) leaves no event where the device is the host: these need another look.
    """
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder, options=options):
            call()
        for path in Path(folder).rglob("*.xplane.pb"):
            space = xplane_pb2.XSpace()
            space.ParseFromString(path.read_bytes())
            for plane in space.planes:
                names = {key: _short(value.name) for key, value in plane.event_metadata.items()}
                found.update(names[event.metadata_id] for line in plane.lines for event in line.events)
    del found[""]
    return found


def _short(event: str) -> str:
    matched = _LAUNCH.match(event) or _PYTHON.match(event)
    return matched[1] if matched else ""
