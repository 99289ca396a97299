"""Which units there are: chosen by the user, or visible ones by the rows themselves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf

from rbm_tracking.model.families.groups import find_groups, fitting, group_text, parse_groups, softmax
from rbm_tracking.model.families.mixed import simplest
from rbm_tracking.model.families.rectified import DReLU, ReLU
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible

__all__ = [
    "FAMILIES",
    "UNITS",
    "HiddenName",
    "Layer",
    "Units",
    "UnitsConfig",
    "as_tensor",
    "choose_units",
    "hidden_units",
    "layer",
]

UnitsName = Literal["auto", "bernoulli", "softmax", "spin", "gaussian"]
UNITS: tuple[str, ...] = get_args(UnitsName)

HiddenName = Literal["bernoulli", "spin", "gaussian", "relu", "drelu"]
FamilyName = Literal[HiddenName, "softmax"]
FAMILIES: tuple[str, ...] = get_args(FamilyName)
Layer = UnitsName | FamilyName | Mapping[FamilyName, Any]
"""A family, or how many units of which family there are, or which columns are of it."""

Rows = np.ndarray

# deviations that training still copes with
_SMALL = 0.01
_LARGE = 4.0


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
    # The family, with what it needs to know of the rows it is fitted to.
    if config.visible == "gaussian":
        variance = _scale(train, part, range(train.shape[1])) ** 2
        visible = Gaussian((1.0 / variance).astype(np.float32), config.learn_variances)
        note = f"visible units: {train.shape[1]} Gaussian ones"
    elif config.visible == "spin":
        if all((rows != -1).all() for rows in parts.values()):  # bits
            parts = {name: 2.0 * rows.astype(np.float32) - 1.0 for name, rows in parts.items()}
        visible = Spin()
        note = f"visible units: {train.shape[1]} of -1 and 1"
    elif config.visible == "bernoulli" or (config.visible == "auto" and not known_groups):
        visible = Bernoulli()
        note = f"visible units: {train.shape[1]} bits"
    else:
        visible, note = _softmax(config, parts, known_groups, part)
    # All parts must be what the units can be.
    for name, rows in parts.items():
        visible.check(rows, name=f"the {name} part")
    return Units(visible, dict(parts), note)


def hidden_units(units: Layer, n_h: int | None) -> Visible:
    """The hidden units.

    :param units: a family, or the number of units of each of some families, whose sum is `n_h`.
    :param n_h: number of units; None: as many as `units` says, or one.
    :raises ValueError: if it is no such thing.
    """
    counts: Mapping[Any, Any] = {units: n_h or 1} if isinstance(units, str) else units
    known_names = get_args(HiddenName)
    is_right = isinstance(counts, Mapping) and counts and all(name in known_names for name in counts)
    if not is_right or not all(isinstance(count, int | np.integer) and count > 0 for count in counts.values()):
        raise ValueError(
            f"hidden must be one of {', '.join(known_names)}, or how many units there are of each, for example "
            f'{{"bernoulli": 20, "drelu": 10}}, got {units!r}.'
        )
    if n_h is not None and sum(counts.values()) != n_h:
        raise ValueError(f"hidden must name {n_h} units in all, as n_components says, got {sum(counts.values())}.")
    # Units of a family stand next to one another.
    ends = np.cumsum(list(counts.values())).tolist()
    columns = tuple(tuple(range(end - count, end)) for end, count in zip(ends, counts.values(), strict=True))
    # Numbers start as standard normal ones, or halves of these.
    families: dict[str, Callable[[Rows], Visible]] = {
        "bernoulli": lambda zeros: Bernoulli(),
        "spin": lambda zeros: Spin(),
        "gaussian": lambda zeros: Gaussian(zeros + 1),
        "relu": ReLU,
        "drelu": lambda zeros: DReLU(zeros, zeros, zeros),
    }
    return simplest(columns, tuple(families[name](np.zeros(n, np.float32)) for name, n in counts.items()))


def layer(columns: Mapping[FamilyName, Any], rows: Rows, *, learn_variances: bool = True) -> Visible:
    """Visible units of several families.

    :param columns: those of each family; of "softmax" the columns of each category. Each column of the rows is in one
        place.
    :param rows: that the units are fitted to, [N, n_v].
    :param learn_variances: whether widths of numbers are learnt; else they stay those of the columns.
    :raises ValueError: if families or columns are not as described, or rows are not what the units can be.
    """
    places = []
    families = []
    for name, family_columns in columns.items():
        groups = [list(group) for group in family_columns] if name == "softmax" else [list(family_columns)]
        index = [int(column) for group in groups for column in group]
        # The family is fitted to its columns.
        part = rows[:, index]
        if name == "softmax":
            ends = np.cumsum([len(group) for group in groups]).tolist()
            family: Visible = softmax(
                part, [list(range(end - len(group), end)) for end, group in zip(ends, groups, strict=True)]
            )
        elif name == "gaussian":
            family = Gaussian((_scale(part, "X", index) ** -2.0).astype(np.float32), learn_variances)
        elif name in ("relu", "drelu"):
            # For its errors: 0 has a meaning here, so that columns are not standardised.
            _scale(part, "X", index, is_centred=False)
            family = (ReLU if name == "relu" else DReLU).of(part, is_learnt=learn_variances)
        else:
            family = Bernoulli() if name == "bernoulli" else Spin()
        places.append(tuple(index))
        families.append(family)
    units = simplest(tuple(places), tuple(families))
    units.check(rows, n_v=rows.shape[1], name="X")
    return units


def _scale(rows: Rows, part: str, numbers: Sequence[int], *, is_centred: bool = True) -> Rows:
    """Standard deviations of the columns, [n_v].

    :param numbers: of the columns, [n_v], for errors.
    :raises ValueError: if a column is constant, or so far from mean 0 and deviation 1 that training would diverge.
    """
    # Columns that do not vary have no width.
    mean = np.mean(rows, axis=0, dtype=np.float64)
    std = np.std(rows, axis=0, dtype=np.float64)
    for column in np.flatnonzero(std <= 1e-9 * np.abs(mean)):
        raise ValueError(
            f"columns of numbers must vary, but column {numbers[column]} of {part} is {mean[column]:g} in every row; "
            "leave it out."
        )
    if not is_centred:  # units whose 0 has a meaning keep it
        mean = np.zeros_like(mean)
    # Columns of another size make the gradient of their weights explode, or vanish.
    for column in np.flatnonzero((std < _SMALL) | (std > _LARGE) | (np.abs(mean) > _LARGE * np.maximum(std, 1.0))):
        if not is_centred:
            raise ValueError(
                f"columns must have a deviation of about 1 for relu and drelu units, got {std[column]:g} in column "
                f"{numbers[column]} of {part}; scale them, for example by sklearn.preprocessing.MaxAbsScaler."
            )
        raise ValueError(
            f"columns must have about mean 0 and deviation 1 for Gaussian units, got {mean[column]:g} and "
            f"{std[column]:g} in column {numbers[column]} of {part}; standardise them, for example by "
            "sklearn.preprocessing.StandardScaler."
        )
    return np.asarray(std)


def _softmax(
    config: UnitsConfig, parts: Mapping[str, Rows], known: Sequence[Sequence[int]], part: str
) -> tuple[Visible, str]:
    # Groups that a validation row breaks would have no probability there.
    rows = np.concatenate([parts[name] for name in (part, "valid") if name in parts])
    if config.groups is not None:
        groups = parse_groups(config.groups)
        origin = "given"
    elif known:
        groups = tuple(tuple(group) for group in known)
        origin = "the categories of the table"
    else:
        groups = fitting(find_groups(parts[part]), rows)
        origin = "found: contiguous columns, at most one of them 1"
    if not groups:
        raise ValueError(
            "no groups of columns were found for softmax units: none of the contiguous columns exclude one another; "
            "name them by groups, or let them be bits by visible=bernoulli."
        )
    rest = parts[part].shape[1] - sum(map(len, groups))
    note = f"visible units: {len(groups)} softmax groups ({origin}) {group_text(groups)}; {rest} bits"
    return softmax(rows, groups), note
