"""How the columns of a table become inputs and targets: what a model keeps to read new rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

__all__ = ["Column", "TableSchema", "Task"]

Task = Literal["regression", "binary", "multiclass"]


@dataclass(frozen=True)
class Column:
    """A feature column of a table: its name, and its levels if it holds text (None if it holds numbers)."""

    name: str
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TableSchema:
    """How the columns of a table become X and Y.

    :param columns: the feature columns, in the order of X.
    :param targets: names of the target columns; more than one only in regression.
    :param task: "regression", "binary" or "multiclass".
    :param class_names: the label of each class as text, in the order of the integer labels; () in regression.
    """

    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    task: Task
    class_names: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Name of each column of X; "colour=red" for a level."""
        return tuple(
            name
            for c in self.columns
            for name in ([c.name] if c.levels is None else [f"{c.name}={v}" for v in c.levels])
        )

    def to_json(self) -> dict[str, Any]:
        """A dictionary for `experiment.files.write_json`."""
        columns = [{"name": c.name, "levels": None if c.levels is None else list(c.levels)} for c in self.columns]
        return {
            "columns": columns,
            "targets": list(self.targets),
            "task": self.task,
            "class_names": list(self.class_names),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "TableSchema":
        """The inverse of :meth:`to_json`.

        :raises ValueError: if entries are missing or of another kind.
        """
        try:
            columns = tuple(
                Column(str(c["name"]), None if c["levels"] is None else tuple(map(str, c["levels"])))
                for c in stored["columns"]
            )
            targets, names = tuple(map(str, stored["targets"])), tuple(map(str, stored["class_names"]))
            task = stored["task"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"the stored table schema is damaged ({error!r}); take an undamaged copy.") from error
        if task not in get_args(Task):
            raise ValueError(f"the stored table schema has the unknown task {task!r}; take an undamaged copy.")
        return cls(columns, targets, cast(Task, task), names)
