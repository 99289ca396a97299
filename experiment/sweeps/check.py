"""The flags of all runs against the script that will get them, before anything starts."""

import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

from experiment.cli.flags import named_flags, parse
from experiment.sweeps.runs import PlannedRun, arguments

__all__ = ["check_flags", "flags_of"]


def flags_of(script: Path) -> Any:
    """The dataclass of the flags of a script that trains.

    :raises ValueError: if there is no such script, or it makes no run that can be resumed.
    """
    if not script.is_file():
        there = ", ".join(sorted(path.name for path in script.parent.glob("*.py")))
        raise ValueError(f"script must be one of {there}, got {script.name!r}.")
    spec = importlib.util.spec_from_file_location(f"of_sweep_{script.stem}", script)
    if spec is None or spec.loader is None:
        raise ValueError(f"script must be a Python file, got {script}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main = getattr(module, "main", None)
    kind = next(iter(get_type_hints(main).values()), None) if inspect.isfunction(main) else None
    names = {flag.name for flag in named_flags(kind)} if inspect.isclass(kind) and kind is not type(None) else set()
    if not {"run_dir", "resume"} <= names:
        raise ValueError(f"script must be one that trains, with --run_dir and --resume, got {script.name!r}.")
    return kind


def check_flags(script: Path, runs: Sequence[PlannedRun]) -> set[str]:
    """Refuse flags that the script does not have, or values that it does not take; the names of those that it has.

    :raises ValueError: as :func:`flags_of`, and naming the first run and flag that is wrong.
    """
    kind = flags_of(script)
    for run in runs:
        try:
            parse(kind, [f"--run_dir={run.name}", *arguments(run.flags)], script.name)
        except ValueError as error:
            raise ValueError(f"{script.name} does not take the flags of the run {run.name}: {error}") from error
    return {flag.name for flag in named_flags(kind)}
