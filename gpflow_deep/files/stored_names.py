"""What a model file may name: a closed list, and what the caller gives.

On the list are the classes of GPflow and of this package, transforms, distributions and linear operators of TensorFlow,
some of its functions of arrays, and types of numbers. All else, such as a kernel of the user's own, comes through one
door, `load_model(path, custom_objects=[MyKernel])`. A file may come from anybody, so no module is imported because a
file says so, but for modules of GPflow and of this package.

A name is "module:qualified name", as in "gpflow.kernels.linears:Polynomial".
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

__all__ = [
    "OF_TENSORFLOW",
    "CustomObjects",
    "Named",
    "Refused",
    "check_names",
    "door",
    "find",
    "given_names",
    "looked_up",
    "name_of",
    "of_given",
    "written",
]

#: A class or a function.
Named = Callable[..., object]

#: Classes and functions that a caller gives, or the same by name: "module:name" or "name", as they are in the file.
CustomObjects = Iterable[Any] | Mapping[str, Any]

#: Transforms, priors and what they are made of.
OF_TENSORFLOW = (tfp.bijectors.Bijector, tfp.distributions.Distribution, tf.linalg.LinearOperator)

_OWN_PACKAGES = ("gpflow", "gpflow_deep")
_NO_PARTS = ("gpflow.monitor", "gpflow.optimizers")

#: Packages whose other classes are no part of a model: what they hold cannot be restored.
_FOREIGN = frozenset({"keras", "numpy", "tensorflow", "tf_keras", *sys.stdlib_module_names})

_FUNCTIONS = {
    "tf": "clip_by_value identity",
    "tf.math": "abs acos acosh add asin asinh atan atan2 atanh cos cosh digamma divide divide_no_nan erf erfc erfinv "
    "exp expm1 lgamma log log1p log_sigmoid log_softmax maximum minimum multiply ndtri negative pow reciprocal rsqrt "
    "sigmoid sign sin sinh softmax softplus softsign sqrt square subtract tan tanh",
    "tf.linalg": "cholesky",
    "tf.nn": "crelu elu gelu leaky_relu relu relu6 selu silu",
}


#: What this process has named in something that it wrote, and so may read back.
written: dict[str, Named] = {}


class Refused(ValueError):
    """What is wrong with a part of a model or with a file, as a predicate: whoever catches it names the subject."""


@functools.cache
def _listed() -> dict[str, Named]:
    """Functions and types of the list, by name."""
    spaces = {"tf": tf, "tf.linalg": tf.linalg, "tf.math": tf.math, "tf.nn": tf.nn}
    functions = {
        f"{space}.{name}": getattr(spaces[space], name) for space in spaces for name in _FUNCTIONS[space].split()
    }
    kinds = {f"numpy.{kind.__name__}": kind for kind in np.sctypeDict.values() if np.dtype(kind).kind in "biufcSU"}
    plain = {kind.__name__: kind for kind in (bool, int, float, str)}
    split = inspect.signature(tfp.distributions.TransformedDistribution.__init__).parameters["kwargs_split_fn"].default
    others = {"inv_probit": gpflow.likelihoods.utils.inv_probit, "split_of_options": split}
    return {**functions, **kinds, **plain, **others}


def given_names(custom_objects: CustomObjects) -> dict[str, Named]:
    """Names, whole and without their module, of what a caller gives.

    :raises TypeError: if something of it is neither a class nor a function.
    """
    if isinstance(custom_objects, Mapping):
        return dict(custom_objects)
    # Classes and functions themselves, which have names; or a single one.
    objects = list(custom_objects) if isinstance(custom_objects, Iterable) else [custom_objects]
    for thing in objects:
        if not hasattr(thing, "__qualname__"):
            raise TypeError(
                f"custom_objects must be classes and functions, got {thing!r}; give type(...) of an object."
            )
    return {name: thing for thing in objects for name in (thing.__qualname__, _full_name(thing))}


def of_given(name: str, given: Mapping[str, Named]) -> Named | None:
    """What the caller gives for a name, or None.

    :param given: what `given_names` returned.
    """
    return given.get(name, given.get(name.rpartition(":")[2]))


def name_of(thing: Named) -> str:
    """The name by which `find` finds a class or function, though it may have to be given.

    :raises Refused: if it would not.
    """
    # By its name on the list, or in its module.
    for name, listed in _listed().items():
        if listed is thing:
            return name
    name = _full_name(thing)
    # What `find` would refuse, or not find again, is refused here.
    subject = f"{'is of the class' if isinstance(thing, type) else 'is the function'} {_readable(name)}"
    if isinstance(thing, type) and thing.__module__.split(".")[0] in _FOREIGN and not _is_listed(thing):
        raise Refused(f"{subject}, which no file may have (of Keras, layers of version 3 can be saved)")
    if getattr(looked_up(name), "__qualname__", None) != thing.__qualname__:  # a notebook may define it once more
        reason = "is a lambda" if "<lambda>" in name else "its module does not have by this name"
        raise Refused(f"{subject}, which {reason}: define it by `def` or `class` at the top of a module")
    written[name] = thing  # for the copy that is made before anything is saved
    return name


def find(name: str, given: Mapping[str, Named]) -> Named:
    """The class or function of a name that a file has.

    :param given: what `given_names` returned.
    :raises Refused: if it is neither given nor on the list.
    """
    if (thing := _found(name, given)) is None:
        raise _refusal([name])
    return thing


def check_names(names: Iterable[str], given: Mapping[str, Named]) -> None:
    """Refuse a file for all its names at once that are neither given nor on the list.

    :raises Refused: naming them.
    """
    if unknown := sorted({name for name in names if _found(name, given) is None}):
        raise _refusal(unknown)


def _refusal(unknown: Sequence[str]) -> Refused:
    subject = f"has {', '.join(map(_readable, unknown))}, which not every file may name"
    return Refused(f"{subject}: if you trust it, import it and give it, {door(*unknown)}")


def door(*names: str) -> str:
    """How what names say is given, to `load_model` or to Keras."""
    qualnames = [name.rpartition(":")[2] for name in names]
    pairs = ", ".join(f'"{qualname}": {qualname}' for qualname in qualnames)
    return f"load_model(path, custom_objects={{{pairs}}})"


def _found(name: str, given: Mapping[str, Named]) -> Named | None:
    """What has a name, or None."""
    for known in (of_given(name, given), _listed().get(name)):
        if known is not None:
            return known
    thing = looked_up(name)
    return thing if isinstance(thing, type) and _is_listed(thing) else None


def _is_listed(cls: type) -> bool:
    package = cls.__module__.split(".")[0]
    if package in _OWN_PACKAGES:
        return not cls.__module__.startswith(_NO_PARTS)
    is_part = issubclass(cls, (*OF_TENSORFLOW, tfp.util.TransformedVariable))
    return is_part and package in ("tensorflow", "tensorflow_probability")


def _full_name(thing: object) -> str:
    """In the outermost package that has it by its name, which stays when modules inside are moved."""
    module = str(getattr(thing, "__module__", None))
    qualname = getattr(thing, "__qualname__", type(thing).__qualname__)
    parts = module.split(".")
    names = [f"{'.'.join(parts[:end])}:{qualname}" for end in range(1, len(parts) + 1)]
    return next((name for name in names if looked_up(name) is thing), names[-1])


def _readable(name: str) -> str:
    return name.replace(":", ".")


def looked_up(name: str) -> Any:
    """What has this name in a module that is there already, or None. Nothing is imported but own modules."""
    # Own modules are imported; others count if somebody has imported them.
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
    # Down the qualified name, through dictionaries alone.
    for part in qualname.split("."):
        thing = vars(thing).get(part) if hasattr(thing, "__dict__") else None  # a module's __getattr__ may import
    return thing
