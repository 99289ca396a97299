"""Objects from JSON and arrays: the way back from `stored_encoding`.

No constructor of a model's parts is called: they get their attributes. Only distributions, transforms and linear
operators are made by their constructors, and Keras layers by Keras.

A few bytes can ask a constructor for much: a column and a row that are compared with each other, a chain of two chains
of two chains. So what its arguments may take, if all are broadcast, and of how many parts they consist, if what is
shared is counted as often as it is met, is reckoned before it is called, for all constructors together.
"""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional

from gpflow_deep_base.container import Arrays
from gpflow_deep_base.limits import budget_of

from . import stored_keras
from .stored_encoding import (
    BY_ARGUMENTS,
    CONTAINERS,
    LABORIOUS,
    MAPPINGS,
    NUMBERS_AND_TEXT,
    TYPES,
    check_attribute,
)
from .stored_names import Refused, find_class, find_function, of_given

__all__ = ["decode"]

_NOTHING = object()

#: Of all constructors together, parts that may be met: so many, and so many for each constructor in the file.
_FREE_PARTS = 20_000
_PARTS_PER_CONSTRUCTOR = 3

_BYTES_PER_NUMBER = 8


class _Extent(NamedTuple):
    """What a value asks of the constructor that has it among its arguments.

    :ivar num_parts: made by constructors, each as often as it is met.
    :ivar shape: that all its arrays have if they are broadcast, or a larger one.
    """

    num_parts: int
    shape: tuple[int, ...]

    @classmethod
    def of_all(cls, extents: Iterable[_Extent]) -> _Extent:
        """Of several values, which may be broadcast against one another."""
        num_parts = 0
        shape = tuple[int, ...]()
        for extent in extents:
            num_parts += extent.num_parts
            pairs = itertools.zip_longest(reversed(shape), reversed(extent.shape), fillvalue=1)
            shape = tuple(max(pair) for pair in pairs)[::-1]
        return cls(num_parts, shape)


def decode(node: Any, arrays: Arrays, given: Mapping[str, Any], *, max_bytes: int | None = None) -> Any:
    """The object that `stored_encoding.encode` wrote.

    :param given: classes and functions by name, beside those that every file may name.
    :param max_bytes: that constructors of distributions, transforms and linear operators may take together; None:
        100 MB and three times what the arrays have.
    :raises Refused: if a class or function may not be named, the structure is damaged, or it would take more. A damaged
        structure may also raise what TensorFlow's constructors do.
    """
    decoder = _Decoder(arrays, given, max_bytes)
    root = decoder.value(node)
    if unused := sorted(arrays.keys() - decoder.used):
        raise Refused(f"has arrays that its structure does not use: {', '.join(unused)}")
    return root


class _Decoder:
    """`used` are the names of the arrays that the objects so far needed."""

    def __init__(self, arrays: Arrays, given: Mapping[str, Any], max_bytes: int | None) -> None:
        self.used: set[str] = set()
        self._arrays = arrays
        self._given = given
        self._made: dict[int, Any] = {}  # keeps the objects alive, and so their ids theirs
        self._budget = budget_of(sum(array.nbytes for array in arrays.values()), max_bytes)
        self._extents: dict[int, _Extent] = {}  # of what was made by a constructor, by its id
        self._num_parts = 0

    def value(self, node: Any) -> Any:
        """The object of a node."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        for part in (self._constant, self._container, self._array, self._callable, self._object):
            if (decoded := part(node)) is not _NOTHING:
                return decoded
        raise Refused(f"has an unknown part in its structure: {', '.join(map(repr, [*node][:3]))}")

    def _numbered(self, number: int, made: Any) -> Any:
        if number in self._made:
            raise Refused(f"has two objects with the number {number}")
        self._made[number] = made
        return made

    def _constant(self, node: dict[str, Any]) -> Any:
        match node:
            # What was met before, by its number.
            case {"again": int(number)}:
                if number not in self._made:
                    raise Refused(f"has no object with the number {number} where it is needed")
                return self._made[number]
            # Numbers and types.
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
                numbers = range(*map(self.value, (start, stop, step)))
                self._take((len(numbers),), "a range")
                return numbers
        return _NOTHING

    def _container(self, node: dict[str, Any]) -> Any:
        match node:
            case {"namedtuple": str(name), "items": [*items]}:
                return tuple.__new__(find_class(name, self._given), map(self.value, items))
        for name, content in node.items():
            if name in CONTAINERS:
                items = [self.value(item) for item in content]
                return CONTAINERS[name](items if name == "tuple" else _hashed(items))
            if name in MAPPINGS:
                keys = _hashed([self.value(key) for key, _ in content])
                return MAPPINGS[name](zip(keys, (self.value(item) for _, item in content), strict=True))
        return _NOTHING

    def _array(self, node: dict[str, Any]) -> Any:
        match node:
            case {"variable": str(array), "trainable": bool(trainable), "name": str(name), "number": int(number)}:
                shape = tf.TensorShape(node["shape"])
                decoded = tf.Variable(self._stored(array), trainable=trainable, name=name, shape=shape)
            case {"tensor": str(array), "number": int(number)}:
                decoded = tf.constant(self._stored(array))
            case {"array": str(array), "number": int(number)}:
                decoded = self._stored(array)
            case _:
                return _NOTHING
        return self._numbered(number, decoded)

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
            # A method of what is made by arguments.
            case {"method": str(name), "of": of}:
                value = self.value(of)
                is_method = inspect.isfunction(inspect.getattr_static(type(value), name, None))
                if not isinstance(value, BY_ARGUMENTS) or name.startswith("_") or not is_method:
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
                # By its attributes, without its constructor.
                instance = self._numbered(number, object.__new__(find_class(name, self._given)))
                if "distribution_class" in node and isinstance(instance, HeteroskedasticTFPConditional):
                    distribution = find_class(node["distribution_class"], self._given, tfp.distributions.Distribution)
                    HeteroskedasticTFPConditional.__init__(instance, distribution)
                self._fill(instance, state)
                return instance
            case {"made": str(name), "arguments": dict(arguments), "number": int(number)}:
                # By its constructor.
                cls = find_class(name, self._given)
                if not _is_made_by_arguments(cls):
                    raise Refused(f"has an object of the class {cls.__name__} with arguments")
                return self._numbered(number, self._construct(cls, arguments))
            case {"weight": int(i), "is_tensorflow": bool(is_tensorflow), "of": of}:
                variable = self.value(of).variables[i]
                return variable.value if is_tensorflow else variable
            case {"keras": dict(config), "weights": [*names], "trainable": [*trainable], "number": int(number)}:
                weights = [self._stored(array) for array in names]
                layer = stored_keras.decode(config, weights, trainable, self._given, node.get("trained"))
                return self._numbered(number, layer)
        return _NOTHING

    def _construct(self, cls: type, arguments: dict[str, Any]) -> Any:
        """An object of a class from the nodes of its arguments."""
        values = {key: self.value(item) for key, item in arguments.items()}
        inside = _Extent.of_all(map(self._extent, values.values()))
        extent = _Extent(1 + inside.num_parts, inside.shape)
        # Both are compared before the constructor is called, which may walk through all parts and broadcast all arrays.
        self._num_parts += extent.num_parts
        if self._num_parts > _FREE_PARTS + _PARTS_PER_CONSTRUCTOR * (1 + len(self._extents)):
            raise Refused(f"has a {cls.__name__} with the same parts over and over, {extent.num_parts} in all")
        self._take(extent.shape, f"a {cls.__name__}")
        instance = cls(**values)
        self._extents[id(instance)] = extent
        return instance

    def _extent(self, value: Any) -> _Extent:
        """What a value among the arguments of a constructor asks for."""
        if id(value) in self._extents:
            return self._extents[id(value)]
        if isinstance(value, dict):
            return _Extent.of_all(map(self._extent, value.values()))
        if isinstance(value, range):
            return _Extent(0, (len(value),))
        if isinstance(value, list | tuple | set | frozenset):
            inside = _Extent.of_all(map(self._extent, value))
            return _Extent(inside.num_parts, (len(value), *inside.shape))
        if isinstance(value, tf.Variable):
            return _Extent(0, tuple(value.numpy().shape))  # it may say of itself that its shape is not known
        if isinstance(value, np.ndarray | tf.Tensor | tfp.util.TransformedVariable):
            return _Extent(0, tuple(value.shape))
        return _Extent(0, ())

    def _take(self, shape: tuple[int, ...], what: str) -> None:
        try:
            self._budget.take(_BYTES_PER_NUMBER * math.prod(shape), f"has {what}, which")
        except ValueError as error:
            raise Refused(str(error)) from error

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


def _hashed(items: list[Any]) -> list[Any]:
    """The same items, unless they are numbers that were chosen to be hard to find in a set or dictionary."""
    if len({hash(item) for item in items}) < len(items) // 2:
        raise Refused("has a set or dictionary of items with few different hashes")
    return items


def _dtype(text: str) -> np.dtype:
    dtype = np.dtype(text)
    if dtype.kind not in NUMBERS_AND_TEXT or dtype.names is not None:
        raise Refused(f"has the type {text!r}")
    return dtype
