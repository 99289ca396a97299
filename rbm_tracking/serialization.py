"""A trained RBM with its log Z in one .npz file."""

import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rbm_tracking.checks import check_rbm
from rbm_tracking.rbm import RBM
from rbm_tracking.softmax import Softmax
from rbm_tracking.visible import Bernoulli, Gaussian, Spin, Visible

__all__ = ["SavedRBM", "from_description", "load_rbm", "save_rbm"]

_FORMAT, _FORMAT_OF_FAMILIES = "rbm_tracking 1", "rbm_tracking 2"  # of bits; with a description of other visible units


class SavedRBM(NamedTuple):
    """Parameters after `step` updates, the tracked log Z and its standard deviation in nats, and the ladder [M]."""

    rbm: RBM
    log_z: float
    log_z_std: float
    beta: np.ndarray
    step: int


def save_rbm(path: str | os.PathLike[str], saved: SavedRBM) -> None:
    """Write a file that :func:`load_rbm` reads; it appears under its name only when it is whole.

    :raises ValueError: if parameters are not finite.
    :raises OSError: if it cannot be written; what was there before stays.
    """
    check_rbm(saved.rbm)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with open(temporary, "wb") as stream:
            np.savez_compressed(
                stream,
                **_parameters(saved.rbm),
                log_z=saved.log_z,
                log_z_std=saved.log_z_std,
                beta=saved.beta,
                step=saved.step,
            )
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_rbm(path: str | os.PathLike[str]) -> SavedRBM:
    """Read a file of :func:`save_rbm`.

    :raises ValueError: if it is missing, damaged or another kind of file.
    """
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as content:
            if "format" not in content or str(content["format"]) not in (_FORMAT, _FORMAT_OF_FAMILIES):
                raise ValueError(f"{path} is not an RBM saved by save_rbm; give the rbm.npz of a run.")
            saved = SavedRBM(
                _rbm(content),
                float(content["log_z"]),
                float(content["log_z_std"]),
                content["beta"],
                int(content["step"]),
            )
    except (OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as a saved RBM ({error}); check the path or copy it again.") from error
    check_rbm(saved.rbm)
    return saved


def from_description(description: Mapping[str, Any], precision: Any = None) -> Visible:
    """The family of :meth:`Visible.describe`; `precision` [n_v] is that of Gaussian units.

    :raises ValueError: if it is no such description.
    """
    try:
        match dict(description):
            case {"family": "bernoulli"}:
                return Bernoulli()
            case {"family": "spin"}:
                return Spin()
            case {"family": "softmax", "n_v": int(n_v), "groups": groups, "is_required": is_required}:
                columns = tuple(tuple(int(column) for column in group) for group in groups)
                return Softmax(n_v, columns, tuple(bool(required) for required in is_required))
            case {"family": "gaussian", "is_learnt": bool(is_learnt)} if precision is not None:
                return Gaussian(precision, is_learnt)
    except TypeError:
        pass
    raise ValueError(f"no family of visible units is described by {str(dict(description))[:200]}; save it again.")


def _parameters(rbm: RBM) -> dict[str, Any]:
    """What a file holds of the parameters."""
    stored = {"format": _FORMAT, "W": rbm.W.numpy(), "b": rbm.b.numpy(), "c": rbm.c.numpy()}
    if rbm.visible == Bernoulli():
        return stored
    stored |= {"format": _FORMAT_OF_FAMILIES, "visible": json.dumps(rbm.visible.describe())}
    own = tf.nest.flatten(rbm.visible)
    return stored | ({"precision": own[0].numpy()} if own else {})


def _rbm(content: Any) -> RBM:
    """The inverse of :func:`_parameters`."""
    W, b, c = (tf.constant(content[name]) for name in ("W", "b", "c"))
    if str(content["format"]) == _FORMAT:
        return RBM(W, b, c)
    precision = tf.constant(content["precision"]) if "precision" in content else None
    return RBM(W, b, c, from_description(json.loads(str(content["visible"])), precision))
