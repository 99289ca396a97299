"""Objects as JSON and arrays: the state of a model, whatever it is composed of. `stored_decoding` goes back.

An object that derives from `tf.Module` becomes its class and its attributes, which are all that training has changed
and predicting needs. Distributions, transforms and linear operators of TensorFlow record their constructors' arguments,
and become those. What is in several places is written once, and comes back as one object.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import math
import types
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional

from gpflow_deep_base.container import Arrays

from ..model.upstream import TRACKING_PREFIX, distribution_class
from . import stored_keras
from .stored_names import Refused, name_of_class, name_of_function

__all__ = [
    "BY_ARGUMENTS",
    "CONTAINERS",
    "LABORIOUS",
    "MAPPINGS",
    "NUMBERS_AND_TEXT",
    "TYPES",
    "Encoded",
    "check_attribute",
    "encode",
]

#: The kinds of NumPy types that an array may have; no objects.
NUMBERS_AND_TEXT = "biufcSU"

#: What records the arguments of its constructor in `parameters`.
BY_ARGUMENTS = (tfp.bijectors.Bijector, tfp.distributions.Distribution, tf.linalg.LinearOperator)

#: Those of them whose constructors do more work than their arguments are long.
LABORIOUS = (
    tfp.bijectors.BatchNormalization,
    tfp.bijectors.Glow,
    tfp.distributions.PixelCNN,
    tfp.distributions.PoissonLogNormalQuadratureCompound,
)

CONTAINERS = {kind.__name__: kind for kind in (tuple, set, frozenset)}
MAPPINGS = {kind.__name__: kind for kind in (dict, OrderedDict)}
TYPES = {kind.__name__: kind for kind in (bool, int, float, str)}


class Encoded(NamedTuple):
    """An object in pieces.

    :ivar node: JSON.
    :ivar arrays: by the names that it has in the JSON.
    :ivar named: classes and functions in it, by the names that they have in the JSON.
    """

    node: Any
    arrays: Arrays
    named: dict[str, Any]


def encode(root: Any, name: str) -> Encoded:
    """What `stored_decoding.decode` makes an equal object from.

    :param name: what errors call the object.
    :raises ValueError: if a part of it cannot be saved, naming the part.
    """
    encoder = _Encoder()
    try:
        node = encoder.node(root, name)
        if encoder.has_keras:  # once more, as variables of Keras layers may have been met before their layers
            encoder = _Encoder(encoder.weights)
            node = encoder.node(root, name)
        return Encoded(node, encoder.arrays, encoder.named)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply, or has a list in itself, so it cannot be saved.") from None


def check_attribute(cls: type, name: str) -> None:
    """Refuse what is no attribute of an object alone: special names, TensorFlow's, and properties of the class."""
    is_property = hasattr(_of_class(cls, name), "__set__")
    if not name.isidentifier() or name.startswith(("__", TRACKING_PREFIX)) or is_property:
        raise Refused(f"has {name!r} among the attributes of {cls.__name__}")


class _Encoder:
    """The objects that were met so far have numbers.

    :ivar weights: variables of Keras layers, by their ids: the layer, and the place among its variables.
    """

    def __init__(self, weights: dict[int, tuple[Any, int]] | None = None) -> None:
        self.arrays: Arrays = {}
        self.named: dict[str, Any] = {}
        self.weights = {} if weights is None else weights
        self.has_keras = False
        self._is_first = weights is None
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []  # keeps the objects alive, and so their ids theirs

    def node(self, value: Any, path: str) -> Any:
        """The JSON of a value."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if id(value) in self._numbers:
            return {"again": self._numbers[id(value)]}
        if id(value) in self.weights:
            layer, i = self.weights[id(value)]
            return {"weight": i, "is_tensorflow": isinstance(value, tf.Variable), "of": self.node(layer, path)}
        try:
            for part in (self._constant, self._container, self._array, self._callable, self._object):
                if (node := part(value, path)) is not None:
                    return node
            raise Refused(f"is of the class {type(value).__module__}.{type(value).__qualname__}")
        except Refused as error:
            raise ValueError(f"{path} {error}, so it cannot be saved.") from None

    def _number(self, value: Any) -> int:
        self._met.append(value)
        self._numbers[id(value)] = len(self._met)
        return len(self._met)

    def _class(self, cls: type) -> str:
        name = name_of_class(cls)
        self.named[name] = cls
        return name

    def _function(self, function: Any) -> str:
        name = name_of_function(function)
        self.named[name] = function
        return name

    def _items(self, values: Any, path: str) -> list[Any]:
        return [self.node(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _named(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {name: self.node(value, f"{path}.{name}") for name, value in values.items()}

    def _constant(self, value: Any, path: str) -> Any:
        match value:
            case np.generic() if value.dtype.kind in "biufU":
                return {"scalar": value.dtype.str, "value": self.node(value.item(), path)}
            case tf.DType():
                return {"dtype": value.name}
            case np.dtype():
                return {"numpy_dtype": value.str}
            case tf.TensorShape():
                return {"shape": None if value.rank is None else value.as_list()}
            case tf.name_scope():
                return {"name_scope": value.name}
            case enum.Enum():
                return {"enum": self._class(type(value)), "member": value.name}
            case slice() | range():
                return {type(value).__name__: self._items([value.start, value.stop, value.step], path)}
        return None

    def _container(self, value: Any, path: str) -> Any:
        kind = value.__class__  # that of a tuple which TensorFlow has wrapped is tuple
        if isinstance(value, list) and (kind is list or kind.__module__.startswith("tensorflow.")):
            return self._items(value, path)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": self._class(kind), "items": self._items(value, path)}
        if kind in CONTAINERS.values():
            items = self._items(value, path)
            return {kind.__name__: items if kind is tuple else sorted(items, key=json.dumps)}
        if kind in MAPPINGS.values():
            pairs = [[self.node(key, path), self.node(item, f"{path}[{key!r}]")] for key, item in value.items()]
            return {kind.__name__: pairs}
        return None

    def _array(self, value: Any, path: str) -> Any:
        node: dict[str, Any]
        if isinstance(value, tf.Variable):
            if getattr(value, "constraint", None) is not None:
                raise Refused("has a constraint, which no file can have: use a Parameter with a transform")
            node = {"variable": self._stored(value.numpy(), path), "trainable": bool(value.trainable)}
            node |= {"name": value.name.split(":")[0], "shape": self._constant(value.shape, path)["shape"]}
        elif isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
            node = {"tensor": self._stored(value.numpy(), path)}
        elif type(value) is np.ndarray:
            node = {"array": self._stored(value, path)}
        else:
            return None
        return {**node, "number": self._number(value)}

    def _stored(self, array: Any, path: str) -> str:
        array = np.asarray(array)
        if array.dtype.kind not in NUMBERS_AND_TEXT or array.dtype.names is not None:
            raise Refused(f"has elements of the type {array.dtype}")
        name = "".join(c if c.isascii() and (c.isalnum() or c in "_.[]") else "_" for c in path)
        while name in self.arrays:
            name += "_"
        self.arrays[name] = array
        return name

    def _callable(self, value: Any, path: str) -> Any:
        if isinstance(value, type):
            if issubclass(value, np.generic):
                return {"numpy_type": value.__name__}
            return {"type": value.__name__} if value in TYPES.values() else {"class": self._class(value)}
        if isinstance(value, functools.partial):
            return {"partial": self._items([value.func, list(value.args), dict(value.keywords)], path)}
        if isinstance(value, types.MethodType):
            if isinstance(value.__self__, BY_ARGUMENTS):
                return {"method": value.__name__, "of": self.node(value.__self__, path)}
            raise Refused(f"is the method {value.__qualname__}: keep the object itself, and call its method")
        if hasattr(value, "python_function"):
            raise Refused("is compiled by tf.function: delete it, and compile again after loading")
        return {"function": self._function(value)} if inspect.isroutine(value) else None

    def _object(self, value: Any, path: str) -> Any:
        # By the arguments of its constructor, by Keras, or by its attributes.
        if isinstance(value, BY_ARGUMENTS):
            return self._by_arguments(value, path)
        if stored_keras.is_layer(value):
            return self._keras(value, path)
        if stored_keras.is_variable(value) and self._is_first:
            self.has_keras = True
            return {}
        if not hasattr(value, "__dict__") or isinstance(value, types.ModuleType):
            return None
        node: dict[str, Any] = {"object": self._class(type(value)), "number": self._number(value)}
        if any(getattr(base, "__slots__", ()) for base in type(value).__mro__):
            raise Refused("has __slots__")
        state = {name: item for name, item in vars(value).items() if _is_state(type(value), name)}
        is_conditional = isinstance(value, HeteroskedasticTFPConditional)
        if is_conditional and (distribution := distribution_class(value)) is not None:
            node["distribution_class"] = self._class(distribution)
            del state["conditional_distribution"]
        for name in state:
            check_attribute(type(value), name)
        return {**node, "state": self._named(state, path)}

    def _by_arguments(self, value: Any, path: str) -> Any:
        name = self._class(type(value))
        if isinstance(value, LABORIOUS):
            raise Refused(f"is a {type(value).__name__}")
        if value.parameters is None:
            raise Refused(
                f"is a {type(value).__name__}, which does not say what made it: its constructor has to call "
                "super().__init__ with parameters=dict(locals())"
            )
        # Arguments, but for the object itself and functions that are defaults.
        defaults = {key: item.default for key, item in inspect.signature(type(value).__init__).parameters.items()}
        arguments = {
            key: item
            for key, item in value.parameters.items()
            if key != "__class__" and item is not value and not (callable(item) and item is defaults.get(key))
        }
        return {"made": name, "arguments": self._named(arguments, path), "number": self._number(value)}

    def _keras(self, value: Any, path: str) -> Any:
        config, weights, named = stored_keras.encode(value)
        self.named.update(named)
        self.has_keras = True
        # Each variable by its layer and its place there, as Keras and as TensorFlow have it.
        for i, weight in enumerate(weights):
            if self.weights.setdefault(id(weight), (value, i))[0] is not value:
                raise Refused("shares weights with another Keras layer of the model: keep one of them, and ask it")
            self.weights[id(weight.value)] = value, i
        names = [self._stored(weight.numpy(), f"{path}.weights[{i}]") for i, weight in enumerate(weights)]
        return {
            "keras": config,
            "weights": names,
            "trainable": [bool(weight.trainable) for weight in weights],
            "trained": [bool(weight.value.trainable) for weight in weights],
            "number": self._number(value),
        }


def _is_state(cls: Any, name: str) -> bool:
    """Whether neither the class nor TensorFlow makes the attribute again."""
    made_again = isinstance(_of_class(cls, name), functools.cached_property)
    return not name.startswith(TRACKING_PREFIX) and not made_again


@functools.lru_cache(1024)
def _of_class(cls: Any, name: str) -> Any:
    return inspect.getattr_static(cls, name, None)
