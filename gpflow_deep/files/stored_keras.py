"""Keras 3 layers and models as JSON and arrays, and back: by Keras' own configurations, in its safe mode.

Keras alone would import what a configuration names, read files for some layers and allocate what the layers ask for.
So before Keras sees it, a configuration may only name Keras' layers that compute from their inputs alone, and what
`stored_names` finds; and a weight may only have a shape that one of the stored arrays has.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gpflow_deep_base.storage.limits import one_line

from ..model.upstream import take_variable
from .stored_names import Named, Refused, find, looked_up, written

if TYPE_CHECKING:
    import keras

__all__ = ["decode", "encode", "is_layer", "is_variable"]

_PUBLIC = frozenset({"keras", "keras.layers", "keras.models", "keras.src.models.functional"}) | {
    f"keras.{part}" for part in ("activations", "constraints", "initializers", "regularizers")
}
_OPERATIONS = frozenset(f"keras.src.ops.{part}" for part in ("linalg", "math", "nn", "numpy"))
_VALUES = frozenset({"__keras_tensor__", "__numpy__", "__slice__", "__tensor__"})

#: Where Keras defines what a file may name. Other layers read files, run other programs or Python code in bytes.
_SAFE = tuple(
    f"keras.src.{part}"
    for part in (
        *("activations", "constraints", "dtype_policies", "initializers", "models", "regularizers"),
        *("layers.activations", "layers.attention", "layers.convolutional", "layers.core", "layers.merging"),
        *("layers.normalization", "layers.pooling", "layers.regularization", "layers.reshaping", "layers.rnn"),
        *("layers.preprocessing.normalization", "layers.preprocessing.rescaling"),
    )
)

_DECORATOR = "@keras.saving.register_keras_serializable()"


def is_layer(value: object) -> bool:
    """Whether `value` is a layer or a model of Keras 3."""
    return "keras" in sys.modules and isinstance(value, sys.modules["keras"].Layer)


def is_variable(value: object) -> bool:
    """Whether `value` is a variable of Keras 3, which holds one of TensorFlow."""
    return "keras" in sys.modules and isinstance(value, sys.modules["keras"].Variable)


def encode(layer: keras.Layer) -> tuple[dict[str, Any], list[keras.Variable]]:
    """The configuration of a layer, and its variables, which are weights and seeds.

    :raises Refused: if Keras cannot write the configuration, or `decode` would not take it.
    """
    import keras

    if not layer.built:
        raise Refused("is a Keras layer that has no weights yet: call it once on some inputs")
    # What Keras says of it, as JSON.
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*lambda")
            config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer), allow_nan=False))
    except UserWarning as error:
        raise Refused(f"is a Keras layer with a lambda: use a function that is decorated by {_DECORATOR}") from error
    except (NotImplementedError, TypeError, ValueError) as error:
        raise Refused(f"is a Keras layer without a configuration ({one_line(error)})") from error
    # Nothing of training, and a module for every name.
    for part in _parts(config):
        part.pop("compile_config", None)
        if part.get("module", "") is None:  # what Keras writes for a class of the program itself
            part["module"] = "__main__"
    # Layers of the user's own, which `decode` has to be given, but for a copy here.
    names = [f"{part.get('module')}:{part['class_name']}" for part in _parts(config)]
    written.update({name: looked_up(name) for name in names if not name.startswith("keras.") and looked_up(name)})
    _custom_objects(config, written)
    return config, list(layer.variables)


def decode(
    config: dict[str, Any], values: Sequence[tf.Variable], trainable: Sequence[bool], given: Mapping[str, Named]
) -> keras.Layer:
    """The layer that `encode` wrote.

    :param values: TensorFlow's variables, which become those of the layer.
    :param trainable: of each of them, as Keras says.
    :param given: classes and functions by name, beside those that every file may name.
    :raises Refused: if the configuration names something else, or has other variables.
    """
    import keras

    custom_objects = _custom_objects(config, given)
    # A variable without a value of its shape is refused before it takes any memory.
    remaining = Counter(tuple(value.shape) for value in values)

    def creator(next_creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        shape, dtype = _spec(options["initial_value"])
        if remaining[shape] == 0:
            raise Refused(f"has a Keras layer with a variable of shape {list(shape)}, but no such array")
        remaining[shape] -= 1
        return next_creator(**{**options, "initial_value": tf.zeros(shape, dtype)})

    # The layer with zeros, whose variables have to be those of the file, in order.
    with tf.variable_creator_scope(creator):
        layer = keras.saving.deserialize_keras_object(deepcopy(config), custom_objects, safe_mode=True)
    kinds = [(tuple(value.shape), value.dtype) for value in values]
    if [(tuple(variable.shape), variable.value.dtype) for variable in layer.variables] != kinds:
        raise Refused("has a Keras layer with other variables than it has arrays")
    # The variables of the file in place of the zeros, which other parts of the model may have, too.
    for variable, value, is_trained in zip(layer.variables, values, trainable, strict=True):
        if variable.trainable != is_trained:
            variable.trainable = is_trained
        take_variable(variable, value)
    return layer


def _spec(initial_value: tf.Tensor | Callable[[], tf.Tensor]) -> tuple[tuple[int, ...], tf.DType]:
    """Shape and type of a variable before it is allocated."""
    if callable(initial_value):
        initial_value = tf.function(initial_value, autograph=False).get_concrete_function().structured_outputs
    return tuple(initial_value.shape.as_list()), initial_value.dtype


def _custom_objects(config: object, given: Mapping[str, Named]) -> dict[str, Named]:
    """What Keras needs beside its own, under all names by which it may look, and under "module:name".

    :raises Refused: if the configuration names what a file may not name.
    """
    import keras

    objects = {}
    for part in _parts(config):
        # Of a function Keras keeps the name in another place.
        module = part.get("module")
        name = part["class_name"]
        registered = part.get("registered_name")
        if is_function := name == "function":
            name = registered = part.get("config")
        if not isinstance(name, str) or not isinstance(module, str | None):
            raise Refused("has a Keras layer with a part that has no name")
        # Keras' own parts need nothing.
        if name in _VALUES or module in _OPERATIONS or (_is_safe(module, name) and registered in (None, name)):
            continue
        # Nor are other parts of Keras ever to be had, whoever gives them.
        if f"{module}.".startswith(("None.", "keras.")) or name.startswith("__"):
            raise Refused(f"has the Keras part {module}.{name}, which no file may have")
        # Others by any of their names, from the caller or from what the program has registered.
        keys = [f"{module}:{name}", str(registered), name]
        things = [given.get(key) for key in keys] + [keras.saving.get_registered_object(str(registered))]
        thing = next((thing for thing in things if thing is not None), None)
        if thing is None and is_function:
            raise Refused(f"has a Keras layer with the function {name}: decorate it by {_DECORATOR}, and import it")
        objects.update(dict.fromkeys(keys, find(keys[0], given) if thing is None else thing))
    return objects


def _is_safe(module: str | None, name: str) -> bool:
    thing = getattr(sys.modules.get(module), name, None) if module in _PUBLIC else None
    home = getattr(thing, "__module__", "")
    return name != "Lambda" and any(f"{home}.".startswith(f"{safe}.") for safe in _SAFE)


def _parts(config: object) -> Iterator[dict[str, Any]]:
    """All that names a class or a function, at any depth."""
    if isinstance(config, dict):
        if "class_name" in config:
            yield config
        for item in config.values():
            yield from _parts(item)
    elif isinstance(config, list):
        for item in config:
            yield from _parts(item)
