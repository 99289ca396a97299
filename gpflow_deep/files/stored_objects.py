"""Objects as JSON and arrays, and back: the state of a model, whatever it is composed of.

An object becomes its class and its attributes, which are all that training has changed and predicting needs; no
constructor is called when it comes back, so that what a file takes is in proportion to its length. Keras layers become
what Keras says of them. All other values are rows of two tables, or names of classes and functions. Variables, arrays
and objects that are in several places are written once, and come back as one.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional

from gpflow_deep_base.storage.container import Arrays

from ..model.upstream import TRACKING_PREFIX, distribution_class
from . import stored_keras
from .stored_names import OF_TENSORFLOW, Named, Refused, check_names, door, find, name_of, of_given

if TYPE_CHECKING:
    import keras

__all__ = ["Encoded", "decode", "encode", "plain_dtype"]

Value = TypeVar("Value")

_MAPPINGS = {"dict": dict, "ordered": OrderedDict}

#: How draws of a distribution depend on its parameters: two objects, of which TensorFlow asks for these themselves.
_REPARAMETERIZATIONS = {
    "full": tfp.distributions.FULLY_REPARAMETERIZED,
    "not": tfp.distributions.NOT_REPARAMETERIZED,
}


def plain_dtype(text: str) -> np.dtype:
    """The NumPy type of a name, of numbers or text alone.

    :raises Refused: if it is another one.
    """
    dtype = np.dtype(text)
    if dtype.kind not in "biufcSU" or dtype.names is not None:
        raise Refused(f"has the type {text!r}")
    return dtype


def _distinct(items: Iterable[object]) -> list[object]:
    """The same items, unless they are chosen to be hard to find in a set or dictionary."""
    # Equality of plain values calls no code of a file's objects, and many equal hashes would take for ever.
    items = list(items)
    if not _is_plain(tuple(items)):
        raise Refused("has a set or dictionary of other items than numbers and texts")
    if len({hash(item) for item in items}) < len(items) // 2:
        raise Refused("has a set or dictionary of items with few different hashes")
    return items


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, np.generic, enum.Enum, type, tf.DType))


class _Kind(NamedTuple):
    """A class of values that are made of a few others.

    :ivar cls: the class.
    :ivar parts: what a value is made of.
    :ivar make: the value from its parts.
    :ivar types: of the parts, where `make` would do more with others than raise an error: a range may be long.
    """

    cls: type
    parts: Callable[[Any], Iterable[object]]
    make: Callable[..., object]
    types: Sequence[type | tuple[type, ...]] = ()


def _of_variable(variable: tf.Variable) -> list[object]:
    if getattr(variable, "constraint", None) is not None:
        raise Refused("has a constraint, which no file can have: use a Parameter with a transform")
    return [variable.numpy(), bool(variable.trainable), variable.name.split(":")[0], variable.shape]


def _of_method(method: types.MethodType) -> list[object]:
    if not isinstance(method.__self__, OF_TENSORFLOW):
        raise Refused(f"is the method {method.__qualname__}: keep the object itself, and call its method")
    return [method.__self__, method.__name__]


def _method(value: object, name: str) -> object:
    """A method of a transform or prior."""
    is_method = inspect.isfunction(inspect.getattr_static(type(value), name, None))
    if not isinstance(value, OF_TENSORFLOW) or name.startswith("_") or not is_method:
        raise Refused(f"has the method {name} of an object of the class {type(value).__name__}")
    return getattr(value, name)


_TENSORS = (types.NoneType, tf.Tensor, tf.Variable, tf.Module)

#: What has an array, the first of its parts, and comes back as one object where it is in several places.
_ARRAYS = {
    "array": _Kind(np.ndarray, lambda x: [x], lambda array: array),
    "tensor": _Kind(tf.Tensor, lambda x: [x.numpy()], tf.constant),
    "variable": _Kind(
        tf.Variable,
        _of_variable,
        lambda array, trainable, name, shape: tf.Variable(array, trainable=trainable, name=name, shape=shape),
    ),
}

_KINDS = {
    "scalar": _Kind(
        np.generic,
        lambda x: [x.dtype.str, x.item()],
        lambda kind, value: plain_dtype(kind).type(value),
        (str, (bool, int, float, str)),
    ),
    "float": _Kind(float, lambda x: [str(x)], float),
    "enum": _Kind(enum.Enum, lambda x: [type(x), x.name], lambda cls, name: cls.__members__[name]),
    "tuple": _Kind(tuple, list, lambda *items: items),
    "set": _Kind(set, lambda x: sorted(x, key=repr), lambda *items: set(_distinct(items))),
    "frozenset": _Kind(frozenset, lambda x: sorted(x, key=repr), lambda *items: frozenset(_distinct(items))),
    "slice": _Kind(slice, lambda x: [x.start, x.stop, x.step], slice),
    "range": _Kind(range, lambda x: [x.start, x.stop, x.step], range),
    "dtype": _Kind(tf.DType, lambda x: [x.name], tf.as_dtype),
    "numpy_dtype": _Kind(np.dtype, lambda x: [x.str], plain_dtype),
    "shape": _Kind(
        tf.TensorShape,
        lambda x: [None if x.rank is None else x.as_list()],
        tf.TensorShape,
        ((list, types.NoneType),),
    ),
    "name_scope": _Kind(tf.name_scope, lambda x: [x.name], tf.name_scope),
    "draws": _Kind(
        tfp.distributions.ReparameterizationType,
        lambda x: [key for key, kind in _REPARAMETERIZATIONS.items() if kind is x],
        _REPARAMETERIZATIONS.__getitem__,
    ),
    "soft_clip": _Kind(  # of closures that its constructor makes
        tfp.bijectors.SoftClip,
        lambda x: [x.low, x.high, x.hinge_softness, x.name],
        lambda low, high, softness, name: tfp.bijectors.SoftClip(low, high, softness, name=name),
        (_TENSORS, _TENSORS, _TENSORS, str),
    ),
    "method": _Kind(types.MethodType, _of_method, _method),
    "partial": _Kind(
        functools.partial,
        lambda x: [x.func, list(x.args), dict(x.keywords)],
        lambda function, arguments, options: functools.partial(function, *arguments, **options),
        (object, list, dict),
    ),
}


class Encoded(NamedTuple):
    """An object in pieces.

    :ivar node: JSON.
    :ivar arrays: by the names that they have in the JSON.
    """

    node: object
    arrays: Arrays


def encode(root: object, name: str) -> Encoded:
    """What `decode` makes an equal object from.

    :param name: what errors call the object.
    :raises ValueError: if a part of it cannot be saved, naming the part.
    """
    encoder = _Encoder()
    try:
        return Encoded(encoder.node(root, name), encoder.arrays)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply, or has a list in itself, so it cannot be saved.") from None


def decode(node: object, arrays: Arrays, given: Mapping[str, Named]) -> Any:
    """The object that `encode` wrote.

    :param given: classes and functions by name, beside those that every file may name.
    :raises Refused: if a class or function may not be named, or the structure is damaged, which may also raise what
        constructors do.
    """
    check_names(_names(node), given)
    decoder = _Decoder(arrays, given)
    root = decoder.value(node)
    if unused := sorted(arrays.keys() - decoder.used):
        raise Refused(f"has arrays that its structure does not use: {', '.join(unused)}")
    return root


def _names(node: object) -> Iterator[str]:
    """Of classes and functions in a structure, but for Keras' own."""
    match node:
        case {"object": [str(name), dict(state), *_]}:
            yield name
            yield from _names(list(state.values()))
        case {"namedtuple": [str(name), items]}:
            yield name
            yield from _names(items)
        case {"name": str(name)}:
            yield name
        case {"keras": _}:
            return
        case dict() | list():
            for part in node.values() if isinstance(node, dict) else node:
                yield from _names(part)


class _Encoder:
    """What comes back as one object has a number, by the order in which it is met."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._numbers: dict[int, int] = {}
        self._met: list[object] = []  # keeps the objects alive, and so their ids theirs

    def node(self, value: Any, path: str) -> object:
        """The JSON of a value: itself, a list, or a dictionary of one item."""
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if _is_a(value, list):
            return self._nodes(value, path)
        if id(value) in self._numbers:
            return {"again": self._numbers[id(value)]}
        try:
            return self._described(value, path)
        except Refused as error:
            raise ValueError(f"{path} {error}, so it cannot be saved.") from None

    def _described(self, value: Any, path: str) -> dict[str, object]:
        cls = value.__class__  # that of a tuple which TensorFlow has wrapped is tuple
        # Rows of the tables: containers, what has an array, what is made of a few other values.
        for kind, mapping in _MAPPINGS.items():
            if cls is mapping:
                pairs = [[self.node(key, path), self.node(item, f"{path}[{key!r}]")] for key, item in value.items()]
                return {kind: pairs}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": [name_of(cls), self._nodes(value, path)]}
        for kind, row in _ARRAYS.items():
            if _is_a(value, row.cls) and (cls is np.ndarray or hasattr(value, "numpy")):
                array, *options = row.parts(value)
                self._number(value)
                return {kind: [self._stored(np.asarray(array), path), *self._nodes(options, path)]}
        for kind, row in _KINDS.items():
            if _is_a(value, row.cls):
                return {kind: self._nodes(row.parts(value), path)}
        # Classes and functions by name, Keras' layers by what Keras says of them, all else by attributes.
        if hasattr(value, "python_function"):
            raise Refused("is compiled by tf.function: delete it, and compile again after loading")
        if isinstance(value, type) or inspect.isroutine(value):
            return {"name": name_of(value)}
        if stored_keras.is_layer(value):
            return self._keras(value, path)
        if stored_keras.is_variable(value):
            raise Refused("is a variable of a Keras layer that comes after it: keep the layer first")
        return self._object(value, path)

    def _nodes(self, values: Iterable[object], path: str) -> list[object]:
        return [self.node(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _number(self, value: object) -> None:
        self._numbers[id(value)] = len(self._met)
        self._met.append(value)

    def _stored(self, array: np.ndarray, path: str) -> str:
        try:
            plain_dtype(array.dtype.str)
        except Refused:
            raise Refused(f"has elements of the type {array.dtype}") from None
        name = "".join(c if c.isascii() and (c.isalnum() or c in "_.[]") else "_" for c in path)
        while name in self.arrays:
            name += "_"
        self.arrays[name] = array
        return name

    def _object(self, value: object, path: str) -> dict[str, object]:
        cls: type = type(value)
        name = name_of(cls)
        # An object is its dictionary: slots would be lost.
        if not hasattr(value, "__dict__") or any(getattr(base, "__slots__", ()) for base in cls.__mro__):
            raise Refused("has __slots__")
        self._number(value)
        # Attributes, but for those that the class or TensorFlow makes again.
        state = {
            key: item
            for key, item in vars(value).items()
            if not key.startswith(TRACKING_PREFIX) and not isinstance(_of_class(cls, key), functools.cached_property)
        }
        if isinstance(value, tfp.bijectors.Identity):
            state = {key: item for key, item in state.items() if key not in ("_from_x", "_from_y")}  # nothing uses them
        # Lists and dictionaries that TensorFlow does not track stay plain ones.
        untracked = [key for key, item in state.items() if isinstance(value, tf.Module) and type(item) in (list, dict)]
        if isinstance(value, HeteroskedasticTFPConditional) and (made_by := distribution_class(value)) is not None:
            # A function inside its constructor, which has this argument, and is called before anything else is set.
            del state["conditional_distribution"]
            state = {"conditional_distribution": made_by, **state}
        for key in state:
            _check_attribute(cls, key)
        nodes = {key: self.node(item, f"{path}.{key}") for key, item in state.items()}
        return {"object": [name, nodes, untracked]}

    def _keras(self, layer: keras.Layer, path: str) -> dict[str, object]:
        config, variables = stored_keras.encode(layer)
        if any(id(variable) in self._numbers for variable in variables):
            raise Refused("shares weights with another Keras layer of the model: keep one of them, and ask it")
        # TensorFlow's variables, which other parts of the model may have, too; the layer, and Keras' own variables.
        values = [self.node(variable.value, f"{path}.weights[{i}]") for i, variable in enumerate(variables)]
        for numbered in (layer, *variables):
            self._number(numbered)
        return {"keras": [config, values, [bool(variable.trainable) for variable in variables]]}


class _Decoder:
    """`used` are the names of the arrays that the objects so far needed."""

    def __init__(self, arrays: Arrays, given: Mapping[str, Named]) -> None:
        self.used: set[str] = set()
        self._arrays = arrays
        self._given = given
        self._met: list[object] = []

    def value(self, node: object) -> Any:
        """The object of a node."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        # A dictionary of one item, which says what it is.
        match next(iter(node.items())) if len(node) == 1 else (None, None):
            case "again", int(number):
                if not 0 <= number < len(self._met):
                    raise Refused(f"has no object with the number {number} where it is needed")
                return self._met[number]
            case "name", str(name):
                return self._named(name)
            # What has attributes, Keras' layers, and tuples with names.
            case "object", [str(name), dict(state), [*untracked]]:
                return self._object(self._class(name), state, untracked)
            case "keras", [dict(config), [*values], [*trainable]]:
                layer = stored_keras.decode(config, self.value(values), trainable, self._given)
                for numbered in (layer, *layer.variables):
                    self._numbered(numbered)
                return layer
            case "namedtuple", [str(name), [*items]]:
                return tuple.__new__(self._class(name), map(self.value, items))
            # Rows of the tables: containers, what has an array, what is made of a few other values.
            case str(kind), [*pairs] if kind in _MAPPINGS:
                keys = _distinct(self.value(key) for key, _ in pairs)
                return _MAPPINGS[kind](zip(keys, (self.value(item) for _, item in pairs), strict=True))
            case str(kind), [str(name), *options] if kind in _ARRAYS:
                return self._numbered(_ARRAYS[kind].make(self._stored(name), *map(self.value, options)))
            case str(kind), [*parts] if kind in _KINDS:
                values = [self.value(part) for part in parts]
                for value, allowed in zip(values, _KINDS[kind].types, strict=False):
                    if not isinstance(value, allowed):
                        raise Refused(f"has a {type(value).__name__} in a {kind}")
                return _KINDS[kind].make(*values)
        raise Refused(f"has an unknown part in its structure: {', '.join(map(repr, [*node][:3]))}")

    def _numbered(self, value: Value) -> Value:
        self._met.append(value)
        return value

    def _stored(self, name: str) -> np.ndarray:
        if name not in self._arrays or name in self.used:
            raise Refused(f"needs the array {name} once more than it has it")
        self.used.add(name)
        return self._arrays[name]

    def _class(self, name: str) -> type:
        cls = find(name, self._given)
        if not isinstance(cls, type):
            raise Refused(f"has an object of the class {name.replace(':', '.')}, but {cls!r} is none")
        return cls

    def _named(self, name: str) -> Named:
        """A class or function as a value: what has it may call it with anything, as a link function, say."""
        thing = find(name, self._given)
        is_known = ":" not in name or of_given(name, self._given) is not None  # the types of numbers have no colon
        if isinstance(thing, type) and not is_known and not issubclass(thing, (*OF_TENSORFLOW, enum.Enum)):
            raise Refused(f"has the class {name.replace(':', '.')} as a value: if you trust it, give it, {door(name)}")
        return thing

    def _object(self, cls: type, state: dict[str, object], untracked: list[str]) -> object:
        """An object by its attributes, without its constructor."""
        instance: object = self._numbered(object.__new__(cls))
        # Attributes in the order in which they were set, past the class' own `__setattr__`.
        for name, node in state.items():
            _check_attribute(cls, name)
            value = self.value(node)
            is_made_by_a_class = name == "conditional_distribution" and isinstance(value, type)
            if is_made_by_a_class and isinstance(instance, HeteroskedasticTFPConditional):
                HeteroskedasticTFPConditional.__init__(instance, value)
            elif isinstance(instance, tf.Module) and name not in untracked:
                tf.Module.__setattr__(instance, name, value)
            else:
                object.__setattr__(instance, name, value)
        return instance


def _is_a(value: object, cls: type) -> bool:
    """Whether a value is of a class itself, or of one that NumPy or TensorFlow has derived from it; or a choice."""
    kind = value.__class__
    is_derived = issubclass(kind, cls) and (
        cls is enum.Enum or kind.__module__.split(".")[0] in ("numpy", "tensorflow")
    )
    return kind is cls or is_derived


def _check_attribute(cls: type, name: str) -> None:
    """Refuse what is no attribute of an object alone: special names, TensorFlow's, and properties of the class."""
    is_property = hasattr(_of_class(cls, name), "__set__")
    if not name.isidentifier() or name.startswith(("__", TRACKING_PREFIX)) or is_property:
        raise Refused(f"has {name!r} among the attributes of {cls.__name__}")


@functools.lru_cache(1024)
def _of_class(cls: type, name: str) -> object:
    return inspect.getattr_static(cls, name, None)
