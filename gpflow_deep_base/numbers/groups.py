"""Dataclasses whose many fields stand in a few groups, each of which is a dataclass in one field.

    @dataclass(frozen=True)
    class Images:
        patch: int = 5

    @grouped
    @dataclass(frozen=True)
    class Model:
        num_layers: int = 2
        images: Images = Images()

    Model(images=Images(patch=7)) == Model(**by_group(Model, {"patch": 7}))

No two fields have one name, whatever group they are in. So flags, and dictionaries of settings, need only the names.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["by_group", "flat", "group_names", "grouped", "value_of"]

T = TypeVar("T")


def group_names(kind: type) -> dict[str, str]:
    """The group of each field that is in one, by the field's name; none if the dataclass is not `grouped`."""
    names: dict[str, str] = getattr(kind, "_group_names", {})
    return names


def grouped(kind: type[T]) -> type[T]:
    """Decorator of a dataclass with groups: a field that is given beside its group is answered by where it belongs."""
    # Each field of a group, by its name, with the name of the group.
    groups = {
        inner.name: field.name
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if dataclasses.is_dataclass(field.default)
        for inner in dataclasses.fields(field.default)
    }
    construct: Callable[..., None] = kind.__init__

    @functools.wraps(construct)
    def construct_or_say(self: object, *args: object, **fields: object) -> None:
        # What belongs into a group is not taken beside it: the message says where.
        for name in fields:
            if name in groups:
                group = type(getattr(kind, groups[name])).__name__
                raise TypeError(
                    f"{kind.__name__} has {name} in a group: give {groups[name]}={group}({name}=...) in place of "
                    f"{name}=..."
                )
        _check_groups(kind, fields)
        construct(self, *args, **fields)

    kind.__init__ = construct_or_say  # type: ignore[method-assign]
    kind._group_names = groups  # type: ignore[attr-defined]
    return kind


def by_group(kind: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a dataclass with groups.

    :param kind: the dataclass.
    :param fields: values by the names of fields, whatever groups they are in; whole groups, too.
    """
    groups = group_names(kind)
    keywords = {name: value for name, value in fields.items() if name not in groups}
    # All fields of a group at once, since some make sense together alone.
    for attribute in dict.fromkeys(groups.values()):
        changes = {name: value for name, value in fields.items() if groups.get(name) == attribute}
        if changes:
            group = keywords.get(attribute, getattr(kind, attribute))
            keywords[attribute] = dataclasses.replace(group, **changes)
    return keywords


def flat(kind: type, fields: Mapping[str, object]) -> dict[str, Any]:
    """The inverse of :func:`by_group`: values of fields, without groups.

    :raises TypeError: if what is given for a group is none.
    """
    _check_groups(kind, fields)
    groups = set(group_names(kind).values())
    values = {name: value for name, value in fields.items() if name not in groups}
    for name in groups & fields.keys():
        values |= vars(fields[name])
    return values


def _check_groups(kind: type, fields: Mapping[str, object]) -> None:
    for name in fields.keys() & set(group_names(kind).values()):
        group = type(getattr(kind, name))
        if not isinstance(fields[name], group):
            raise TypeError(f"{name} of {kind.__name__} must be a {group.__name__}, got {fields[name]!r}.")


def value_of(owner: object, name: str) -> Any:
    """The value of a field of a dataclass, whatever group it is in."""
    group = group_names(type(owner)).get(name)
    return getattr(owner if group is None else getattr(owner, group), name)
