"""Objects as JSON and arrays, and back: the state of a model, whatever it is composed of.

An object that derives from `tf.Module` becomes its class and its attributes, which are all that training has changed
and predicting needs; its constructor is not called when it comes back. Distributions, transforms and linear operators
of TensorFlow record their constructors' arguments, and become those. Keras layers become what Keras says of them. All
other values are rows of one table, `_PLAIN`, or names of classes and functions. Variables, arrays and objects that are
in several places are written once, and come back as one.

A few bytes can ask a constructor for much: a column and a row that are compared with each other, a chain of two chains
of two chains. So what its arguments may take, if all are broadcast, is reckoned before it is called, for all
constructors together; and what a constructor made is no argument of two others: it is written out for each.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import HeteroskedasticTFPConditional

from gpflow_deep_base.container import Arrays
from gpflow_deep_base.limits import budget_of

from ..model.upstream import TRACKING_PREFIX, distribution_class
from . import stored_keras
from .stored_names import Refused, find_class, find_function, name_of, of_given

__all__ = ["Encoded", "decode", "encode", "plain_dtype"]

#: What records the arguments of its constructor in `parameters`.
_BY_ARGUMENTS = (tfp.bijectors.Bijector, tfp.distributions.Distribution, tf.linalg.LinearOperator)

#: Those of them whose constructors do more work than their arguments are long.
_LABORIOUS = (
    tfp.bijectors.BatchNormalization,
    tfp.bijectors.Glow,
    tfp.distributions.PixelCNN,
    tfp.distributions.PoissonLogNormalQuadratureCompound,
)

#: Constructors inside constructors: each may walk through all that is inside.
_MAX_DEPTH = 20

_BYTES_PER_NUMBER = 8
_MAPPINGS = {cls.__name__: cls for cls in (dict, OrderedDict)}
_TYPES = {cls.__name__: cls for cls in (bool, int, float, str)}


def plain_dtype(text: str) -> np.dtype:
    """The NumPy type of a name, of numbers or text alone.

    :raises Refused: if it is another one.
    """
    dtype = np.dtype(text)
    if dtype.kind not in "biufcSU" or dtype.names is not None:
        raise Refused(f"has the type {text!r}")
    return dtype


def _distinct(items: Iterable[Any]) -> list[Any]:
    """The same items, unless they are numbers that were chosen to be hard to find in a set or dictionary."""
    items = list(items)
    if len({hash(item) for item in items}) < len(items) // 2:
        raise Refused("has a set or dictionary of items with few different hashes")
    return items


class _Plain(NamedTuple):
    """A class of values that are made of a few others.

    :ivar cls: the class.
    :ivar parts: what a value is made of.
    :ivar make: the value from its parts.
    """

    cls: type
    parts: Callable[[Any], list[Any]]
    make: Callable[..., Any]


_PLAIN = {
    "scalar": _Plain(np.generic, lambda x: [x.dtype.str, x.item()], lambda kind, x: plain_dtype(kind).type(x)),
    "float": _Plain(float, lambda x: [str(x)], float),
    "tuple": _Plain(tuple, list, lambda *items: items),
    "set": _Plain(set, lambda x: sorted(x, key=repr), lambda *items: set(_distinct(items))),
    "frozenset": _Plain(frozenset, lambda x: sorted(x, key=repr), lambda *items: frozenset(_distinct(items))),
    "slice": _Plain(slice, lambda x: [x.start, x.stop, x.step], slice),
    "range": _Plain(range, lambda x: [x.start, x.stop, x.step], range),
    "dtype": _Plain(tf.DType, lambda x: [x.name], tf.as_dtype),
    "numpy_dtype": _Plain(np.dtype, lambda x: [x.str], plain_dtype),
    "shape": _Plain(tf.TensorShape, lambda x: [None if x.rank is None else x.as_list()], tf.TensorShape),
    "name_scope": _Plain(tf.name_scope, lambda x: [x.name], tf.name_scope),
    "partial": _Plain(
        functools.partial,
        lambda x: [x.func, list(x.args), dict(x.keywords)],
        lambda function, arguments, options: functools.partial(function, *arguments, **options),
    ),
}


class Encoded(NamedTuple):
    """An object in pieces.

    :ivar node: JSON.
    :ivar arrays: by the names that they have in the JSON.
    :ivar named: classes and functions in it, by the names that they have in the JSON.
    """

    node: Any
    arrays: Arrays
    named: dict[str, Any]


def encode(root: Any, name: str) -> Encoded:
    """What `decode` makes an equal object from.

    :param name: what errors call the object.
    :raises ValueError: if a part of it cannot be saved, naming the part.
    """
    encoder = _Encoder()
    try:
        return Encoded(encoder.node(root, name), encoder.arrays, encoder.named)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply, or has a list in itself, so it cannot be saved.") from None


def decode(node: Any, arrays: Arrays, given: Mapping[str, Any], *, max_bytes: int | None = None) -> Any:
    """The object that `encode` wrote.

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


class _Encoder:
    """What comes back as one object has a number, by the order in which it is met."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.named: dict[str, Any] = {}
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []  # keeps the objects alive, and so their ids theirs
        self._depth = 0  # of constructors inside constructors

    def node(self, value: Any, path: str) -> Any:
        """The JSON of a value: itself, a list, or a dictionary of one item."""
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if _is_a(value, list):
            return self._nodes(value, path)
        if id(value) in self._numbers and not (self._depth and isinstance(value, _BY_ARGUMENTS)):
            return {"again": self._numbers[id(value)]}
        try:
            for kind, plain in _PLAIN.items():
                if _is_a(value, plain.cls):
                    return {kind: self._nodes(plain.parts(value), path)}
            for describe in (self._container, self._array, self._callable, self._object):
                if (node := describe(value, path)) is not None:
                    return node
            raise Refused(f"is of the class {type(value).__module__}.{type(value).__qualname__}")
        except Refused as error:
            raise ValueError(f"{path} {error}, so it cannot be saved.") from None

    def _nodes(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.node(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _attributes(self, values: Mapping[str, Any], path: str) -> dict[str, Any]:
        return {name: self.node(value, f"{path}.{name}") for name, value in values.items()}

    def _number(self, value: Any) -> None:
        self._numbers[id(value)] = len(self._met)
        self._met.append(value)

    def _name(self, thing: Any) -> str:
        name = name_of(thing)
        self.named[name] = thing
        return name

    def _container(self, value: Any, path: str) -> Any:
        cls = value.__class__  # that of a tuple which TensorFlow has wrapped is tuple
        if isinstance(value, enum.Enum):
            return {"enum": [self._name(cls), value.name]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": [self._name(cls), self._nodes(value, path)]}
        if cls in _MAPPINGS.values():
            pairs = [[self.node(key, path), self.node(item, f"{path}[{key!r}]")] for key, item in value.items()]
            return {cls.__name__: pairs}
        return None

    def _array(self, value: Any, path: str) -> Any:
        node: dict[str, Any]
        if isinstance(value, tf.Variable):
            if getattr(value, "constraint", None) is not None:
                raise Refused("has a constraint, which no file can have: use a Parameter with a transform")
            shape = None if value.shape.rank is None else value.shape.as_list()
            array = self._stored(value.numpy(), path)
            node = {"variable": [array, bool(value.trainable), value.name.split(":")[0], shape]}
        elif isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
            node = {"tensor": self._stored(value.numpy(), path)}
        elif type(value) is np.ndarray:
            node = {"array": self._stored(value, path)}
        else:
            return None
        self._number(value)
        return node

    def _stored(self, array: Any, path: str) -> str:
        array = np.asarray(array)
        try:
            plain_dtype(array.dtype.str)
        except Refused:
            raise Refused(f"has elements of the type {array.dtype}") from None
        name = "".join(c if c.isascii() and (c.isalnum() or c in "_.[]") else "_" for c in path)
        while name in self.arrays:
            name += "_"
        self.arrays[name] = array
        return name

    def _callable(self, value: Any, path: str) -> Any:
        if isinstance(value, type):
            if issubclass(value, np.generic):
                return {"numpy_type": value.__name__}
            return {"type": value.__name__} if value in _TYPES.values() else {"class": self._name(value)}
        if isinstance(value, types.MethodType):
            if isinstance(value.__self__, _BY_ARGUMENTS):
                return {"method": [value.__name__, self.node(value.__self__, path)]}
            raise Refused(f"is the method {value.__qualname__}: keep the object itself, and call its method")
        if hasattr(value, "python_function"):
            raise Refused("is compiled by tf.function: delete it, and compile again after loading")
        return {"function": self._name(value)} if inspect.isroutine(value) else None

    def _object(self, value: Any, path: str) -> Any:
        if isinstance(value, _BY_ARGUMENTS):
            self._depth += 1
            node = {"made": [self._name(type(value)), self._attributes(_arguments(value), path)]}
            self._depth -= 1
            if not self._depth:
                self._number(value)
            return node
        if stored_keras.is_layer(value):
            return self._keras(value, path)
        if stored_keras.is_variable(value):
            raise Refused("is a variable of a Keras layer that comes after it: keep the layer first")
        if not hasattr(value, "__dict__") or isinstance(value, types.ModuleType):
            return None
        cls: Any = type(value)
        name = self._name(cls)
        if any(getattr(base, "__slots__", ()) for base in cls.__mro__):
            raise Refused("has __slots__")
        self._number(value)
        # Attributes, but for those that the class or TensorFlow makes again.
        state = {
            key: item
            for key, item in vars(value).items()
            if not key.startswith(TRACKING_PREFIX) and not isinstance(_of_class(cls, key), functools.cached_property)
        }
        if isinstance(value, HeteroskedasticTFPConditional) and (made_by := distribution_class(value)) is not None:
            # A function inside its constructor, which has this argument, and is called before anything else is set.
            del state["conditional_distribution"]
            state = {"conditional_distribution": made_by, **state}
        for key in state:
            _check_attribute(cls, key)
        outer_depth = self._depth
        self._depth = 0
        node = {"object": [name, self._attributes(state, path)]}
        self._depth = outer_depth
        return node

    def _keras(self, layer: Any, path: str) -> Any:
        config, variables, named = stored_keras.encode(layer)
        self.named.update(named)
        if any(id(variable) in self._numbers for variable in variables):
            raise Refused("shares weights with another Keras layer of the model: keep one of them, and ask it")
        # TensorFlow's variables, which other parts of the model may have, too; the layer, and Keras' own variables.
        values = [self.node(variable.value, f"{path}.weights[{i}]") for i, variable in enumerate(variables)]
        for numbered in (layer, *variables):
            self._number(numbered)
        return {"keras": [config, values, [bool(variable.trainable) for variable in variables]]}


class _Decoder:
    """`used` are the names of the arrays that the objects so far needed."""

    def __init__(self, arrays: Arrays, given: Mapping[str, Any], max_bytes: int | None) -> None:
        self.used: set[str] = set()
        self._arrays = arrays
        self._given = given
        self._met: list[Any] = []
        self._budget = budget_of(sum(array.nbytes for array in arrays.values()), max_bytes)
        self._depth = 0
        self._made: dict[int, tuple[Any, tuple[int, ...]]] = {}  # by a constructor, by its id: itself, and its shape

    def value(self, node: Any) -> Any:
        """The object of a node."""
        if isinstance(node, list):
            return [self.value(item) for item in node]
        if not isinstance(node, dict):
            return node
        match next(iter(node.items())) if len(node) == 1 else (None, None):
            # What was met before.
            case "again", int(number):
                if not 0 <= number < len(self._met):
                    raise Refused(f"has no object with the number {number} where it is needed")
                again = self._met[number]
                if self._depth and isinstance(again, _BY_ARGUMENTS):
                    raise Refused(f"has a {type(again).__name__} inside a constructor that it has elsewhere, too")
                return again
            # Plain values, and containers.
            case str(kind), [*parts] if kind in _PLAIN:
                value = _PLAIN[kind].make(*map(self.value, parts))
                if isinstance(value, range):
                    self._take((len(value),), "a range")
                return value
            case str(kind), [*pairs] if kind in _MAPPINGS:
                keys = _distinct(self.value(key) for key, _ in pairs)
                return _MAPPINGS[kind](zip(keys, (self.value(item) for _, item in pairs), strict=True))
            case "enum", [str(name), str(member)]:
                choices: Any = find_class(name, self._given, enum.Enum)
                return choices.__members__[member]
            case "namedtuple", [str(name), [*items]]:
                return tuple.__new__(find_class(name, self._given), map(self.value, items))
            # Arrays.
            case "variable", [str(array), bool(trainable), str(name), shape]:
                return self._numbered(
                    tf.Variable(self._stored(array), trainable=trainable, name=name, shape=tf.TensorShape(shape))
                )
            case "tensor", str(array):
                return self._numbered(tf.constant(self._stored(array)))
            case "array", str(array):
                return self._numbered(self._stored(array))
            # Classes and functions.
            case "numpy_type", str(name):
                return plain_dtype(name).type
            case "type", str(name):
                return _TYPES[name]
            case "class", str(name):
                return self._class(name)
            case "function", str(name):
                return find_function(name, self._given)
            case "method", [str(name), of]:
                return _method(self.value(of), name)
            # Objects.
            case "object", [str(name), dict(state)]:
                return self._object(find_class(name, self._given), state)
            case "made", [str(name), dict(arguments)]:
                return self._construct(find_class(name, self._given), arguments)
            case "keras", [dict(config), [*values], [*trainable]]:
                layer = stored_keras.decode(config, self.value(values), trainable, self._given)
                for numbered in (layer, *layer.variables):
                    self._numbered(numbered)
                return layer
        raise Refused(f"has an unknown part in its structure: {', '.join(map(repr, [*node][:3]))}")

    def _numbered(self, value: Any) -> Any:
        self._met.append(value)
        return value

    def _stored(self, name: str) -> np.ndarray:
        if name not in self._arrays or name in self.used:
            raise Refused(f"needs the array {name} once more than it has it")
        self.used.add(name)
        return self._arrays[name]

    def _class(self, name: str) -> type:
        """A class as a value: what has it may call it with anything, as a link function, say."""
        cls = find_class(name, self._given)
        if of_given(name, self._given) is None and not _is_made_by_arguments(cls):
            raise Refused(
                f"has the class {name.replace(':', '.')} as a value: if you trust it, give it, "
                f"load_model(path, custom_objects=[{cls.__name__}])"
            )
        return cls

    def _object(self, cls: type, state: dict[str, Any]) -> Any:
        """An object by its attributes, without its constructor."""
        if issubclass(cls, _BY_ARGUMENTS):
            raise Refused(f"has an object of the class {cls.__name__} without arguments")
        instance = self._numbered(object.__new__(cls))
        set_attribute = tf.Module.__setattr__ if isinstance(instance, tf.Module) else object.__setattr__
        outer_depth = self._depth
        self._depth = 0
        for name, node in state.items():
            _check_attribute(cls, name)
            value = self.value(node)
            is_likelihood = isinstance(instance, HeteroskedasticTFPConditional)
            if is_likelihood and name == "conditional_distribution" and isinstance(value, type):
                HeteroskedasticTFPConditional.__init__(instance, value)
            else:
                set_attribute(instance, name, value)
        self._depth = outer_depth
        if isinstance(instance, tfp.util.TransformedVariable):
            shape = instance.bijector.forward_event_shape(instance.pretransformed_input.shape)
            if not shape.is_compatible_with(instance.shape):
                raise Refused(f"has a parameter of shape {instance.shape} with a value of shape {shape}")
        return instance

    def _construct(self, cls: type, arguments: dict[str, Any]) -> Any:
        """An object by its constructor."""
        if not _is_made_by_arguments(cls):
            raise Refused(f"has an object of the class {cls.__name__} with arguments")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise Refused(f"has a {cls.__name__} inside more than {_MAX_DEPTH} transforms or distributions")
        values = {key: self.value(node) for key, node in arguments.items()}
        self._depth -= 1
        # What it may take is compared before it is called, as it may broadcast all arrays that are in it.
        shape = self._shape(values)
        self._take(shape, f"a {cls.__name__}")
        instance = cls(**values)
        self._made[id(instance)] = instance, shape
        return instance if self._depth else self._numbered(instance)

    def _shape(self, value: Any) -> tuple[int, ...]:
        """That all arrays in an argument have if they are broadcast, or a larger one."""
        match value:
            case dict():
                return _broadcast(map(self._shape, value.values()))
            case range():
                return (len(value),)
            case list() | tuple() | set() | frozenset():
                return len(value), *_broadcast(map(self._shape, value))
            case tf.Variable():
                return tuple(value.numpy().shape)  # it may say of itself that its shape is not known
            case np.ndarray() | tf.Tensor() | tfp.util.TransformedVariable():
                return tuple(value.shape)
        return self._made[id(value)][1] if id(value) in self._made else ()

    def _take(self, shape: tuple[int, ...], what: str) -> None:
        try:
            self._budget.take(_BYTES_PER_NUMBER * math.prod(shape), f"has {what}, which")
        except ValueError as error:
            raise Refused(str(error)) from error


def _is_a(value: Any, cls: type) -> bool:
    """Whether a value is of a class itself, or of one that NumPy or TensorFlow has derived from it."""
    kind = value.__class__
    return kind is cls or (issubclass(kind, cls) and kind.__module__.split(".")[0] in ("numpy", "tensorflow"))


def _is_made_by_arguments(cls: type) -> bool:
    return issubclass(cls, _BY_ARGUMENTS) and not issubclass(cls, _LABORIOUS)


def _arguments(value: Any) -> dict[str, Any]:
    """Those that a constructor recorded, but for the object itself and functions that are defaults."""
    if isinstance(value, _LABORIOUS):
        raise Refused(f"is a {type(value).__name__}")
    if value.parameters is None:
        raise Refused(
            f"is a {type(value).__name__}, which does not say what made it: its constructor has to call "
            "super().__init__ with parameters=dict(locals())"
        )
    signature = inspect.signature(type(value).__init__).parameters
    return {
        key: item
        for key, item in value.parameters.items()
        if key != "__class__"
        and item is not value
        and not (callable(item) and key in signature and item is signature[key].default)
    }


def _method(value: Any, name: str) -> Any:
    """A method of what is made by arguments."""
    is_method = inspect.isfunction(inspect.getattr_static(type(value), name, None))
    if not isinstance(value, _BY_ARGUMENTS) or name.startswith("_") or not is_method:
        raise Refused(f"has the method {name} of an object of the class {type(value).__name__}")
    return getattr(value, name)


def _check_attribute(cls: type, name: str) -> None:
    """Refuse what is no attribute of an object alone: special names, TensorFlow's, and properties of the class."""
    is_property = hasattr(_of_class(cls, name), "__set__")
    if not name.isidentifier() or name.startswith(("__", TRACKING_PREFIX)) or is_property:
        raise Refused(f"has {name!r} among the attributes of {cls.__name__}")


@functools.lru_cache(1024)
def _of_class(cls: Any, name: str) -> Any:
    return inspect.getattr_static(cls, name, None)


def _broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The largest of each axis, from the last one on."""
    axes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(max(sizes) for sizes in axes)[::-1]
