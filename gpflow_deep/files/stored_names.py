"""What a model file may name: classes, and functions of one array.

A file may come from anybody, so what it names is looked up and never fetched: no module is imported because a file says
so (but for modules of GPflow and of this package), and what is found has to be of a kind that does nothing by existing.
For objects, whose constructors are not called:

- a class that derives from `tf.Module`, as kernels, likelihoods, layers, transforms and priors do, of any module that
  the program has imported;
- any class of GPflow and of this package;
- a class that the caller gives: the one door for everything else.

For values that the objects may call: an elementwise function of TensorFlow, the class of a transform or prior (see
`stored_objects`), and a function or class that the caller gives. No layer of Keras 2, which could load a program.

A name is "module:qualified name", as in "gpflow.kernels.linears:Polynomial".
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gpflow
import tensorflow as tf

__all__ = ["CustomObjects", "Refused", "find_class", "find_function", "given_names", "name_of", "of_given"]

#: Classes and functions that a caller gives, or the same by name: "module:name" or "name", as they are in the file.
CustomObjects = Iterable[Any] | Mapping[str, Any]

_OWN_PACKAGES = ("gpflow", "gpflow_deep")

#: Packages whose classes are no part of a model even if they derive from `tf.Module`: those of Keras 2.
_KERAS_2 = ("tf_keras.", "tensorflow.python.keras.", "tensorflow.python.feature_column.")

#: Packages whose classes are no part of a model unless they derive from `tf.Module`: what they hold cannot be restored.
_FOREIGN = frozenset({"keras", "numpy", "tensorflow", *sys.stdlib_module_names})

_ELEMENTWISE = {
    "tf": "clip_by_value identity",
    "tf.math": "abs acos acosh add asin asinh atan atan2 atanh cos cosh digamma divide divide_no_nan erf erfc erfinv "
    "exp expm1 lgamma log log1p log_sigmoid log_softmax maximum minimum multiply ndtri negative pow reciprocal rsqrt "
    "sigmoid sign sin sinh softmax softplus softsign sqrt square subtract tan tanh",
    "tf.nn": "crelu elu gelu leaky_relu relu relu6 selu silu",
}


class Refused(ValueError):
    """What is wrong with a part of a model or with a file, as a predicate: whoever catches it names the subject."""


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    spaces = {"tf": tf, "tf.math": tf.math, "tf.nn": tf.nn}
    functions = {
        f"{space}.{name}": getattr(spaces[space], name) for space in spaces for name in _ELEMENTWISE[space].split()
    }
    return {**functions, "gpflow.likelihoods.utils.inv_probit": gpflow.likelihoods.utils.inv_probit}


def given_names(custom_objects: CustomObjects) -> dict[str, Any]:
    """Names, whole and without their module, of what a caller gives.

    :raises TypeError: if something of it is neither a class nor a function.
    """
    if isinstance(custom_objects, Mapping):
        return dict(custom_objects)
    objects = list(custom_objects)
    for thing in objects:
        if not hasattr(thing, "__qualname__"):
            raise TypeError(
                f"custom_objects must be classes and functions, got {thing!r}; give type(...) of an object."
            )
    return {name: thing for thing in objects for name in (thing.__qualname__, _full_name(thing))}


def of_given(name: str, given: Mapping[str, Any]) -> Any:
    """What the caller gives for a name, or None.

    :param given: what `given_names` returned.
    """
    return given.get(name, given.get(name.rpartition(":")[2]))


def name_of(thing: Any) -> str:
    """The name by which `find_class` finds a class, and `find_function` a function, though it may have to be given.

    :raises Refused: if they would not.
    """
    for name, function in _functions().items():
        if function is thing:
            return name
    name = _full_name(thing)
    subject = f"{'is of the class' if isinstance(thing, type) else 'is the function'} {_readable(name)}"
    if isinstance(thing, type) and _is_forbidden(thing, tf.Module):
        raise Refused(f"{subject}, which no file may have (of Keras, layers of version 3 can be saved)")
    if getattr(_looked_up(name), "__qualname__", None) != thing.__qualname__:  # a notebook may define it once more
        places = {"<lambda>": "is a lambda", "<locals>": "is defined inside a function"}
        reasons = (reason for place, reason in places.items() if place in thing.__qualname__)
        reason = next(reasons, "its module does not have by this name")
        raise Refused(f"{subject}, which {reason}: define it by `def` or `class` at the top of a module")
    return name


def find_class(name: str, given: Mapping[str, Any], base: type = tf.Module) -> type:
    """The class of a name that a file has.

    :param given: what `given_names` returned.
    :param base: a class of another module than GPflow's and this package's has to derive from it, unless it is given.
    :raises Refused: if the class is not of a kind that a file may name, or its module was not imported.
    """
    subject = f"has an object of the class {_readable(name)}"
    cls = of_given(name, given)
    if cls is not None:
        if not isinstance(cls, type):
            raise Refused(f"{subject}, but custom_objects gives {cls!r} for it")
        return cls
    cls = _looked_up(name)
    if not isinstance(cls, type):
        module = name.partition(":")[0]
        reason = "that module does not have: " if module in sys.modules else f"is not known: import {module} first, or "
        raise Refused(f"{subject}, which {reason}give it, {_door(name)}")
    if _is_forbidden(cls, base):
        raise Refused(f"{subject}, which no file may have")
    if not issubclass(cls, base) and cls.__module__.split(".")[0] not in _OWN_PACKAGES:
        raise Refused(f"{subject}, which does not derive from {base.__name__}: if you trust it, give it, {_door(name)}")
    return cls


def find_function(name: str, given: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of a name that a file has.

    :raises Refused: if it is neither given nor one that every file may name.
    """
    function = of_given(name, given) or _functions().get(name)
    if not callable(function):
        raise Refused(f"has the function {_readable(name)}: if you trust it, import it and give it, {_door(name)}")
    return function


def _door(name: str) -> str:
    """How what a name says is given."""
    return f"load_model(path, custom_objects=[{name.rpartition(':')[2].rpartition('.')[2]}])"


def _is_forbidden(cls: type, base: type) -> bool:
    """Whether no file may have a class that the caller does not give.

    :param base: from which those of other packages have to derive.
    """
    is_keras_2 = any(f"{parent.__module__}.".startswith(_KERAS_2) for parent in cls.__mro__)
    is_foreign = cls.__module__.split(".")[0] in _FOREIGN and not issubclass(cls, base)
    return is_keras_2 or is_foreign or hasattr(cls, "__del__")


def _full_name(thing: Any) -> str:
    """In the outermost package that has it by its name, which stays when modules inside are moved."""
    module = str(getattr(thing, "__module__", None))
    qualname = getattr(thing, "__qualname__", type(thing).__qualname__)
    parts = module.split(".")
    names = [f"{'.'.join(parts[:end])}:{qualname}" for end in range(1, len(parts) + 1)]
    return next((name for name in names if _looked_up(name) is thing), names[-1])


def _readable(name: str) -> str:
    return name.replace(":", ".")


def _looked_up(name: str) -> Any:
    """What has this name in a module that is there already, or None. Nothing is imported but own modules."""
    module_name, _, qualname = name.partition(":")
    is_own = module_name.split(".")[0] in _OWN_PACKAGES
    if is_own and module_name not in sys.modules:
        try:
            importlib.import_module(module_name)
        except ImportError:
            return None
    thing: Any = sys.modules.get(module_name)
    if is_own and qualname in getattr(thing, "__all__", ()):
        return getattr(thing, qualname)  # of own packages, which import their parts when these are used
    for part in qualname.split("."):
        thing = vars(thing).get(part) if hasattr(thing, "__dict__") else None  # a module's __getattr__ may import
    return thing
