"""A trained RBM with its log Z in one .npz file.

save_rbm(saved, "rbm.npz")
saved = load_rbm("rbm.npz")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_deep_base.files import PathLike
from gpflow_deep_base.storage.container import Shapes, load_container, save_container
from gpflow_deep_base.storage.limits import refuse_damaged
from rbm_tracking.model.checks import check_rbm
from rbm_tracking.model.families.mixed import Mixed
from rbm_tracking.model.families.rectified import DReLU, ReLU
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible

__all__ = ["SavedRBM", "from_description", "load_rbm", "save_rbm"]

_KIND = "a saved RBM"
_VERSION = 3
_NUM_OWN = {"gaussian": 1, "relu": 1, "drelu": 3}
"""Arrays of own parameters of a family."""
_SCALARS = ("log_z", "log_z_std", "step")


class SavedRBM(NamedTuple):
    """Parameters after `step` updates, the tracked log Z and its standard deviation in nats, and the ladder [M]."""

    rbm: RBM
    log_z: float
    log_z_std: float
    beta: np.ndarray
    step: int


def save_rbm(saved: SavedRBM, path: PathLike) -> None:
    """Write a file that :func:`load_rbm` reads; it appears under its name only when it is whole.

    :param saved: what to save.
    :param path: of the file; missing folders are made.
    :raises ValueError: if parameters are not finite.
    :raises OSError: if it cannot be written; what was there before stays.
    """
    check_rbm(saved.rbm)
    rbm = saved.rbm
    arrays = {"W": rbm.W.numpy(), "b": rbm.b.numpy(), "c": rbm.c.numpy(), "beta": np.asarray(saved.beta)}
    arrays |= {"log_z": np.float64(saved.log_z), "log_z_std": np.float64(saved.log_z_std), "step": np.int64(saved.step)}
    n_h, n_v = rbm.W.shape
    header: dict[str, Any] = {"n_h": n_h, "n_v": n_v, "num_temps": len(saved.beta)}
    for layer, units in (("visible", rbm.visible), ("hidden", rbm.hidden)):
        # Hidden units that a header does not name are bits.
        if layer == "visible" or units != Bernoulli():
            header[layer] = units.describe()
        leaves = tf.nest.flatten(units)
        arrays |= {name: np.asarray(leaf) for name, leaf in zip(_own(layer, header), leaves, strict=True)}
    save_container(path, kind=_KIND, version=_VERSION, header=header, arrays=arrays)


def load_rbm(path: PathLike, *, max_bytes: int | None = None) -> SavedRBM:
    """Read a file of :func:`save_rbm`. Sizes are compared with its header and its length before anything is unpacked.

    :param path: of the file.
    :param max_bytes: that its arrays may take; None: 100 MB and three times the file's length.
    :raises ValueError: if it is missing, damaged, another kind of file, or takes more.
    """
    stored = load_container(path, kind=_KIND, versions=(_VERSION,), expected=_shapes, max_bytes=max_bytes)
    arrays = stored.arrays
    # Types of arrays: a header says nothing of them. W alone may be of half precision.
    for name, array in arrays.items():
        expected_kind = "i" if name == "step" else "f"
        if array.dtype.kind != expected_kind or array.dtype.itemsize > 8:
            refuse_damaged(path, _KIND, f"its array {name} has the type {array.dtype}")
    if arrays["b"].dtype != arrays["c"].dtype:
        refuse_damaged(path, _KIND, f"b and c have different types, {arrays['b'].dtype} and {arrays['c'].dtype}")
    # The families, with their own parameters, and an RBM that holds together.
    try:
        layers = [
            from_description(stored.header[layer], *(tf.constant(arrays[name]) for name in _own(layer, stored.header)))
            for layer in ("visible", "hidden")
            if layer in stored.header
        ]
        W, b, c = (tf.constant(arrays[name]) for name in ("W", "b", "c"))
        rbm = RBM(W, b, c, *layers)
        check_rbm(rbm)
    except ValueError as error:
        refuse_damaged(path, _KIND, error)
    return SavedRBM(
        rbm, float(arrays["log_z"]), float(arrays["log_z_std"]), beta=arrays["beta"], step=int(arrays["step"])
    )


def from_description(description: Mapping[str, object], *own: object) -> Visible:
    """The family of :meth:`Visible.describe`.

    :param description: as JSON has it.
    :param own: its own parameters: precisions [n] of Gaussian units, those of ReLU and dReLU units; of mixed ones those
        of each family in turn.
    :raises ValueError: if it is no such description.
    """
    try:
        match dict(description):
            case {"family": "bernoulli"}:
                return Bernoulli()
            case {"family": "spin"}:
                return Spin()
            case {"family": "softmax", "n_v": int(n_v), "groups": list(groups), "is_required": list(is_required)}:
                columns = tuple(tuple(int(column) for column in group) for group in groups)
                return Softmax(n_v, columns, tuple(bool(required) for required in is_required))
            case {"family": "gaussian", "is_learnt": bool(is_learnt)} if len(own) == 1:
                return Gaussian(own[0], is_learnt)
            case {"family": "relu", "is_learnt": bool(is_learnt)} if len(own) == 1:
                return ReLU(own[0], is_learnt)
            case {"family": "drelu", "is_learnt": bool(is_learnt)} if len(own) == 3:
                return DReLU(*own, is_learnt)
            case {"family": "mixed", "columns": list(columns), "families": list(families)}:
                parts = []
                # Each family takes its share of the arrays, in their order.
                start = 0
                for family in families:
                    stop = start + _NUM_OWN.get(family.get("family"), 0)
                    parts.append(from_description(family, *own[start:stop]))
                    start = stop
                return Mixed(
                    tuple(tuple(int(column) for column in family_columns) for family_columns in columns), tuple(parts)
                )
    except (TypeError, AttributeError):
        # The right names with other contents: no description either.
        pass
    raise ValueError(f"no family of visible units is described by {str(description)[:200]}; save it again.")


def _own(layer: str, header: Mapping[str, Any]) -> list[str]:
    """Names of the arrays of the own parameters of a layer."""
    family = header.get(layer, {})
    # Of several families those of each, one after the other.
    inside = family.get("families", [family])
    count = sum(_NUM_OWN.get(part.get("family"), 0) for part in inside)
    if layer == "visible" and family.get("family") == "gaussian":
        return ["precision"]
    return [f"{layer}_{number}" for number in range(count)]


def _own_shapes(layer: str, header: Mapping[str, Any], count: int) -> dict[str, tuple[int, ...]]:
    """Their shapes, of a layer of `count` units."""
    family = header.get(layer, {})
    sizes = [len(columns) for columns in family.get("columns", [range(count)])]
    lengths = [
        size
        for size, part in zip(sizes, family.get("families", [family]), strict=True)
        for _ in range(_NUM_OWN.get(part.get("family"), 0))
    ]
    return {name: (length,) for name, length in zip(_own(layer, header), lengths, strict=True)}


def _shapes(header: dict[str, Any]) -> Shapes:
    """Shapes of all arrays of a file with this header."""
    match header:
        case {"n_h": int(n_h), "n_v": int(n_v), "num_temps": int(num_temps), "visible": dict()}:
            pass
        case _:
            raise ValueError("its header must have the sizes n_h, n_v and num_temps, and the family of visible units")
    shapes: dict[str, tuple[int, ...]] = {"W": (n_h, n_v), "b": (n_v,), "c": (n_h,), "beta": (num_temps,)}
    shapes |= dict.fromkeys(_SCALARS, ())
    try:
        return shapes | _own_shapes("visible", header, n_v) | _own_shapes("hidden", header, n_h)
    except (AttributeError, TypeError, ValueError):
        raise ValueError("the families of its units must have columns and parameters") from None
