"""gpflow_deep_base.numbers.groups: fields in groups, by their names alone; and no constructor with more than people
turn."""

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

import pytest

import darn
from compression import RecipeConfig
from darn import DARNDensity
from gpflow_deep import DeepGPClassifier, DeepGPRegressor, ModelConfig
from gpflow_deep_base.numbers.groups import by_group, flat, grouped, value_of
from rbm_tracking import SMLConfig, TrackedRBM, TrainingConfig


@dataclass(frozen=True)
class Images:
    patch: int = 5
    stride: int = 1


@grouped
@dataclass(frozen=True)
class Model:
    num_layers: int = 2
    images: Images = Images()


def test_fields_by_their_names() -> None:
    model = Model(3, Images(patch=7))
    assert Model(**by_group(Model, {"patch": 7, "num_layers": 3})) == model
    assert Model(**by_group(Model, {"images": Images(stride=2), "patch": 7})) == Model(images=Images(7, 2))
    assert flat(Model, vars(model)) == {"num_layers": 3, "patch": 7, "stride": 1}
    assert (value_of(model, "patch"), value_of(model, "num_layers")) == (7, 3)


@dataclass(frozen=True)
class Ladder:
    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError("low must be below high")


@grouped
@dataclass(frozen=True)
class Climb:
    ladder: Ladder = Ladder()


@pytest.mark.parametrize("names", [("low", "high"), ("high", "low")])
def test_fields_that_make_sense_together_are_set_together(names: tuple[str, str]) -> None:
    values = {"low": 5, "high": 9}
    assert Climb(**by_group(Climb, {name: values[name] for name in names})) == Climb(Ladder(5, 9))


def test_a_field_beside_its_group_is_answered_by_where_it_belongs() -> None:
    with pytest.raises(TypeError, match=r"Model has patch in a group: give images=Images\(patch=\.\.\.\) in place of"):
        Model(patch=7)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="stride in a group"):
        dataclasses.replace(Model(), stride=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="images of Model must be a Images, got 7"):
        Model(images=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        Model(wrong=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "kind",
    [
        DeepGPClassifier,
        DeepGPRegressor,
        ModelConfig,
        SMLConfig,
        TrackedRBM,
        TrainingConfig,
        darn.TrainingConfig,
        DARNDensity,
        RecipeConfig,
    ],
    ids=lambda kind: kind.__qualname__,
)
def test_no_constructor_has_more_than_fifteen_parameters(kind: Any) -> None:
    fields = {field.name: field.default for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    groups = [type(default) for default in fields.values() if dataclasses.is_dataclass(default)]
    for one in (kind, *groups):
        parameters = inspect.signature(one).parameters
        assert len(parameters) <= 15, f"{one.__name__}: {list(parameters)}"
