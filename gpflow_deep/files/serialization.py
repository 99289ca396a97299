"""A deep GP in one file, whatever it is composed of.

    save_model(model, "model.npz")
    model = load_model("model.npz")

The loaded model predicts as the saved one, bit for bit, and can be trained further; it needs no training data. Kept are
all parts and settings, values, transforms, priors, which parameters are trainable and which are shared. Kernels,
likelihoods and other classes of the user's own are kept by name, and given when the model is loaded:

    model = load_model("model.npz", custom_objects=[MyKernel])

A file runs no code: it has no pickled objects, imports nothing, calls no constructors of parts, and names only what
`stored_names` finds. The memory that loading takes is in proportion to the file's length, or it is refused.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import gpflow
import tensorflow_probability as tfp

from gpflow_deep_base.files import write_bytes
from gpflow_deep_base.storage.container import Arrays, container_bytes, load_container
from gpflow_deep_base.storage.limits import one_line

from ..layers.moments import jitter_of
from ..model.deep_gp import DeepGP
from .stored_names import CustomObjects, Named, Refused, given_names, written
from .stored_objects import Encoded, decode, encode

__all__ = ["check_savable", "load_model", "save_model"]

#: What a file is, and the version of its content.
_KIND = "a deep GP"
_VERSION = 5

#: Of the packages whose objects a file describes by attributes, which may change.
_VERSIONS = {"gpflow": gpflow.__version__, "tensorflow_probability": tfp.__version__}


def save_model(model: DeepGP, path: str | os.PathLike[str]) -> None:
    """Write a model to an .npz file, whole or not at all.

    Whatever trains and predicts can be saved, but for: lambdas and functions inside functions, methods (but those of
    transforms and distributions), functions that `tf.function` has compiled, Keras 2, open files and other things of
    the moment. `check_savable` tells before training.

    :param path: file to write; it should end in .npz.
    :raises ValueError: if the model has a part that cannot be saved, naming it. Nothing is written then.
    """
    write_bytes(path, _content(model))


def check_savable(model: DeepGP) -> None:
    """Make sure, before a model is trained, that `save_model` will save it; takes as long as saving.

    :raises ValueError: as `save_model`.
    """
    _content(model)


def load_model(
    path: str | os.PathLike[str], *, custom_objects: CustomObjects = (), max_bytes: int | None = None
) -> DeepGP:
    """Build the model that `save_model` wrote.

    :param custom_objects: classes and functions of your own that the model has. A mapping {"module:Name": thing} gives
        those which had other names when the model was saved.
    :param max_bytes: that the arrays of the file may take; None: 100 MB and three times the file's length.
    :raises ValueError: in one line, if the file is missing or damaged, is no saved model, names what is not given
        (saying what), would take more memory, or has another float type than GPflow's current default (call
        `gpflow.config.set_default_float` first).
    """
    named = given_names(custom_objects)
    _, structure, arrays = load_container(path, kind=_KIND, versions=(_VERSION,), max_bytes=max_bytes)
    _check_settings(path, structure)
    # A file can describe any object; a model is asked for.
    model = _decoded(structure.get("model"), arrays, named, str(path))
    if not isinstance(model, DeepGP):
        raise ValueError(f"{path} must have a DeepGP, got {type(model).__name__}; it was not written by save_model.")
    if structure["jitter"] != gpflow.default_jitter():
        _keep_jitter(model, structure["jitter"])
    return model


def _keep_jitter(model: DeepGP, jitter: float) -> None:
    """Layers without a jitter of their own get what they were saved with, whatever GPflow's is now."""
    with gpflow.config.as_context(gpflow.config.Config(jitter=jitter)):
        for layer in model.layers:
            # Of a layer of images the GP of patches; layers without inducing outputs have no jitter.
            gps = getattr(layer, "gp", layer)
            outputs = getattr(gps, "q_mu", getattr(gps, "pseudo_outputs", None))
            if hasattr(gps, "jitter") and outputs is not None:
                gps.jitter = jitter_of(gps, int(outputs.shape[0]), outputs.dtype)


def _content(model: DeepGP) -> bytes:
    """The file of a model, after a copy made from it has shown that nothing is lost."""
    if not isinstance(model, DeepGP):
        raise ValueError(f"the model must be a DeepGP, got {type(model).__name__}.")
    content, encoded = _written(model)
    # A copy has to make the same file.
    try:
        copy = _decoded(encoded.node, encoded.arrays, written, "the model")
    except ValueError as error:
        raise ValueError(f"the model cannot be saved, because its copy could not be made: {error}") from error
    if _written(copy)[0] != content:
        raise ValueError("the model cannot be saved: a part of it comes back as something else than its attributes.")
    return content


def _written(model: DeepGP) -> tuple[bytes, Encoded]:
    encoded = encode(model, "model")
    structure = {
        "float": gpflow.default_float().__name__,
        "jitter": float(gpflow.default_jitter()),
        "versions": _VERSIONS,
        "model": encoded.node,
    }
    return container_bytes(kind=_KIND, version=_VERSION, header=structure, arrays=encoded.arrays), encoded


def _decoded(node: object, arrays: Arrays, given: Mapping[str, Named], what: str) -> Any:
    try:
        return decode(node, arrays, given)
    except Exception as error:  # of constructors of TensorFlow and Keras, with arguments of whoever made the file
        if (refused := _refused(error)) is not None:
            raise ValueError(f"{what} {one_line(refused, 1000)}.") from error
        reason = one_line(f"{type(error).__name__}: {error}")
        raise ValueError(f"{what} has a damaged structure ({reason}); save the model again.") from error


def _refused(error: BaseException | None) -> Refused | None:
    """The reason that Keras may have wrapped."""
    return error if error is None or isinstance(error, Refused) else _refused(error.__context__)


def _check_settings(path: str | os.PathLike[str], structure: Mapping[str, object]) -> None:
    """Refuse another float type; warn of other versions, with which predictions may differ."""
    # Without these it was written by something else.
    float_type, jitter, versions = (structure.get(key) for key in ("float", "jitter", "versions"))
    if not isinstance(versions, dict) or not isinstance(jitter, float) or float_type not in ("float32", "float64"):
        raise ValueError(f"{path} is damaged (it has no settings); save the model again.")
    # Parameters are as precise as they were saved.
    if float_type != gpflow.default_float().__name__:
        raise ValueError(
            f"{path} has a {float_type} model, but GPflow's default is {gpflow.default_float().__name__}; call "
            f"gpflow.config.set_default_float(np.{float_type}) first."
        )
    # Versions are compared by their first two numbers.
    differences = [
        f"{package} {one_line(versions.get(package))} (here {here})"
        for package, here in _VERSIONS.items()
        if str(versions.get(package)).split(".")[:2] != here.split(".")[:2]
    ]
    if differences:
        warnings.warn(
            f"{path} was saved with {' and '.join(differences)}; predictions may differ from the saved model's.",
            stacklevel=3,
        )
