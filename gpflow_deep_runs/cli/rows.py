"""Tables that are refused, refused before TensorFlow starts: small ones are read here as the script reads them later.

Reading imports no TensorFlow, so that what a table gets wrong takes a second to be said, not ten.
"""

from dataclasses import fields
from pathlib import Path

from absl import logging

from gpflow_deep_base.files import parse_json
from gpflow_deep_base.numbers.groups import by_group, group_names
from gpflow_deep_runs.cli.flags import Values
from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.files import inputs
from gpflow_deep_runs.data.files.documents import is_documents
from gpflow_deep_runs.data.table.spec import NewRows, TableSpec
from gpflow_deep_runs.data.tables import Schema, apply_schema, load_schema

__all__ = ["MOST_BYTES", "check"]

MOST_BYTES = 20_000_000
"""Of a file that is read twice: half a second."""


def check(script: str, values: Values) -> None:
    """Read the table of a command line.

    :param script: its name.
    :param values: by the names of its flags.
    :raises ValueError: with the words of the table's reader. Files above `MOST_BYTES`, streams, known data sets and
        files that are no tables are not looked at.
    """
    path = Path(values.get("data") or "").expanduser()
    if values.get("stream") or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # the script warns when it reads the table itself
    try:
        _read(script, path, values)
    finally:
        logging.set_verbosity(verbosity)


def _read(script: str, path: Path, values: Values) -> None:
    source = views.Source(data=str(path))
    spec = TableSpec(**by_group(TableSpec, _fields_of(TableSpec, values)))
    match script:
        case "train_dgp":
            division = {name: values[name] for name in ("split", "valid_fraction", "seed")}
            views.load(source, "supervised", table=spec, **division)
        case "train_ebp" if not is_documents(path):
            views.load(source, "supervised", table=spec, split=None)
        case "train_darn":
            views.load(source, "binary", table=spec, bins=values["bins"])
        case "track_rbm":
            is_continuous = values["visible"] == "gaussian"
            views.load(source, "continuous" if is_continuous else "binary", table=spec)
        case "predict_dgp" | "predict_ebp":
            schema = _schema(script, Path(values["run_dir"]).expanduser())
            if schema is not None:
                apply_schema(schema, str(path), NewRows(**_fields_of(NewRows, values)))


def _fields_of(kind: type[TableSpec | NewRows], values: Values) -> Values:
    """The flags that are fields of a dataclass; a script may leave some of them out."""
    names = [*(field.name for field in fields(kind)), *group_names(kind)]
    return {name: values[name] for name in names if name in values}


def _schema(script: str, run: Path) -> Schema | None:
    """How the table that a model was trained on was read, if it was one; what is damaged is said later."""
    if script == "predict_ebp":
        return load_schema(run / inputs.COLUMNS) if (run / inputs.COLUMNS).is_file() else None
    try:
        return Schema.from_json(parse_json((run / "inputs.json").read_bytes())["schema"])
    except (OSError, TypeError, ValueError, KeyError, AttributeError):
        return None
