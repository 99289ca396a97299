"""What a run computes on, in words."""

import functools
import os
import platform
from pathlib import Path

__all__ = ["machine"]


@functools.cache
def machine() -> str:
    """Processor, number of cores and system of this computer."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
