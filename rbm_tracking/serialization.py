"""A trained RBM with its log Z in one .npz file."""

import os
import uuid
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rbm_tracking.checks import check_rbm
from rbm_tracking.rbm import RBM

__all__ = ["SavedRBM", "load_rbm", "save_rbm"]

_FORMAT = "rbm_tracking 1"


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
                format=_FORMAT,
                **{name: np.asarray(value) for name, value in saved.rbm._asdict().items()},
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
            if "format" not in content or str(content["format"]) != _FORMAT:
                raise ValueError(f"{path} is not an RBM saved by save_rbm; give the rbm.npz of a run.")
            rbm = RBM(*(tf.constant(content[name]) for name in RBM._fields))
            saved = SavedRBM(
                rbm, float(content["log_z"]), float(content["log_z_std"]), content["beta"], int(content["step"])
            )
    except (OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as a saved RBM ({error}); check the path or copy it again.") from error
    check_rbm(saved.rbm)
    return saved
