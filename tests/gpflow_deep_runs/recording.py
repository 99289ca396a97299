"""What the code under test does to the disk, in its order."""

import os
from collections.abc import Callable
from typing import Any

import pytest


def record_disk(monkeypatch: pytest.MonkeyPatch, name: Callable[[Any], str]) -> list[str]:
    """Record what is synchronised and renamed from now on.

    :param name: of a path, as it is written in the record.
    :return: the record, which grows: "sync NAME", "rename NAME to NAME".
    """
    found: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        found.append(f"sync {name(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    def recorded_replace(source: Any, target: Any) -> None:
        found.append(f"rename {name(source)} to {name(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    return found
