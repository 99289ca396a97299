"""Recipes by the names of their fields alone."""

from typing import Any

from compression import RecipeConfig
from gpflow_deep_base.numbers.groups import by_group


def recipe_config(**fields: Any) -> RecipeConfig:
    """A `RecipeConfig` of fields, whatever group they are in."""
    return RecipeConfig(**by_group(RecipeConfig, fields))
