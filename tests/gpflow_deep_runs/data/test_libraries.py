"""`gpflow_deep_runs.data.libraries`: pandas and pyarrow are imported where a table is read, and only there."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_deep_runs.data import libraries
from gpflow_deep_runs.data.libraries import MissingLibrary, pa, pc, pd

ROOT = Path(__file__).resolve().parents[3]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)


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
    if module.name != "gpflow_deep_runs.data.encoder":  # a transformer: scikit-learn imports both by itself
        importlib.import_module(module.name)
assert not {"pandas", "pyarrow"} & set(sys.modules), "imported"
"""
    done = run(program)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_known_data_set_needs_neither_and_a_table_says_what_it_needs(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n2,3\n")
    program = f"""
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None  # as if they were not installed
from gpflow_deep_runs.data import tables, views
assert len(views.load(views.Source(dataset="diabetes"), "supervised").train.X)
tables.read_table({str(table)!r})
"""
    done = run(program)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "MissingLibrary: reading tables needs pyarrow, which is not installed; `pip install pyarrow`."
    ), done.stderr[-3000:]


def test_another_missing_module_is_not_said_to_be_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ModuleNotFoundError("No module named 'dateutil'", name="dateutil")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="dateutil") as caught:
        libraries._Lazy("pandas").Series  # noqa: B018
    assert not isinstance(caught.value, MissingLibrary)
