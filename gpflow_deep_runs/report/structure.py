"""JSON as dataclasses: what is read has the types that the fields say, or is refused with the place of the fault."""

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from gpflow_deep_base.files import parse_json

__all__ = ["built", "dumped", "read_json"]

T = TypeVar("T")
KINDS = {
    bool: "true or false",
    str: "text",
    int: "an integer",
    float: "a number",
    NoneType: "null",
    dict: "an object",
    list: "a list",
}


def read_json(path: str | os.PathLike[str], *, largest: int = 1_000_000) -> Any:
    """The content of a JSON file in UTF-8.

    :param largest: bytes that it may have.
    :raises ValueError: if it is none, as `parse_json`, or larger.
    :raises OSError: if it cannot be read.
    """
    if (size := Path(path).stat().st_size) > largest:
        raise ValueError(f"{path}: must have at most {largest:,} bytes, got {size:,}; results of record are small.")
    try:
        return parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from None


def built(kind: type[T], stored: Any, place: str) -> T:
    """`stored` as a `kind`: a dataclass, text, a number, a Literal, or tuples, mappings and unions of these.

    :param place: where it is, for errors: "results/uci.json: rows[2]".
    :raises ValueError: with the place, if it is something else or the dataclass refuses it.
    """
    value: Any
    arguments = get_args(kind)
    # By the kind of type: unions and choices, then containers, then what is made of fields.
    match get_origin(kind):
        case origin if origin in (Union, UnionType):
            value = _one_of(arguments, stored, place)
        case origin if origin is Literal:
            if stored not in arguments:
                _refuse(place, f"must be {' or '.join(map(repr, arguments))}", stored)
            value = stored
        case origin if origin is tuple:
            _check(list, stored, place)
            value = tuple(built(arguments[0], part, f"{place}[{i}]") for i, part in enumerate(stored))
        case origin if isinstance(origin, type) and issubclass(origin, Mapping):
            _check(dict, stored, place)
            value = {name: built(arguments[1], part, _join(place, name)) for name, part in stored.items()}
        case _ if dataclasses.is_dataclass(kind):
            _check(dict, stored, place)
            value = _of_dataclass(kind, stored, place)
        case _:
            _check(kind, stored, place)
            value = stored
    return value


def dumped(value: object, *, indent: int = 0, taken: int = 0, width: int = 120) -> str:
    """JSON that people read: an object or a list is on one line if it fits there.

    :param indent: of the line that it begins on.
    :param taken: characters of that line that are before it.
    """
    # On one line if that fits, else each part on lines of its own.
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not value or not isinstance(value, dict | list) or max(indent, taken) + len(line) < width:
        return line
    inner = " " * (indent + 2)
    parts = list[str]()
    for name, part in value.items() if isinstance(value, dict) else (("", part) for part in value):
        start = inner + (f"{json.dumps(name, ensure_ascii=False)}: " if isinstance(value, dict) else "")
        parts.append(start + dumped(part, indent=indent + 2, taken=len(start), width=width))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(parts) + f"\n{' ' * indent}{closing}"


def _of_dataclass(kind: Any, stored: Mapping[str, object], place: str) -> Any:
    hints = get_type_hints(kind)
    # Names that the dataclass does not have, then those that it needs and are missing.
    known_fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in stored:
        if name not in known_fields:
            near = difflib.get_close_matches(name, known_fields, 1) or sorted(known_fields)
            raise ValueError(f"{place}: {name!r} is no part of it; perhaps {', '.join(near)}.")
    for name, field in known_fields.items():
        if name not in stored and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{place}: {name!r} is missing.")
    # The parts one by one, each with its place; then what the dataclass itself checks.
    parts = {name: built(hints[name], value, _join(place, name)) for name, value in stored.items()}
    try:
        return kind(**parts)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _one_of(kinds: tuple[type, ...], stored: object, place: str) -> Any:
    """The first of them that `stored` may be, by its type in JSON."""
    # A text or number decides by its type; nothing in a union has two parts of one type.
    for kind in kinds:
        if _is(_json_type(kind), stored):
            return built(kind, stored, place)
    return _refuse(place, f"must be {' or '.join(dict.fromkeys(KINDS[_json_type(kind)] for kind in kinds))}", stored)


def _json_type(kind: type) -> type:
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return dict
    return list if origin is tuple else str if origin is Literal else kind


def _is(kind: type, stored: object) -> bool:
    return isinstance(stored, int | float if kind is float else kind) and isinstance(stored, bool) == (kind is bool)


def _check(kind: type, stored: object, place: str) -> None:
    if not _is(kind, stored):
        _refuse(place, f"must be {KINDS[kind]}", stored)


def _refuse(place: str, requirement: str, stored: object) -> NoReturn:
    shown = json.dumps(stored, ensure_ascii=False)
    raise ValueError(f"{place}: {requirement}, got {shown if len(shown) < 60 else shown[:57] + '...'}.")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if ": " in place else f"{place}: {name}"
