"""The flags of all runs against the script that will get them, before anything starts."""

import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_type_hints

from gpflow_deep_runs.cli.flags import named_flags, parse, text
from gpflow_deep_runs.sweeps.runs import PlannedRun, arguments

__all__ = ["flags_of", "full_flags"]


def flags_of(script: Path) -> Any:
    """The dataclass of the flags of a script that trains.

    :raises ValueError: if there is no such script, or it makes no run that can be resumed.
    """
    if not script.is_file():
        scripts = ", ".join(sorted(path.name for path in script.parent.glob("*.py")))
        raise ValueError(f"script must be one of {scripts}, got {script.name!r}.")
    # Importing a script does not run it, as its __name__ is not "__main__".
    spec = importlib.util.spec_from_file_location(f"of_sweep_{script.stem}", script)
    if spec is None or spec.loader is None:
        raise ValueError(f"script must be a Python file, got {script}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # The one argument of its `main` is the dataclass of its flags.
    main = getattr(module, "main", None)
    kinds = (
        [hint for name, hint in get_type_hints(main).items() if name != "return"] if inspect.isfunction(main) else []
    )
    if not kinds or not {"run_dir", "resume"} <= {flag.name for flag in named_flags(kinds[0])}:
        raise ValueError(f"script must be one that trains, with --run_dir and --resume, got {script.name!r}.")
    return kinds[0]


def full_flags(kind: Any, runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """All flags of each run by its name, those that the file leaves at their defaults among them.

    :param kind: as :func:`flags_of` gives it.
    :raises ValueError: naming the first run and its flag that the script does not have, or whose value it refuses.
    """
    flags_by_name = {}
    for run in runs:
        try:
            flags = parse(kind, [f"--run_dir={run.name}", *arguments(run.flags)])
        except ValueError as error:
            raise ValueError(f"the flags of the run {run.name}: {error}") from error
        flags_by_name[run.name] = text(flags).splitlines()
    return flags_by_name
