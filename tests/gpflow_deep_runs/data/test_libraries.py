"""`gpflow_deep_runs.data.files.libraries`: pandas and pyarrow are imported where a table is read, and only there."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_deep_runs.data.files.libraries import pa, pc, pd

ROOT = Path(__file__).resolve().parents[3]


def test_they_are_the_libraries() -> None:
    import pandas
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv

    assert pd.DataFrame is pandas.DataFrame
    assert pa.Table is pyarrow.Table
    assert pc.cast is pyarrow.compute.cast
    assert pa.csv is pyarrow.csv
    with pytest.raises(ModuleNotFoundError, match=r"pyarrow\.no_such_name"):
        pa.no_such_name  # noqa: B018
    assert not hasattr(pa, "__wrapped__")


def test_importing_what_reads_tables_imports_neither() -> None:
    program = """
import importlib, pkgutil, sys
import gpflow_deep_runs.data as data
for module in pkgutil.walk_packages(data.__path__, "gpflow_deep_runs.data."):
    if module.name != "gpflow_deep_runs.data.values.encoder":  # a transformer: scikit-learn imports both by itself
        importlib.import_module(module.name)
assert not {"pandas", "pyarrow"} & set(sys.modules), "imported"
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
