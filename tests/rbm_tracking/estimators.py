"""Estimators by all of their settings."""

import dataclasses
from typing import Any

from gpflow_deep_base.numbers.groups import by_group, group_names
from rbm_tracking.use.estimator import TrackedRBM
from rbm_tracking.use.estimator_config import TrainingConfig

FIELDS = {field.name for field in dataclasses.fields(TrainingConfig)} | group_names(TrainingConfig).keys()


def options(**settings: Any) -> dict[str, Any]:
    """The parameters of `TrackedRBM`: those of `TrainingConfig` among the settings are its `training`."""
    training = {name: value for name, value in settings.items() if name in FIELDS}
    return {name: value for name, value in settings.items() if name not in FIELDS} | {
        "training": TrainingConfig(**by_group(TrainingConfig, training))
    }


def tracked_rbm(**settings: Any) -> TrackedRBM:
    """An estimator with these settings, its own or those of `TrainingConfig`."""
    return TrackedRBM(**options(**settings))
