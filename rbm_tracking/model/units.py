"""Which visible units rows call for: chosen by the user, or by the rows themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from rbm_tracking.model.groups import find_groups, fitting, group_text, parse_groups, softmax
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible

__all__ = ["UNITS", "Units", "UnitsConfig", "as_tensor", "choose_units"]

UnitsName = Literal["auto", "bernoulli", "softmax", "spin", "gaussian"]
UNITS: tuple[str, ...] = get_args(UnitsName)

Rows = NDArray[Any]

_SMALL, _LARGE = 0.01, 10.0  # deviations that training still copes with


@dataclass(frozen=True)
class UnitsConfig:
    """What the visible units are.

    :param visible: auto takes softmax units for the categories of a table, else bernoulli; softmax: categories, one bit
        a level; spin: bits as -1 and 1; gaussian: numbers, of the columns of a table that are numbers, standardised.
    :param groups: of softmax units, columns counted from 0, such as 0-2,3-5,8+10; if it is not given those of the
        table, or contiguous columns of which at most one is 1 in the training and validation rows.
    :param learn_variances: of Gaussian units; else they stay those of the columns.
    :raises ValueError: naming the field that is wrong.
    """

    visible: UnitsName = "auto"
    groups: str | None = None
    learn_variances: bool = True

    def __post_init__(self) -> None:
        if self.visible not in UNITS:
            raise ValueError(f"visible must be one of {', '.join(UNITS)}, got {self.visible!r}.")
        if self.groups is not None and self.visible != "softmax":
            raise ValueError(f"groups are of softmax units; give visible=softmax with them, got {self.visible!r}.")
        parse_groups(self.groups or "")


class Units(NamedTuple):
    """The units, the rows of each part as they take them, and what to tell the user."""

    visible: Visible
    parts: dict[str, Rows]
    note: str


def as_tensor(rows: Rows) -> tf.Tensor:
    """Rows as training wants them: bits as booleans, others in float32."""
    return tf.cast(rows, tf.bool if rows.dtype == np.uint8 else tf.float32)


def choose_units(
    config: UnitsConfig, parts: Mapping[str, Rows], known_groups: Sequence[Sequence[int]] = (), *, part: str = "train"
) -> Units:
    """The units of rows, fitted to those of "train" (and groups to those of "valid").

    :param parts: rows [N, n_v] of "train" and others: bits, or numbers for Gaussian units.
    :param known_groups: columns that are the levels of one category.
    :param part: the one that units are fitted to.
    :raises ValueError: if rows are not what the units can be; naming the part, and the flag that helps.
    """
    train = parts[part]
    visible: Visible
    if config.visible == "gaussian":
        variance = _scale(train, part) ** 2
        visible = Gaussian((1.0 / variance).astype(np.float32), config.learn_variances)
        note = f"visible units: {train.shape[1]} Gaussian ones"
    elif config.visible == "spin":
        if all((rows != -1).all() for rows in parts.values()):  # bits
            parts = {name: 2.0 * rows.astype(np.float32) - 1.0 for name, rows in parts.items()}
        visible, note = Spin(), f"visible units: {train.shape[1]} of -1 and 1"
    elif config.visible == "bernoulli" or (config.visible == "auto" and not known_groups):
        visible, note = Bernoulli(), f"visible units: {train.shape[1]} bits"
    else:
        visible, note = _softmax(config, parts, known_groups, part)
    for name, rows in parts.items():
        visible.check(rows, name=f"the {name} part")
    return Units(visible, dict(parts), note)


def _scale(rows: Rows, part: str) -> Rows:
    """Standard deviations of the columns, [n_v].

    :raises ValueError: if a column is constant, or so far from mean 0 and deviation 1 that training would diverge.
    """
    mean, std = np.mean(rows, axis=0, dtype=np.float64), np.std(rows, axis=0, dtype=np.float64)
    for column in np.flatnonzero(std <= 1e-9 * np.abs(mean)):
        raise ValueError(
            f"columns must vary for Gaussian units, but column {column} of {part} is {mean[column]:g} in every row; "
            "leave it out."
        )
    for column in np.flatnonzero((std < _SMALL) | (std > _LARGE) | (np.abs(mean) > _LARGE * np.maximum(std, 1.0))):
        raise ValueError(
            f"columns must have about mean 0 and deviation 1 for Gaussian units, got {mean[column]:g} and "
            f"{std[column]:g} in column {column} of {part}; standardise them, for example by "
            "sklearn.preprocessing.StandardScaler."
        )
    return np.asarray(std)


def _softmax(
    config: UnitsConfig, parts: Mapping[str, Rows], known: Sequence[Sequence[int]], part: str
) -> tuple[Visible, str]:
    seen = np.concatenate([parts[name] for name in (part, "valid") if name in parts])
    if config.groups is not None:
        groups, origin = parse_groups(config.groups), "given"
    elif known:
        groups, origin = tuple(tuple(group) for group in known), "the categories of the table"
    else:
        groups, origin = fitting(find_groups(parts[part]), seen), "found: contiguous columns, at most one of them 1"
    if not groups:
        raise ValueError(
            "no groups of columns were found for softmax units: none of the contiguous columns exclude one another; "
            "name them by groups, or let them be bits by visible=bernoulli."
        )
    rest = parts[part].shape[1] - sum(map(len, groups))
    note = f"visible units: {len(groups)} softmax groups ({origin}) {group_text(groups)}; {rest} bits"
    return softmax(seen, groups), note
