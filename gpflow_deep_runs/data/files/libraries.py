"""pandas and pyarrow, imported at their first use, which is where a table is read.

from gpflow_deep_runs.data.files.libraries import pa, pc, pd        # pyarrow, pyarrow.compute, pandas
"""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pc", "pd"]


class _Lazy:
    """A module that is imported when one of its names is used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of tools that look at objects
            raise AttributeError(name)
        module = importlib.import_module(self._module)
        value = getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{self._module}.{name}")
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pd = _Lazy("pandas")
    pa = _Lazy("pyarrow")
    pc = _Lazy("pyarrow.compute")
