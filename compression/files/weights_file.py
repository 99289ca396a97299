"""`.bcz` files of weights only: any Keras network, made by the code of its user.

    pack_weights(model, "weights.bcz")               # every number comes back as it was
    pack_weights(model, "weights.bcz", bits=8)       # kernels on 255 steps each
    load_weights(same_model, "weights.bcz")

All variables of the model are in the file, in their order: weights, statistics and the states of random numbers; not
those of optimizers and metrics. So subclassed models, Lambda layers, layers of the user's own, half precision and
quantised weights are all the same to it. So are arrays in the calls of a functional model, such as a table of positions
by a layer that is called on numbers, which Keras keeps as a constant; files from before may lack them. Vocabularies of
lookup layers are no variables, and come from the code.

The content of such a file, version 6, is

    names     compressed text, its number of bytes before it: a name for each variable, one a line
    variables for each: its type (1 byte), its number of axes, its sizes
    values    for each: a scheme (1 byte) and its data; below 16 those of kernels, see `compression.files.container`
              16 bytes as they are, little-endian
              17 their first bytes, then their second ones and so on, compressed; the number of bytes before them
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import keras
import ml_dtypes  # noqa: F401  NumPy learns of bfloat16 and its like
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep_base.files import write_bytes
from gpflow_deep_base.storage.frame import framed, leb128, unframed
from gpflow_deep_base.storage.limits import Budget, inflated, most_text, one_line

from ..rounding.bits import grid
from .coding.costs import take_time, take_weights
from .coding.kernel_coding import Reader, kernel_bytes, read_kernel
from .contents import MAGIC, VERSION_OF_WEIGHTS, VERSIONS, parsed_file

if TYPE_CHECKING:
    from keras.src.ops.symbolic_arguments import SymbolicArguments  # it has no public name

__all__ = ["StoredVariable", "load_weights", "pack_weights", "read_weights"]

WHAT = "a .bcz file of weights"
TYPES = (
    *("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2"),
)
"""Of variables, by their number in a file; new ones go to the end."""

_PLAIN = 16
_PLANES = 17
_LARGE = 32  # numbers of a kernel that is worth rounding
_MAX_AXES = 16
_PER_CHARACTER = 40  # bytes of the objects that are made of it


class StoredVariable(NamedTuple):
    """One variable in a file.

    :ivar name: path of the variable, such as "sequential/dense/kernel", without numbers that Keras counts.
    :ivar values: of its own type and shape.
    :ivar scheme: how they are written.
    :ivar bytes: of the file that they take.
    """

    name: str
    values: NDArray[np.generic]
    scheme: int
    bytes: int


def pack_weights(model: keras.Model, path: str | os.PathLike[str], *, bits: int | None = None) -> int:
    """Write all variables of any built Keras model, as they are or on a few values each, and constants of its calls.

    What is to be written is read again first; what is at `path` stays as it was if that fails.

    :param model: of any kind, subclassed ones among them; it is not changed.
    :param path: of the file, usually with the ending .bcz; it is replaced if it exists.
    :param bits: 2 to 16, of each number of the kernels of floats, that is, variables with two or more axes, which are
        rounded to multiples of a step; the others, and all of them if not given, stay as they are to the last bit.
    :return: size of the file in bytes.
    :raises ValueError: if the model has no variables, or one of a type that no file can hold.
    """
    if bits is not None and not (isinstance(bits, int | np.integer) and 2 <= bits <= 16):
        raise ValueError(f"bits must be an integer from 2 to 16, got {bits!r}.")
    variables: list[keras.Variable | _Constant] = [*_variables(model), *_constants(model)]
    arrays = [_array(variable) for variable in variables]
    parts = [
        _encoded(array, None if isinstance(variable, _Constant) else bits)
        for array, variable in zip(arrays, variables, strict=True)
    ]
    names = [_name(variable.path) for variable in variables]
    # Names, then types and shapes, then values.
    text = zlib.compress("\n".join(names).encode(), 9)
    shapes = b"".join(
        bytes([TYPES.index(array.dtype.name)]) + leb128(array.ndim) + b"".join(map(leb128, array.shape))
        for array in arrays
    )
    payload = leb128(len(text)) + text + leb128(len(arrays)) + shapes + b"".join(content for content, _ in parts)
    content = framed(MAGIC, VERSION_OF_WEIGHTS, payload)
    # Read it again before anything is written.
    stored_variables = _parsed(content, Budget(sys.maxsize))
    expected = [values for _, values in parts]
    same = [a.values.tobytes() == b.tobytes() for a, b in zip(stored_variables, expected, strict=True)]
    if not all(same):
        raise ValueError(
            f"the variable {names[same.index(False)]} would not come back from a .bcz file; {os.fspath(path)} stays as "
            "it was. Write the weights by save_weights()."
        )
    write_bytes(path, content)
    return len(content)


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Give a model the variables in a file that :func:`pack_weights` wrote; it changes as a whole or not at all.

    A file from somebody else runs no code, and takes no more memory than the model has.

    :param model: a built one, made by the same code as the one that was written.
    :raises ValueError: if the file is damaged, is none of weights, or is of a model with other variables, naming the
        first that differs.
    :raises OSError: if there is no such file.
    """
    variables, constants = _variables(model), _constants(model)
    expected = [(_name(variable.path), tuple(variable.shape), variable.dtype) for variable in [*variables, *constants]]
    parse = functools.partial(_parsed, expected=expected, at_least=len(variables))
    stored_variables = parsed_file(path, parse, WHAT, sys.maxsize)
    for variable, stored in zip([*variables, *constants], stored_variables, strict=False):
        variable.assign(stored.values)
    if constants and isinstance(model, keras.Model):  # programs that Keras made hold the constants of before
        model.train_function = model.test_function = model.predict_function = None
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization) and layer.input_mean is None and layer.built:
            layer.finalize_state()  # it computes with tensors that it makes of its variables


def read_weights(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> list[StoredVariable]:
    """What is in a file, without a model.

    :param max_bytes: as for `compression.load`.
    :raises ValueError: if the file is none of weights, is damaged, or takes more.
    :raises OSError: if there is no such file.
    """
    return parsed_file(path, _parsed, WHAT, max_bytes)


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Those of a model, each once."""
    if not isinstance(model, keras.Layer):
        raise ValueError(f"model must be a Keras model or layer, got a {type(model).__name__}.")
    # Each once, however many layers share it.
    unique = list({id(variable): variable for variable in model.variables}.values())
    if not unique or not model.built:
        raise ValueError(
            f"the model {model.name} has {len(unique)} variables and is not built; call it on examples first, or give "
            "it an Input."
        )
    for variable in unique:
        if variable.dtype not in TYPES:
            raise ValueError(f"the variable {variable.path} is of type {variable.dtype}, which a file cannot hold.")
    return unique


class _Constant:
    """An array that calls within a functional model are given, which is no variable of the model.

    :ivar path: name of the first call, and "constant" or that of a variable.
    """

    def __init__(self, value: keras.Variable | tf.Tensor | np.ndarray, operation: str) -> None:
        self.path = f"{operation}/{value.name if isinstance(value, keras.Variable) else 'constant'}"
        self.value = value
        self.shape = tuple(value.shape)
        self.dtype = keras.backend.standardize_dtype(value.dtype)
        self._places: list[tuple[SymbolicArguments, int]] = []

    def add(self, arguments: SymbolicArguments, place: int) -> None:
        """Where it is: of a call, the arguments by Keras, and its number among them."""
        self._places.append((arguments, place))

    def assign(self, values: NDArray[np.generic]) -> None:
        """Another value, wherever it is."""
        if isinstance(self.value, keras.Variable):
            self.value.assign(values)
            return
        # A new array takes the place of the old one in all calls.
        made = values if isinstance(self.value, np.ndarray) else keras.ops.convert_to_tensor(values, self.dtype)
        for arguments, place in self._places:
            whole = (arguments.args, arguments.kwargs)
            parts = keras.tree.flatten(whole)
            parts[place] = made
            arguments.args, arguments.kwargs = keras.tree.pack_sequence_as(whole, parts)
        self.value = made


def _constants(model: keras.Model) -> list[_Constant]:
    """The arrays in calls of a model and of those in it that are no variables of it, each once."""
    variables = {id(variable) for variable in model.variables}
    constants: dict[int, _Constant] = {}
    for layer in model._flatten_layers():
        # All calls of all models in it, from the inputs on.
        by_depth = getattr(layer, "_nodes_by_depth", {})
        for call in (call for depth in sorted(by_depth, reverse=True) for call in by_depth[depth]):
            parts = keras.tree.flatten((call.arguments.args, call.arguments.kwargs))
            for place, part in enumerate(parts):
                is_array = isinstance(part, np.ndarray | keras.Variable) or tf.is_tensor(part)
                if not is_array or id(part) in variables or keras.backend.standardize_dtype(part.dtype) not in TYPES:
                    continue
                constants.setdefault(id(part), _Constant(part, call.operation.name)).add(call.arguments, place)
    return list(constants.values())


def _array(variable: keras.Variable | _Constant) -> NDArray[np.generic]:
    return np.ascontiguousarray(keras.ops.convert_to_numpy(variable.value)).reshape(tuple(variable.shape))


def _name(path: str) -> str:
    """Without the numbers by which Keras tells names apart, and in one line."""
    return "/".join(one_line(re.sub(r"_\d+$", "", part)) for part in path.split("/"))


def _encoded(array: NDArray[np.generic], bits: int | None) -> tuple[bytes, NDArray[np.generic]]:
    """The scheme and data of a variable, and what comes back of them."""
    if bits is not None and array.ndim > 1 and array.size > _LARGE and "float" in array.dtype.name:
        # Large kernels on a few steps, if float16 has such a step.
        values = np.asarray(array, np.float32)
        rounded = grid(values, bits) if np.all(np.isfinite(values)) else None
        if rounded is not None:
            return kernel_bytes(rounded, True), rounded.values.astype(array.dtype)
    # Bytes by their place in a number compress better, as exponents are much alike.
    width = array.dtype.itemsize
    plain = array.view(f"u{width}").astype(f"<u{width}").tobytes()
    planes = np.frombuffer(plain, np.uint8).reshape(-1, width).T
    packed = zlib.compress(np.ascontiguousarray(planes).tobytes(), 9)
    packed = leb128(len(packed)) + packed
    best = bytes([_PLAIN]) + plain if len(plain) <= len(packed) else bytes([_PLANES]) + packed
    return best, array


def _parsed(
    content: bytes,
    budget: Budget,
    expected: Sequence[tuple[str, tuple[int, ...], str]] | None = None,
    at_least: int = 0,
) -> list[StoredVariable]:
    """All variables; sizes are looked at before there is room for them.

    :param expected: name, shape and type of each, which must be those of the file.
    :param at_least: so many of the expected ones, the first, if the file has none of the others.
    """
    if content[: len(MAGIC)] == MAGIC and content[len(MAGIC) : len(MAGIC) + 1] in [bytes([v]) for v in VERSIONS]:
        raise ValueError("it holds a network, which compression.load makes")
    reader = Reader(unframed(content, magic=MAGIC, versions=(VERSION_OF_WEIGHTS,))[1])
    names = _read_names(reader, budget)
    if reader.integer() != len(names):
        raise ValueError("it has more or fewer names than variables")
    if expected is not None and len(names) == at_least:
        expected = expected[:at_least]
    if expected is not None and len(expected) != len(names):
        raise ValueError(
            f"it has {len(names)} variables, and the model has {len(expected)}; a model that is not built has too few"
        )
    # Types and shapes, for which there has to be room, and which have to be those of the model.
    heads = [_read_head(reader) for _ in names]
    for shape, _ in heads:
        take_weights(budget, [shape])
    for (shape, kind), name, expected_head in zip(heads, names, expected or [], strict=expected is not None):
        if expected_head != (*_same_leaf(name, expected_head[0]), shape, kind):
            raise ValueError(
                f"it has the variable {name} of shape {shape}, {kind}, where the model has {expected_head[0]} of shape "
                f"{expected_head[1]}, {expected_head[2]}"
            )
    # Values, each by its scheme.
    stored_variables = []
    for (shape, kind), name in zip(heads, names, strict=True):
        start = reader.place
        scheme = reader.peek()
        values = _read_values(reader, shape, kind)
        stored_variables.append(StoredVariable(name, values, scheme, reader.place - start))
    reader.end()
    return stored_variables


def _same_leaf(name: str, wanted: str) -> tuple[str, ...]:
    """What is wanted, if both are called the same in their layers, which may have any names themselves."""
    return (wanted,) if name.rsplit("/", 1)[-1] == wanted.rsplit("/", 1)[-1] else ()


def _read_names(reader: Reader, budget: Budget) -> list[str]:
    # Names are compressed text, whose length has a bound.
    packed = reader.take(reader.integer())
    text = inflated(packed, most_text(len(packed)), "its text of names is too long or does not end")
    budget.take(_PER_CHARACTER * len(text), "the text of names")
    names = text.decode().split("\n")
    take_time(budget, "", len(names))
    return [one_line(name) for name in names]


def _read_head(reader: Reader) -> tuple[tuple[int, ...], str]:
    """Shape and type of a variable."""
    # The number of its type, then its sizes.
    number = reader.take(1)[0]
    if number >= len(TYPES):
        raise ValueError(f"the type {number} of variables is not known")
    axes = reader.at_most(_MAX_AXES, "axes")
    return tuple(reader.integer() for _ in range(axes)), TYPES[number]


def _read_values(reader: Reader, shape: tuple[int, ...], kind: str) -> NDArray[np.generic]:
    scheme = reader.peek()
    dtype = np.dtype(kind)
    # A rounded kernel.
    if scheme < _PLAIN:
        if len(shape) < 2 or "float" not in kind:
            raise ValueError(f"a variable of shape {shape} and type {kind} is a kernel")
        return read_kernel(reader, shape).astype(dtype)
    # The bytes of the numbers as they are, or by their place in a number, compressed.
    reader.take(1)
    size = math.prod(shape) * dtype.itemsize
    if scheme == _PLAIN:
        plain = reader.take(size)
    elif scheme == _PLANES:
        plain = _joined(reader.take(reader.integer()), size, dtype.itemsize)
    else:
        raise ValueError(f"scheme {scheme} is not known")
    words = np.frombuffer(plain, f"<u{dtype.itemsize}").astype(f"u{dtype.itemsize}")
    if kind == "bool" and np.any(words > 1):
        raise ValueError("a truth value is neither 0 nor 1")
    return words.view(dtype).reshape(shape)


def _joined(packed: bytes, size: int, width: int) -> bytes:
    """Numbers of `width` bytes from their first bytes, second bytes and so on."""
    problem = "a variable has more or fewer bytes than its shape says"
    planes = inflated(packed, size + 1, problem)
    if len(planes) != size:
        raise ValueError(problem)
    return np.ascontiguousarray(np.frombuffer(planes, np.uint8).reshape(width, -1).T).tobytes()
