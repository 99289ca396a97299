"""Flags that contradict each other: found by trying the dataclasses of a script, said before TensorFlow starts.

What dataclasses say of one flag or of two, whose values are tried one by one, is kept with the flags of the script, and
with the values of other flags by which they say something else. What takes three flags is left to the dataclasses.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args, get_origin

from gpflow_deep_runs.cli.flags import Contradiction, NamedFlag, converted, made, words_beside_bool

__all__ = ["found", "holds", "objection"]

_ANY = "*"
"""The value of a flag that is given, but for 0 and numbers below it."""


def objection(known: Sequence[Contradiction], flags: Sequence[NamedFlag], values: Mapping[str, object]) -> str:
    """The message for the values of a command line, or "".

    :param values: by the names of the flags, as `gpflow_deep_runs.cli.flags.read` has them.
    """
    by_name = {flag.name: (converted(flag, values[flag.name]), flag.default) for flag in flags}

    def is_one(name: str, label: object) -> bool:
        value, default = by_name[name]
        if label != _ANY:
            return bool(value == label)
        return value not in (None, (), default) and not (isinstance(value, int | float) and value <= 0)

    for given, unless, message in known:
        is_lifted = any(is_one(name, label) for name, labels in unless.items() for label in labels)
        if not is_lifted and all(is_one(name, label) for name, label in given.items()):
            for name in given:
                message = message.replace(f"{{{name}}}", str(by_name[name][0]))
            return message
    return ""


def found(kind: type, flags: Sequence[NamedFlag]) -> list[Contradiction]:
    """What a dataclass of flags says of one value or of two."""
    ask = _asked(kind, flags)
    choices = [_choice(flag, label, ask) for flag in flags for label in _labels(flag)]
    # Of none: a flag that has to be given, or one in its place.
    if message := ask({}, ()):
        others = {choice.name: [choice.label] for choice in choices if _said(ask, [choice]) != message}
        return [Contradiction({}, others, message)]
    # Of one; a text that is named by what is said of it is wrong by itself, which is said elsewhere.
    alone = {choice[:2]: _said(ask, [choice]) for choice in choices}
    choices = [choice for choice in choices if not _is_named(choice, alone[choice[:2]])]
    given: list[tuple[_Choice, ...]] = [(choice,) for choice in choices if alone[choice[:2]]]
    # Of two: what is said of neither by itself.
    pairs = [pair for pair in itertools.combinations(choices, 2) if pair[0].name != pair[1].name]
    given += [pair for pair in pairs if _said(ask, pair) not in ("", *(alone[choice[:2]] for choice in pair))]
    # Other flags by which something else is said, or nothing.
    contradictions = []
    others_beside = [(other, _needed(ask, other, choices)) for other in choices]
    for part in given:
        message = _said(ask, part)
        names = [choice.name for choice in part]
        unless = dict[str, list[object]]()
        for other, needed in others_beside:
            beside = [choice for choice in needed if choice.name not in names]
            if other.name not in names and not _is_said(ask, message, part, [other, *beside]):
                unless.setdefault(other.name, []).append(other.label)
        contradictions.append(Contradiction({choice.name: choice.label for choice in part}, unless, message))
    return contradictions


def _is_said(ask: _Ask, message: str, part: Sequence[_Choice], others: Sequence[_Choice]) -> bool:
    """Whether that is still what is said where others are given, too."""
    names = [choice.name for choice in part]
    return {ask(values, names) for values in _combined([*part, *others])} == {message}


def _needed(ask: _Ask, other: _Choice, choices: Sequence[_Choice]) -> list[_Choice]:
    """The first choice that another one needs, as --target needs --data: else that would be all that is said of it."""
    if _is_said(ask, "", [other], []):
        return []
    rest = [choice for choice in choices if choice.name != other.name]
    return [choice for choice in rest if _is_said(ask, "", [other], [choice])][:1]


def holds(kind: type, flags: Sequence[NamedFlag], known: Contradiction) -> bool:
    """Whether a dataclass of flags still says what was found."""
    ask = _asked(kind, flags)
    by_name = {flag.name: flag for flag in flags}
    if not known.given.keys() <= by_name.keys():
        return False
    part = [_choice(by_name[name], label, ask) for name, label in known.given.items()]
    return _said(ask, part) == known.message


class _Choice(NamedTuple):
    """What a flag may be: a word, or `_ANY`, for which some values stand."""

    name: str
    label: object
    values: Sequence[object]


_Ask: TypeAlias = Callable[[Mapping[str, object], Sequence[str]], str]
"""Values by flag, and those to write {name} for in what is said of them, to that; "" for nothing."""


def _asked(kind: type, flags: Sequence[NamedFlag]) -> _Ask:
    needed = {flag: 1 if flag.kind in (int, float) else "x.csv" for flag in flags if flag.is_required}
    defaults = {flag: needed.get(flag, flag.default) for flag in flags}
    by_name = {flag.name: flag for flag in flags}
    open_names = {flag.name for flag in flags if _labels(flag) == [_ANY]}

    def ask(values: Mapping[str, object], names: Sequence[str]) -> str:
        try:
            made(kind, {**defaults, **{by_name[name]: value for name, value in values.items()}})
        except ValueError as error:
            message = str(error)
            for name in open_names.intersection(names):
                value = re.escape(str(values[name]))
                before = "" if isinstance(values[name], str) else "got |and |="  # of numbers, which may be others
                message = re.sub(rf"({before}){value}(?!\.?\w)", rf"\g<1>{{{name}}}", message)
            return message
        return ""

    return ask


def _said(ask: _Ask, given: Sequence[_Choice]) -> str:
    """What is said of all values of some choices alike, or ""."""
    names = [choice.name for choice in given]
    first = ""
    for values in _combined(given):
        message = ask(values, names)
        if not message or (first and message != first):
            return ""
        first = message
    return first


def _combined(given: Sequence[_Choice]) -> Iterator[dict[str, object]]:
    names = [choice.name for choice in given]
    return (dict(zip(names, values, strict=True)) for values in itertools.product(*(part.values for part in given)))


def _labels(flag: NamedFlag) -> list[object]:
    """What a flag may be but its default: each of its words, or `_ANY`."""
    words = words_beside_bool(flag.kind)
    if flag.kind is bool or words:
        choices = (True, False, *words)
    else:
        choices = get_args(flag.kind) if get_origin(flag.kind) is Literal else (_ANY,)
    return [choice for choice in choices if choice != flag.default and not flag.is_required]


def _choice(flag: NamedFlag, label: object, ask: _Ask) -> _Choice:
    is_list = get_origin(flag.kind) is tuple
    kind = get_args(flag.kind)[0] if is_list else flag.kind
    some: dict[object, list[object]] = {int: [3, 100_003, 1, 2], float: [0.375, 1000.375, 0.01, 1.5]}
    values = some.get(kind, [f"some_{flag.name}"]) if label == _ANY else [label]
    values = [(value,) if is_list else value for value in values if value != flag.default]
    # Two that are right by themselves, or more if none is.
    right = [value for value in values if not ask({flag.name: value}, ())]
    return _Choice(flag.name, label, right[:2] or values)


def _is_named(choice: _Choice, message: str) -> bool:
    """Whether what is said of a text names it."""
    is_text = f"some_{choice.name}" in str(choice.values[0])
    return is_text and (f"some_{choice.name}" in message or f"{{{choice.name}}}" in message)
