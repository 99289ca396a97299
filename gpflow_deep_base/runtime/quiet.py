"""TensorFlow's start without its noise: lines about its build, and about GPUs on a machine that has none.

They are written before any setting of its log level has an effect, and one of them looks like a failure. Whoever wants
to see them sets TF_CPP_MIN_LOG_LEVEL, or imports TensorFlow first.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import ModuleType

__all__ = ["import_within", "quieten_tensorflow", "start_tensorflow", "without_noise", "without_warnings"]

NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog|[IW]0000 |To enable the following instructions:|"
    r"E0000 .*Unable to register cu\w+ factory"
)
NO_GPU = re.compile(r"E0000 .*(failed call to cuInit|CUDA error)")
NVIDIA = Path("/proc/driver/nvidia")


def quieten_tensorflow() -> None:
    """Let the import of TensorFlow, whenever it comes, be without noise. It is not imported for that.

    Nothing happens where it is imported already, or where TF_CPP_MIN_LOG_LEVEL is set.
    """
    if "tensorflow" in sys.modules or "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        return
    # TensorFlow reads it when it is imported. Without NVIDIA's driver its errors are only that there is no GPU, and
    # about instructions that the processor lacks; what fails in a step is raised as an exception at any level.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2" if NVIDIA.exists() else "3"
    import_within("tensorflow", without_noise)


def import_within(name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
    """Let a module, whenever it is imported first, be loaded within a context."""
    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, context))


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
        # The descriptor is replaced, as C++ writes past `sys.stderr`.
        saved = None if sys.stderr is None else os.dup(2)
    except OSError:
        saved = None
    if saved is None:  # there is no standard error
        yield
        return
    with suppress(OSError):
        sys.stderr.flush()
    # Held back in a file, as a pipe could be full before it is read.
    is_failed = True
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            is_failed = False
        finally:
            with suppress(OSError):
                sys.stderr.flush()
            # Standard error as it was, and then what was held back.
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


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as Python does, once, and has it loaded within a context."""

    def __init__(self, name: str, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._name = name
        self._context = context

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        # Once: the search below then finds the module as without this.
        with suppress(ValueError):
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderWithin(spec.loader, self._context)
        return spec


class _LoaderWithin(importlib.abc.Loader):
    """Another loader, which takes its place again once the module is there."""

    def __init__(self, loader: importlib.abc.Loader, context: Callable[[], AbstractContextManager[None]]) -> None:
        self._loader = loader
        self._context = context

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader, as if this one had never been.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with self._context():
            self._loader.exec_module(module)
