"""Models of tests: RBMs of known parameters, estimators by all of their settings."""

import dataclasses
from typing import Any, TypeAlias

import tensorflow as tf

from gpflow_deep_base.numbers.groups import by_group, group_names
from rbm_tracking.model.rbm import RBM
from rbm_tracking.use.estimator import TrackedRBM
from rbm_tracking.use.estimator_config import TrainingConfig
from tests.rbm_tracking import oracles

Settings: TypeAlias = dict[str, Any]
"""Arguments by their names, of values as different as those of a configuration are."""

FIELDS = {field.name for field in dataclasses.fields(TrainingConfig)} | group_names(TrainingConfig).keys()


def to_rbm(parameters: oracles.Parameters, dtype: str = "float64") -> RBM:
    """The RBM of bits with these parameters."""
    return RBM(*(tf.constant(value, dtype) for value in parameters))


def options(**settings: Any) -> Settings:
    """The parameters of `TrackedRBM`: those of `TrainingConfig` among the settings are its `training`."""
    training = {name: value for name, value in settings.items() if name in FIELDS}
    return {name: value for name, value in settings.items() if name not in FIELDS} | {
        "training": TrainingConfig(**by_group(TrainingConfig, training))
    }


def tracked_rbm(**settings: Any) -> TrackedRBM:
    """An estimator with these settings, its own or those of `TrainingConfig`."""
    return TrackedRBM(**options(**settings))
