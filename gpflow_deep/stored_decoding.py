"""Objects from JSON and arrays: the way back from `stored_encoding`.

No constructor of a model's parts is called: they get their attributes. Only distributions, transforms and linear
operators are made by their constructors, and Keras layers by Keras.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional

from . import stored_keras
from .stored_arrays import NUMBERS_AND_TEXT, Arrays
from .stored_encoding import BY_ARGUMENTS, CONTAINERS, LABORIOUS, MAPPINGS, TYPES, check_attribute
from .stored_names import Refused, find_class, find_function, of_given

__all__ = ["decode"]

_NOTHING = object()


def decode(node: Any, arrays: Arrays, given: Mapping[str, Any]) -> Any:
    """The object that `stored_encoding.encode` wrote.

    :param given: classes and functions by name, beside those that every file may name.
    :raises Refused: if a class or function may not be named, or the structure is damaged. A damaged structure may
        also raise what TensorFlow's constructors do.
    """
    decoder = _Decoder(arrays, given)
    root = decoder.value(node)
    if unused := sorted(arrays.keys() - decoder.used):
        raise Refused(f"has arrays that its structure does not use: {', '.join(unused)}")
    return root


class _Decoder:
    """`used` are the names of the arrays that the objects so far needed."""

    def __init__(self, arrays: Arrays, given: Mapping[str, Any]) -> None:
        self.used: set[str] = set()
        self._arrays, self._given = arrays, given
        self._made: dict[int, Any] = {}

    def value(self, node: Any) -> Any:
        """The object of a node."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        for part in (self._constant, self._container, self._array, self._callable, self._object):
            if (made := part(node)) is not _NOTHING:
                return made
        raise Refused(f"has an unknown part in its structure: {', '.join(map(repr, [*node][:3]))}")

    def _numbered(self, number: int, made: Any) -> Any:
        if number in self._made:
            raise Refused(f"has two objects with the number {number}")
        self._made[number] = made
        return made

    def _constant(self, node: dict[str, Any]) -> Any:
        match node:
            case {"again": int(number)}:
                if number not in self._made:
                    raise Refused(f"has no object with the number {number} where it is needed")
                return self._made[number]
            case {"float": str(text)}:
                return float(text)
            case {"scalar": str(text), "value": value}:
                return _dtype(text).type(self.value(value))
            case {"dtype": str(name)}:
                return tf.as_dtype(name)
            case {"numpy_dtype": str(text)}:
                return _dtype(text)
            case {"shape": [*_] | None as shape, **others} if not others:
                return tf.TensorShape(shape)
            case {"name_scope": str(name)}:
                return tf.name_scope(name)
            case {"enum": str(name), "member": str(member)}:
                kind: Any = find_class(name, self._given, enum.Enum)
                return kind.__members__[member]
            case {"slice": [start, stop, step]}:
                return slice(*map(self.value, (start, stop, step)))
            case {"range": [start, stop, step]}:
                return range(*map(self.value, (start, stop, step)))
        return _NOTHING

    def _container(self, node: dict[str, Any]) -> Any:
        match node:
            case {"namedtuple": str(name), "items": [*items]}:
                return tuple.__new__(find_class(name, self._given), map(self.value, items))
        for name, content in node.items():
            if name in CONTAINERS:
                return CONTAINERS[name](map(self.value, content))
            if name in MAPPINGS:
                return MAPPINGS[name]((self.value(key), self.value(item)) for key, item in content)
        return _NOTHING

    def _array(self, node: dict[str, Any]) -> Any:
        match node:
            case {"variable": str(array), "trainable": bool(trainable), "name": str(name), "number": int(number)}:
                shape = tf.TensorShape(node["shape"])
                made = tf.Variable(self._stored(array), trainable=trainable, name=name, shape=shape)
            case {"tensor": str(array), "number": int(number)}:
                made = tf.constant(self._stored(array))
            case {"array": str(array), "number": int(number)}:
                made = self._stored(array)
            case _:
                return _NOTHING
        return self._numbered(number, made)

    def _stored(self, name: str) -> np.ndarray:
        if name not in self._arrays or name in self.used:
            raise Refused(f"needs the array {name} once more than it has it")
        self.used.add(name)
        return self._arrays[name]

    def _callable(self, node: dict[str, Any]) -> Any:
        match node:
            case {"numpy_type": str(name)}:
                return _dtype(name).type
            case {"type": str(name)}:
                return TYPES[name]
            case {"class": str(name)}:
                return self._class(name)
            case {"function": str(name)}:
                return find_function(name, self._given)
            case {"partial": [function, arguments, options]}:
                return functools.partial(self.value(function), *self.value(arguments), **self.value(options))
            case {"method": str(name), "of": of}:
                value = self.value(of)
                if not isinstance(value, BY_ARGUMENTS) or name.startswith("_"):
                    raise Refused(f"has the method {name} of an object of the class {type(value).__name__}")
                return getattr(value, name)
        return _NOTHING

    def _class(self, name: str) -> type:
        """A class as a value: what has it may call it with anything, as a link function, say."""
        cls = find_class(name, self._given)
        if of_given(name, self._given) is None and not _is_made_by_arguments(cls):
            raise Refused(
                f"has the class {name.replace(':', '.')} as a value: if you trust it, give it, "
                f"load_model(path, custom_objects=[{cls.__name__}])"
            )
        return cls

    def _object(self, node: dict[str, Any]) -> Any:
        match node:
            case {"object": str(name), "state": dict(state), "number": int(number)}:
                made = self._numbered(number, object.__new__(find_class(name, self._given)))
                if "distribution_class" in node and isinstance(made, HeteroskedasticTFPConditional):
                    distribution = find_class(node["distribution_class"], self._given, tfp.distributions.Distribution)
                    HeteroskedasticTFPConditional.__init__(made, distribution)
                self._fill(made, state)
                return made
            case {"made": str(name), "arguments": dict(arguments), "number": int(number)}:
                cls = find_class(name, self._given)
                if not _is_made_by_arguments(cls):
                    raise Refused(f"has an object of the class {cls.__name__} with arguments")
                return self._numbered(number, cls(**{key: self.value(item) for key, item in arguments.items()}))
            case {"weight": int(i), "is_tensorflow": bool(is_tensorflow), "of": of}:
                variable = self.value(of).variables[i]
                return variable.value if is_tensorflow else variable
            case {"keras": dict(config), "weights": [*names], "trainable": [*trainable], "number": int(number)}:
                weights = [self._stored(array) for array in names]
                layer = stored_keras.decode(config, weights, trainable, self._given, node.get("trained"))
                return self._numbered(number, layer)
        return _NOTHING

    def _fill(self, made: Any, state: dict[str, Any]) -> None:
        set_attribute = tf.Module.__setattr__ if isinstance(made, tf.Module) else object.__setattr__
        for name, item in state.items():
            check_attribute(type(made), name)
            set_attribute(made, name, self.value(item))
        if isinstance(made, tfp.util.TransformedVariable):
            shape = made.bijector.forward_event_shape(made.pretransformed_input.shape)
            if not shape.is_compatible_with(made.shape):
                raise Refused(f"has a parameter of shape {made.shape} with a value of shape {shape}")


def _is_made_by_arguments(cls: type) -> bool:
    return issubclass(cls, BY_ARGUMENTS) and not issubclass(cls, LABORIOUS)


def _dtype(text: str) -> np.dtype:
    dtype = np.dtype(text)
    if dtype.kind not in NUMBERS_AND_TEXT or dtype.names is not None:
        raise Refused(f"has the type {text!r}")
    return dtype
