"""Parts of GPs as text, for Keras' configurations: the encoding of `save_model`, with the arrays in the same text.

No pickle: a text names classes and functions, which `stored_names` looks up, and the memory that decoding takes is in
proportion to the text's length. Kernels and others of your own are registered by
`@keras.saving.register_keras_serializable()`, or given to `keras.models.load_model(path, custom_objects={...})`.
"""

from __future__ import annotations

import base64
import json
from typing import Any, TypeAlias

import keras
import numpy as np

from gpflow_deep_base.storage.limits import one_line

from ..files.stored_names import written
from ..files.stored_objects import decode, encode, plain_dtype

__all__ = ["Config", "from_text", "to_text"]

Config: TypeAlias = dict[str, Any]
"""What Keras keeps of a layer or a loss, as JSON has it."""


def to_text(part: object, name: str) -> str:
    """A kernel, likelihood or another part of a GP as JSON.

    :param name: what errors call it.
    :raises ValueError: if it cannot be saved, naming what of it.
    """
    # The structure, and beside it the arrays that it names.
    node, arrays = encode(part, name)
    stored = {key: [array.dtype.str, array.shape, _base64(array)] for key, array in arrays.items()}
    return json.dumps({"part": node, "arrays": stored}, allow_nan=False, separators=(",", ":"))


def from_text(text: str, name: str) -> Any:
    """What `to_text` wrote, as a new object.

    :raises ValueError: if the text is damaged, or names what is neither imported nor given.
    """
    try:
        content = json.loads(text)
        arrays = {key: _array(*stored) for key, stored in content["arrays"].items()}
        return decode(content["part"], arrays, _Registered())
    except Exception as error:  # of constructors of TensorFlow, with arguments of whoever made the text
        raise ValueError(f"the stored {name} cannot be read: it {one_line(error, 1000)}.") from error


class _Registered(dict[str, Any]):
    """What Keras knows by a name, or has written itself, as for a clone; in the place of custom objects."""

    def get(self, name: str, default: object = None) -> object:
        # A registered name; or that of a class which is registered by another.
        given = keras.saving.get_registered_object(name)
        registered = {thing.__qualname__: thing for thing in keras.saving.get_custom_objects().values()}
        return registered.get(name, written.get(name, default)) if given is None else given


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _array(kind: str, shape: list[int], content: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(content, validate=True), plain_dtype(kind)).reshape(shape).copy()
