"""`gpflow_deep.files.stored_objects`: all values come back, files of others are refused."""

import enum
import functools
import inspect
import json
import math
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter, kernels
from gpflow.base import PriorOn

from gpflow_deep.files.stored_names import Refused, given_names
from gpflow_deep.files.stored_objects import decode, encode
from tests.gpflow_deep.saved_models import OwnBijector, own_link

tfb, tfd = tfp.bijectors, tfp.distributions

Pair = namedtuple("Pair", ["first", "second"])


class Level(enum.Enum):
    """A user's choice."""

    LOW = 1


class Box(tf.Module):
    """Holds what it is given."""

    def __init__(self, **state: Any) -> None:
        super().__init__()
        for name, value in state.items():
            setattr(self, name, value)

    @functools.cached_property
    def number(self) -> int:
        return 3

    @property
    def fixed(self) -> int:
        return 4


class Slotted:
    """Has no __dict__ of its own."""

    __slots__ = ("x",)


class SlottedBox(Slotted, tf.Module):
    """Has a slot besides its __dict__."""


class Lying(tfp.bijectors.Bijector):
    """A transform that says that it has no arguments, but has a scale."""

    def __init__(self) -> None:
        super().__init__(forward_min_event_ndims=0, parameters={})
        self.scale = 1.0

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return self.scale * x


def through(value: Any, *given: Any) -> Any:
    """Through JSON text, as in a file."""
    encoded = encode(value, "x")
    node = json.loads(json.dumps(encoded.node, allow_nan=False))
    return decode(node, dict(encoded.arrays), given_names((Box, Level, OwnBijector, *given)))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(10**30), 1.5, 0.1 + 0.2, math.inf, -math.inf, "ä\x00", [], [1, [2.0, None]], {}, ()),
        *((1, (2, [3])), {"a": 1, 2: {"b": ()}, (1, 2): None}, {1, "a"}, frozenset({1.5}), range(1, 9, 2)),
        *(slice(None), slice(1, None, 2), OrderedDict(b=1, a=2), PriorOn.UNCONSTRAINED, Level.LOW),
        *(tf.float32, np.dtype("int16"), np.float32, float, str, tf.TensorShape([2, None]), tf.TensorShape(None)),
        *(tf.exp, tfd.Normal),
    ],
)
def test_plain_values(value: Any) -> None:
    found = through(value)
    assert type(found) is type(value)
    assert str(found) == str(value) if isinstance(value, tf.TensorShape) else found == value


def test_nan_and_numpy_numbers() -> None:
    assert math.isnan(through(float("nan")))
    for value in (np.float64(0.1), np.float32(0.1), np.int16(3), np.bool_(True), np.float64("nan"), np.str_("a")):
        found = through(value)
        assert type(found) is type(value)
        assert found.tobytes() == value.tobytes()


def test_arrays_tensors_and_variables(rng: np.random.Generator) -> None:
    array = rng.normal(size=(2, 3))
    for value in (array, array.T, array.astype(np.float32), np.array(["a", "bc"]), np.zeros((0, 2)), np.array(True)):
        np.testing.assert_array_equal(through(value), value)
    tensor = through(tf.constant(array))
    assert isinstance(tensor, tf.Tensor)
    np.testing.assert_array_equal(tensor, array)
    variable = tf.Variable(array, trainable=False, name="scale", shape=[None, 3])
    found = through(variable)
    np.testing.assert_array_equal(found, array)
    assert (found.trainable, found.name, found.shape.as_list()) == (False, "scale:0", [None, 3])


@pytest.mark.parametrize(
    "make",
    [
        lambda: tfb.Softplus(),
        lambda: tfb.Softplus(hinge_softness=np.float64(0.7), low=tf.constant(0.1, tf.float64)),
        lambda: tfb.Chain([tfb.Shift(np.float64(0.1)), tfb.Scale(np.float64(2.0)), tfb.Exp()]),
        lambda: tfb.Chain([OwnBijector(2.0), tfb.Invert(tfb.Scale(np.float64(3.0)))]),
        lambda: tfb.Sigmoid(np.float64(0.5), np.float64(2.0)),
        lambda: tfb.SoftClip(np.float64(0.5), np.float64(2.0)),
        lambda: tfb.Power(np.float64(3.0)),
        lambda: tfb.Blockwise([tfb.Exp(), tfb.Softplus()], block_sizes=[1, 2]),
        lambda: gpflow.utilities.positive(lower=0.3),
    ],
)
def test_transforms(make: Callable[[], tfp.bijectors.Bijector]) -> None:
    bijector = make()
    x = np.array([0.6, 1.0, 1.4])
    np.testing.assert_array_equal(through(bijector).forward(x), bijector.forward(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tfd.Normal(np.float64(0.0), np.float64(2.0)),
        lambda: tfd.LogNormal(np.zeros(3), np.ones(3)),
        lambda: tfd.Uniform(np.float64(0.0), np.float64(5.0)),
        lambda: tfd.InverseGamma(np.float64(2.0), np.float64(1.0)),
        lambda: tfd.Horseshoe(np.float64(1.0)),
        lambda: tfd.Independent(tfd.Laplace(np.zeros(3), np.float64(1.0)), 1),
        lambda: tfd.MultivariateNormalTriL(np.zeros(3), np.eye(3)),
        lambda: tfd.MultivariateNormalDiag(np.zeros(3)),
        lambda: tfd.MixtureSameFamily(
            tfd.Categorical(probs=np.array([0.3, 0.7])), tfd.Normal(np.array([-1.0, 1.0]), np.ones(2))
        ),
        lambda: tfd.TransformedDistribution(tfd.Normal(np.float64(0.0), np.float64(1.0)), tfb.Exp()),
        lambda: tfd.Sample(tfd.Normal(np.float64(0.0), np.float64(1.0)), [3]),
        lambda: tfd.TruncatedNormal(np.float64(0.0), np.float64(1.0), np.float64(0.0), np.float64(9.0)),
    ],
)
def test_priors(make: Callable[[], tfp.distributions.Distribution]) -> None:
    prior = make()
    x = np.array([0.6, 1.0, 1.4])
    np.testing.assert_array_equal(through(prior).log_prob(x), prior.log_prob(x))


def test_callables() -> None:
    partial = through(functools.partial(tf.nn.leaky_relu, alpha=0.1))
    np.testing.assert_array_equal(partial(-np.ones(1)), tf.nn.leaky_relu(-np.ones(1), alpha=0.1))
    method = through(tfb.Softplus(low=np.float64(2.0)).inverse)
    np.testing.assert_array_equal(method(np.array([3.0])), tfb.Softplus(low=np.float64(2.0)).inverse(np.array([3.0])))
    assert through(own_link, own_link) is own_link


def test_what_is_shared_stays_shared(rng: np.random.Generator) -> None:
    """Also in a circle, and where one object holds the other twice."""
    parameter, array = Parameter(1.0), rng.normal(size=3)
    inner = Box(a=parameter, data=array)
    outer = Box(first=inner, more=[inner, {"p": parameter}], data=array)
    inner.parent = outer
    found = through(outer)
    assert found.first is found.more[0]
    assert found.more[1]["p"] is found.first.a
    assert found.first.parent is found
    assert found.data is found.first.data
    assert len(found.variables) == 1


def test_attributes_are_those_of_the_object_alone() -> None:
    """What a class makes again is not kept, and constructors are not called."""
    box = Box(a=1, pair=Pair(1, [2]))
    assert box.number == 3
    found = through(box, Pair)
    assert vars(found).keys() - vars(box).keys() == set()
    assert "number" not in vars(found)
    assert found.number == 3
    assert found.pair == Pair(1, [2])
    assert found.pair.__class__ is Pair
    assert found.name == box.name
    assert found.name_scope.name == box.name_scope.name


def test_checkpoints_of_the_copy_are_those_of_the_object(rng: np.random.Generator, tmp_path: Path) -> None:
    """TensorFlow tracks the attributes of both."""
    kernel = kernels.Matern12(lengthscales=rng.uniform(size=2)) + kernels.Linear() * kernels.White()
    paths = [tf.train.Checkpoint(kernel=part).write(str(tmp_path / "a")) for part in (kernel, through(kernel))]
    names = [tf.train.list_variables(path) for path in paths]
    assert len(names[0]) > 4
    assert names[0] == names[1]


def looped() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box(f=lambda x: x), r"^x\.f is the function .*lambda>, which is a lambda: define it by `def`"),
        (lambda: Box(parts=[1, {"k": (2, math.nan, threading.Lock())}]), r"^x\.parts\[1\]\['k'\]\[2\] is of the class"),
        (lambda: Box(log=open("/dev/null")), r"^x\.log is of the class _io\.TextIOWrapper"),  # noqa: SIM115
        (lambda: Box(compiled=tf.function(tf.exp)), r"^x\.compiled is compiled by tf\.function: delete it"),
        (lambda: Box(method=Box().with_name_scope), "keep the object itself"),
        (lambda: Box(v=tf.Variable(1.0, constraint=tf.abs)), r"^x\.v has a constraint"),
        (lambda: Box(a=np.array([None])), r"^x\.a has elements of the type object"),
        (lambda: Box(a=tf.constant(["a", "b"])), r"^x\.a has elements of the type object"),
        (lambda: Box(b=tfb.Inline(lambda x: x, forward_min_event_ndims=0)), "is a lambda"),
        (lambda: Box(s=SlottedBox()), r"^x\.s has __slots__"),
        (lambda: Box(s=Slotted()), r"^x\.s has __slots__"),
        (lambda: Box(o=tf.keras.optimizers.Adam()), r"^x\.o is of the class keras\."),
        (lambda: Box(g=tf.random.Generator.from_seed(1)), r"^x\.g is of the class tensorflow\."),
        (lambda: Box(g=np.random.default_rng(1)), r"^x\.g is of the class numpy\."),
        (lambda: Box(m=math), r"^x\.m is of the class builtins\.module"),
        (looped, "nested too deeply, or has a list in itself"),
    ],
)
def test_what_cannot_be_saved_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        encode(make(), "x")
    assert str(error.value).endswith("so it cannot be saved.")
    assert "\n" not in str(error.value)


# Structures that `encode` does not write.

KERNEL = "gpflow.kernels.statics:Constant"
EXP = "tensorflow_probability.python.bijectors.exp:Exp"
BOX = f"{__name__}:Box"
LONG = {"range": [0, 10**8, 1]}


def an_object(**state: Any) -> dict[str, Any]:
    return {"object": [BOX, state, []]}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, "has an unknown part"),
        ({"unknown": 1}, "has an unknown part in its structure: 'unknown'"),
        ({"tuple": [], "set": []}, "has an unknown part in its structure: 'tuple', 'set'"),
        ({"again": 0}, "has no object with the number 0 where it is needed"),
        ([an_object(), {"again": -1}], "has no object with the number -1"),
        ([{"array": ["a"]}, {"tensor": ["a"]}], "needs the array a once more than it has it"),
        ({"array": ["b"]}, "needs the array b"),
        ({"tensor": [[1.0]]}, "has an unknown part in its structure: 'tensor'"),
        ({"object": ["os:_wrap_close", {}, []]}, r"has os\._wrap_close, which not every file may name"),
        ({"object": [KERNEL, {"__class__": 1}, []]}, "has '__class__' among the attributes of Constant"),
        ({"object": [KERNEL, {"active_dims": 1}, []]}, "has 'active_dims' among the attributes"),
        ({"object": ["tf.math.exp", {}, []]}, r"has an object of the class tf\.math\.exp, but <function"),
        (an_object(fixed=1), "has 'fixed' among the attributes of Box"),
        (an_object(_self_setattr_tracking=False), "has '_self_setattr_tracking' among"),
        (an_object(**{"a b": 1}), "has 'a b' among"),
        (an_object(f={"name": "os:system"}), r"has os\.system, which not every file .* if you trust it"),
        (an_object(f={"partial": [{"name": "builtins:exec"}, ["1"], {}]}), r"has builtins\.exec, which"),
        (an_object(f={"partial": [{"name": "tf.math.exp"}, LONG, {"dict": []}]}), "has a range in a partial"),
        (an_object(f={"method": [{"again": 0}, "with_name_scope"]}), "has the method with_name_scope of an object"),
        (an_object(f={"method": [{"object": [EXP, {}, []]}, "__init__"]}), "has the method __init__"),
        (an_object(f={"enum": [{"name": "gpflow.kernels:White"}, "x"]}), "White as a value: if you"),
        ({"scalar": ["O", 1]}, "has the type 'O'"),
        ([{"array": ["a"]}, {"scalar": ["<f8", {"again": 0}]}], "has a ndarray in a scalar"),
        ({"scalar": ["<f8", LONG]}, "has a range in a scalar"),
        ({"shape": [LONG]}, "has a range in a shape"),
        ({"numpy_dtype": ["f8,f8"]}, "has the type 'f8,f8'"),
        ({"namedtuple": ["os:stat_result", [1]]}, r"has os\.stat_result, which"),
        ({"set": [{"object": [KERNEL, {}, []]}]}, "a set or dictionary of other items than numbers and texts"),
        ({"dict": [[{"tuple": [{"array": ["a"]}]}, 1]]}, "a set or dictionary of other items than numbers and texts"),
        ({"set": [k * (2**61 - 1) for k in range(10_000)]}, "few different hashes"),
    ],
)
def test_structures_that_are_refused(node: Any, message: str) -> None:
    with pytest.raises(Refused, match=message) as error:
        decode(node, {"a": np.zeros(2)}, given_names([Box]))
    assert "\n" not in str(error.value)


def test_arrays_that_nothing_uses_are_refused() -> None:
    with pytest.raises(Refused, match="has arrays that its structure does not use: b"):
        decode([], {"b": np.zeros(1)}, {})


def test_transforms_are_shared_as_all_objects_are() -> None:
    """And their variables."""
    scale = tf.Variable(2.0)
    twice = tfb.Scale(scale)
    chain, first, second, variable = through([tfb.Chain([twice, twice]), twice, twice, scale])
    variable.assign(3.0)
    assert [float(bijector.forward(1.0)) for bijector in (chain, first)] == [9.0, 3.0]
    assert first is second
    assert first is chain.bijectors[0]


def test_no_constructor_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is made which is not in the file, and what a constructor does not know comes back, too."""
    lying = Lying()
    lying.scale = 2.0
    for cls in (Box, Lying, tfb.Bijector, tfd.Distribution):
        monkeypatch.setattr(cls, "__init__", lambda self: pytest.fail("called"))
    assert float(through(lying, Lying).forward(3.0)) == 6.0


def _made(cls: Any) -> Any:
    """A transform or distribution by its required arguments, or None."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.name != "self" and p.kind not in (2, 4)]
    fixed = {"bijector": tfb.Exp(), "distribution": tfd.Normal(np.float64(0.0), np.float64(1.0)), "high": 0.9}
    for value in (np.float64(0.5), np.array([0.2, 0.3, 0.5]), np.eye(3), 2):
        try:
            return cls(**{name: fixed.get(name, value) for name in required})
        except Exception:  # TensorFlow raises what it likes for arguments that do not fit
            continue
    return None


#: Which hold functions of TensorFlow inside, or layers of Keras 2.
NOT_SAVED = {"BatchNormalization", "FFJORD", "Masked", "PoissonLogNormalQuadratureCompound"}


@pytest.mark.slow
@pytest.mark.ci
def test_all_transforms_and_distributions_of_tensorflow_come_back() -> None:
    x = np.array([0.2, 0.3, 0.5])
    num_compared = 0
    for space, call in ((tfd, "log_prob"), (tfb, "forward")):
        for name in sorted(set(dir(space)) - NOT_SAVED):
            cls = getattr(space, name)
            value = _made(cls) if isinstance(cls, type) and issubclass(cls, (tfd.Distribution, tfb.Bijector)) else None
            if value is None:
                continue
            copy = through(value)
            try:
                expected = np.asarray(getattr(value, call)(x))
            except Exception:  # which are not of three numbers
                continue
            np.testing.assert_array_equal(getattr(copy, call)(x), expected, err_msg=name)
            num_compared += 1
    assert num_compared > 80
