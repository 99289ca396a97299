"""`gpflow_deep.files.stored_objects`: all values come back, files of others are refused."""

import enum
import functools
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

from gpflow_deep.files.stored_names import Refused
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


class NotTelling(tfp.bijectors.Bijector):
    """A transform that does not record its arguments."""

    def __init__(self) -> None:
        super().__init__(forward_min_event_ndims=0)


def through(value: Any, *given: Any) -> Any:
    """Through JSON text, as in a file."""
    encoded = encode(value, "x")
    named = {name: thing for name, thing in encoded.named.items() if thing in given}
    return decode(json.loads(json.dumps(encoded.node, allow_nan=False)), dict(encoded.arrays), named)


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
        (lambda: Box(b=NotTelling()), r"^x\.b is a NotTelling, which does not say what made it: .*dict\(locals\(\)\)"),
        (lambda: Box(b=tfb.Inline(lambda x: x, forward_min_event_ndims=0)), "is a lambda"),
        (lambda: Box(s=SlottedBox()), r"^x\.s has __slots__"),
        (lambda: Box(s=Slotted()), r"^x\.s is of the class"),
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
BOX = f"{__name__}:Box"


def an_object(**state: Any) -> dict[str, Any]:
    return {"object": [BOX, state]}


def made(name: str, **arguments: Any) -> dict[str, Any]:
    return {"made": [f"tensorflow_probability.python.{name}", arguments]}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({}, "has an unknown part"),
        ({"unknown": 1}, "has an unknown part in its structure: 'unknown'"),
        ({"tuple": [], "set": []}, "has an unknown part in its structure: 'tuple', 'set'"),
        ({"again": 0}, "has no object with the number 0 where it is needed"),
        ([an_object(), {"again": -1}], "has no object with the number -1"),
        (
            [made("bijectors.exp:Exp"), made("bijectors.chain:Chain", bijectors=[{"again": 0}])],
            "has a Exp inside a constructor that it has elsewhere, too",
        ),
        ([{"array": "a"}, {"array": "a"}], "needs the array a once more than it has it"),
        ({"array": "b"}, "needs the array b"),
        ({"object": ["os:_wrap_close", {}]}, "which no file may have"),
        ({"object": [KERNEL, {"__class__": 1}]}, "has '__class__' among the attributes of Constant"),
        ({"object": [KERNEL, {"active_dims": 1}]}, "has 'active_dims' among the attributes"),
        (an_object(fixed=1), "has 'fixed' among the attributes of Box"),
        (an_object(_self_setattr_tracking=False), "has '_self_setattr_tracking' among"),
        (an_object(**{"a b": 1}), "has 'a b' among"),
        (an_object(f={"function": "os:system"}), "has the function os.system: if you trust it"),
        (an_object(f={"partial": [{"function": "builtins:exec"}, ["1"], {}]}), "has the function builtins.exec"),
        (an_object(f={"method": ["with_name_scope", {"again": 0}]}), "has the method with_name_scope of an object"),
        (an_object(f={"method": ["__init__", made("bijectors.exp:Exp")]}), "has the method __init__"),
        ({"made": [KERNEL, {"dict": []}]}, "has an object of the class Constant with arguments"),
        ({"object": [made("bijectors.exp:Exp")["made"][0], {}]}, "has an object of the class Exp without arguments"),
        (made("distributions.pixel_cnn:PixelCNN", image_shape=[8, 8, 1]), "of the class PixelCNN with arguments"),
        ({"scalar": ["O", 1]}, "has the type 'O'"),
        ({"numpy_dtype": ["f8,f8"]}, "has the type 'f8,f8'"),
        ({"namedtuple": ["os:stat_result", [1]]}, "no file may have"),
    ],
)
def test_structures_that_are_refused(node: Any, message: str) -> None:
    with pytest.raises(Refused, match=message) as error:
        decode(node, {"a": np.zeros(2)}, {})
    assert "\n" not in str(error.value)


def test_arrays_that_nothing_uses_are_refused() -> None:
    with pytest.raises(Refused, match="has arrays that its structure does not use: b"):
        decode([], {"b": np.zeros(1)}, {})


def test_a_parameter_has_the_shape_of_its_value() -> None:
    encoded = encode(Parameter(np.ones(3), transform=gpflow.utilities.positive()), "p")
    encoded.node["object"][1]["_shape"] = {"shape": [[4]]}
    with pytest.raises(Refused, match=r"a parameter of shape \(4,\) with a value of shape \(3,\)"):
        decode(encoded.node, encoded.arrays, {})


def test_what_a_constructor_made_is_written_out_inside_others() -> None:
    """So that a file cannot have 2^40 parts in 40 lines; variables are shared all the same."""
    scale = tf.Variable(2.0)
    twice = tfb.Scale(scale)
    chain, first, second, variable = through([tfb.Chain([twice, twice]), twice, twice, scale])
    variable.assign(3.0)
    assert [float(bijector.forward(1.0)) for bijector in (chain, first)] == [9.0, 3.0]
    assert first is second
    assert first is not chain.bijectors[0]


def test_no_constructor_of_a_module_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    box = Box(a=1)
    monkeypatch.setattr(Box, "__init__", lambda self: pytest.fail("called"))
    assert through(box).a == 1
