"""Command-line flags from dataclasses: one flag for each field, with its default, and its help from `:param name:`.

    @dataclass(frozen=True)
    class Flags:
        '''Train a model.'''                                  # what --help begins with

        run: Settings = group(batch_size=100)                 # every field a flag; another default for one of them
        model: Later[DARNConfig] = group()                    # fields without a default are left to the program
        local: Later[LocalConfig] = group(prefix="local_")

    flags = parse(Flags, ["--hidden=500,200", "--flagfile=run/flags.txt"])
    config = flags.model(visible=784)

Of a dataclass whose fields stand in groups (`gpflow_deep_base.numbers.groups`) flags have the names of the fields
alone.

Nothing is global: each call of `parse` has flags of its own, so any number of programs share one process. The syntax is
absl's: `--name=value`, `--noname`, `--flagfile=FILE`, lists with commas. A field is no flag if its type is not one of
`bool`, `int`, `float`, `str`, a `Literal` of strings, a tuple of these, one of them `| None`, or
`bool | Literal["word"]` for what is yes, no, or a word. Control characters are refused: a line of a file of flags is
one flag.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import inspect
import io
import math
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from absl import flags as absl_flags

from gpflow_deep_base.numbers.groups import by_group, flat, group_names, value_of
from gpflow_deep_base.text import has_control_characters

__all__ = [
    "Description",
    "HelpWanted",
    "Later",
    "NamedFlag",
    "at_least",
    "changed",
    "describe",
    "flags_of",
    "group",
    "help_page",
    "help_text",
    "named_flags",
    "parse",
    "positional",
    "read",
    "text",
    "text_of",
    "words_beside_bool",
]

T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any]
"""By the names of flags, what absl reads of them: a truth, a number, a text, a list of texts, or None."""
Main: TypeAlias = Callable[[Any], None]
"""A function of one dataclass, which its annotation names."""
NOT_STORED = frozenset({"resume", "run_dir"})
HELP_WIDTH = 80


class Later(Generic[T]):
    """Annotation of a group whose dataclass is made by the program: a function of the fields that are no flags."""

    keywords: Values
    """The fields that are flags."""

    def __call__(self, **fields: object) -> T:
        """The dataclass with the flags' values and these."""
        raise NotImplementedError("only an annotation; `parse` puts a functools.partial here.")


class HelpWanted(Exception):
    """--help was given; the message is the help."""


class NamedFlag(NamedTuple):
    """One flag: the group and the field that it sets, its name on the command line, its type without None."""

    group: str
    field: str
    name: str
    kind: object
    default: Any
    is_required: bool
    help: str


class Contradiction(NamedTuple):
    """What is said where flags have these values.

    :ivar given: the values, by flag; "*" for whatever is given.
    :ivar unless: values of other flags with which something else is said, or nothing.
    :ivar message: with {name} in place of values that are "*".
    """

    given: dict[str, object]
    unless: dict[str, list[object]]
    message: str


class Description(NamedTuple):
    """What --help and the reader of a command line need to know.

    :ivar about: what the program does.
    :ivar flags: in the order in which they are shown.
    :ivar positional: name of the flag that may be given without its name, or "".
    :ivar refused: what is said of numbers that a flag cannot have: by its name, "0", and "-1" for those below 0,
        if these words are others.
    :ivar free: flags that may differ when a run is resumed, besides those that always may.
    :ivar contradictions: see `gpflow_deep_runs.cli.contradictions`.
    """

    about: str
    flags: list[NamedFlag]
    positional: str
    refused: Mapping[str, Mapping[str, str]] = types.MappingProxyType({})
    free: Sequence[str] = ()
    contradictions: Sequence[Contradiction] = ()


def group(*, prefix: str = "", omit: Sequence[str] = (), **defaults: object) -> Any:
    """A field of a dataclass of flags whose own fields are the flags.

    :param prefix: goes before the name of each flag.
    :param omit: fields that are no flags here; they have their default, or the one in `defaults`.
    :param defaults: other defaults than those of the dataclass.
    """
    return dataclasses.field(metadata={"prefix": prefix, "omit": tuple(omit), "defaults": defaults})


def positional() -> Any:
    """A required field of text that may be given without the name of its flag: `gpflow-deep sweep FILE`."""
    return dataclasses.field(metadata={"positional": True})


def parse(kind: type[T], arguments: Sequence[str], program: str = "program", *, with_absl: bool = False) -> T:
    """Make a `kind` from the command line.

    :param kind: a dataclass, see the module's docstring.
    :param with_absl: also take absl's own flags, such as --verbosity, and set them for the process.
    :raises HelpWanted: for --help.
    :raises ValueError: naming the flag: unknown, of the wrong type, missing; or what a dataclass says about its fields;
        and if two fields of `kind` have one name.
    """
    description = describe(kind)
    values = read(description, arguments, program, with_absl=with_absl)
    return made(kind, {flag: converted(flag, values[flag.name].value) for flag in description.flags})


def read(
    description: Description, arguments: Sequence[str], program: str, *, with_absl: bool = False
) -> absl_flags.FlagValues:
    """The values of flags on a command line, without the dataclass that they are the fields of.

    :param description: of the flags.
    :param arguments: without the program's name.
    :param program: its name, for --help.
    :param with_absl: also take absl's own flags.
    :return: values by the flags' names.
    :raises HelpWanted: for --help.
    :raises ValueError: naming the flag that is unknown, of the wrong type, or missing.
    """
    # The flags of the dataclass, --help, and those of absl that have no namesake among them.
    values = absl_flags.FlagValues()
    for flag in description.flags:
        _define(values, flag)
    absl_flags.DEFINE_boolean("help", False, "Show this.", flag_values=values)
    if with_absl:
        for name in list(absl_flags.FLAGS):
            if name not in values and absl_flags.FLAGS[name].name == name:  # else the short name of another
                values[name] = absl_flags.FLAGS[name]

    # absl reads the line; what it finds wrong becomes one line of text.
    positional_flag = description.positional
    values.set_gnu_getopt(bool(positional_flag))  # flags may also follow it
    try:
        positionals = values([program, *arguments])
    except absl_flags.Error as error:
        if isinstance(error.__context__, OSError):  # it speaks of "ERROR:: [Errno 2]"
            cause = error.__context__
            raise ValueError(f"--flagfile={cause.filename}: {(cause.strerror or '').lower()}.") from error
        raise ValueError(f"{error}; see --help.") from error
    if values["help"].value:
        raise HelpWanted(help_page(description, program))

    # What stands without a name is the positional flag; anything else is wrong.
    if positional_flag and positionals[1:] and values[positional_flag].value is None:
        values[positional_flag].value = positionals.pop(1)
    if positionals[1:]:
        raise ValueError(f"all arguments must be flags, --name=value, got {positionals[1]!r}; see --help.")
    for flag in description.flags:
        value = values[flag.name].value
        if flag.is_required and value is None:
            raise ValueError(f"--{flag.name} must be given; see --help.")
        converted(flag, value)
        for word in value if isinstance(value, list) else (value,):
            if isinstance(word, str) and has_control_characters(word):
                raise ValueError(f"--{flag.name} must be in one line without control characters, got {word!r}.")
            if isinstance(word, str) and re.search("[\ud800-\udfff]", word):
                raise ValueError(f"--{flag.name} must be UTF-8, got {word!r}; give the file another name.")
    return values


def words_beside_bool(kind: object) -> tuple[str, ...]:
    """The words that a flag may have in place of yes and no: ("auto",) for `bool | Literal["auto"]`, () for others."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()
    words = tuple(word for member in kinds if get_origin(member) is Literal for word in get_args(member))
    return words if bool in kinds and len(kinds) == 2 else ()


def text(flags: object) -> str:
    """The flags that `parse` would make these of, one a line; without those that are None, --run_dir and --resume."""
    return _lines(_line(flag, value) for flag, value in _stored(flags))


def text_of(description: Description, values: Mapping[str, object]) -> str:
    """What :func:`text` says of the dataclass that :func:`read` gave the values of.

    :param values: by the flags' names.
    """
    pairs = [(flag, converted(flag, values[flag.name])) for flag in description.flags]
    return _lines(_line(flag, value) for flag, value in pairs if _is_stored(flag, value))


def changed(flags: object) -> str:
    """Those of `text` that are not what they are without being given, one a line."""
    lines = [_line(flag, value) for flag, value in _stored(flags) if value != flag.default]
    return "".join(f"{line}\n" for line in sorted(lines))


def _stored(flags: object) -> Iterator[tuple[NamedFlag, object]]:
    """The flags that have a value and belong to the run, not to the folder."""
    for flag in named_flags(type(flags)):
        # A group that the program makes later is a partial function, which has its fields as keywords.
        owner = getattr(flags, flag.group) if flag.group else flags
        if isinstance(owner, functools.partial):
            value = flat(owner.func, owner.keywords)[flag.field]  # type: ignore[arg-type]
        else:
            value = value_of(owner, flag.field)
        if _is_stored(flag, value):
            yield flag, value


def _is_stored(flag: NamedFlag, value: object) -> bool:
    return value is not None and flag.name not in NOT_STORED


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(sorted(lines)) + "\n"


def _line(flag: NamedFlag, value: object) -> str:
    if isinstance(value, bool):
        return f"--{flag.name}" if value else f"--no{flag.name}"
    return f"--{flag.name}={_listed(value) if isinstance(value, tuple) else value}"


def at_least(flags: object, least: Mapping[str, float]) -> None:
    """For `__post_init__` of a dataclass of flags: refuse fields below their least values; None means not given.

    :raises ValueError: naming the flag.
    """
    for name, number in least.items():
        if (value := getattr(flags, name)) is not None and value < number:
            raise ValueError(f"--{name} must be at least {number}, got {value}.")


def flags_of(main: Main) -> type:
    """The dataclass that a function of it takes."""
    (parameter,) = inspect.signature(main).parameters
    kind: type = get_type_hints(main)[parameter]
    return kind


def describe(kind: type) -> Description:
    """The flags of a dataclass, and what its docstring says before them."""
    purpose = re.split(r"^\s*:param", inspect.getdoc(kind) or "", maxsplit=1, flags=re.MULTILINE)[0].strip()
    positional_names = [field.name for field in dataclasses.fields(kind) if "positional" in field.metadata]
    return Description(purpose, list(named_flags(kind)), positional_names[0] if positional_names else "")


def help_text(kind: type, program: str) -> str:
    """What --help shows: the first paragraphs of the docstring, and each flag with its default and meaning."""
    return help_page(describe(kind), program)


def help_page(description: Description, program: str) -> str:
    """What --help shows of a program with these flags."""
    # What the program does, wrapped as a terminal has it.
    paragraphs = f"{program}: {description.about}".split("\n\n")
    lines = "\n\n".join(
        textwrap.fill(paragraph, HELP_WIDTH, break_on_hyphens=False) for paragraph in paragraphs
    ).splitlines()
    lines.append("")
    # Each flag: its name and the words beside yes and no, its choices and default, its meaning.
    for flag in description.flags:
        words = words_beside_bool(flag.kind)
        name = f"--[no]{flag.name}" if flag.kind is bool or words else f"--{flag.name}"
        name = ", ".join([name, *(f"--{flag.name}={word}" for word in words)])
        shown = ",".join(map(str, flag.default)) if isinstance(flag.default, tuple) else flag.default
        default = "required" if flag.is_required else "not set" if shown is None else "empty" if shown == "" else shown
        choices = f"one of {', '.join(get_args(flag.kind))}; " if get_origin(flag.kind) is Literal else ""
        lines += textwrap.wrap(f"  {name} ({choices}{default})", HELP_WIDTH, subsequent_indent=" " * 8)
        lines += textwrap.wrap(flag.help, HELP_WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([*lines, "", "  --flagfile=FILE reads flags from a file; --helpfull lists those of absl, too."])


def named_flags(kind: type) -> Iterator[NamedFlag]:
    """All flags of a dataclass, those of its groups among them, in the order of the fields."""
    hints = get_type_hints(kind)
    # A field with a prefix is a group, whose own fields are the flags.
    for field in dataclasses.fields(kind):
        if "prefix" not in field.metadata:
            yield from _own_flags(kind, only=field.name)
            continue
        is_later = get_origin(hints[field.name]) is Later
        inner = get_args(hints[field.name])[0] if is_later else hints[field.name]
        yield from _own_flags(inner, within=field.name, is_later=is_later, **field.metadata)


def _own_flags(
    kind: type,
    *,
    only: str | None = None,
    within: str = "",
    prefix: str = "",
    omit: Sequence[str] = (),
    defaults: Mapping[str, object] = types.MappingProxyType({}),
    is_later: bool = False,
) -> Iterator[NamedFlag]:
    hints = get_type_hints(kind)
    helps = _helps(kind)
    for field in dataclasses.fields(kind):
        base = _without_none(hints[field.name])
        # A group of fields, which are flags as if they stood beside it.
        if field.name in group_names(kind).values():
            yield from _own_flags(base, within=within, prefix=prefix, omit=omit, defaults=defaults, is_later=is_later)
            continue
        is_open = field.default is dataclasses.MISSING
        # A default of the group takes the place of that of the dataclass.
        default = defaults.get(field.name, None if is_open else field.default)
        # No flag: what the group omits, types that a line cannot say, fields that the program fills in.
        is_left_out = field.name in omit or not _is_flag(base) or (is_open and is_later)
        if is_left_out or only not in (None, field.name):
            continue
        is_required = is_open and field.name not in defaults
        help = helps.get(field.name, "")
        yield NamedFlag(within, field.name, prefix + field.name, base, default, is_required, help)


def made(kind: type[T], values: Mapping[NamedFlag, object]) -> T:
    """The dataclass from the values of its flags."""
    hints = get_type_hints(kind)
    own_values = dict[str, object]()
    groups = dict[str, dict[str, object]]()
    # Fields that a group omits have the default that the group gives.
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if "prefix" in field.metadata:
            defaults = field.metadata["defaults"]
            groups[field.name] = {name: defaults[name] for name in field.metadata["omit"] if name in defaults}
    # Each value goes to its group, or to the dataclass itself.
    for flag, value in values.items():
        (groups[flag.group] if flag.group else own_values)[flag.field] = value
    # Groups become dataclasses, or functions that the program completes.
    for name, fields in groups.items():
        is_later = get_origin(hints[name]) is Later
        made_by = get_args(hints[name])[0] if is_later else hints[name]
        keywords = by_group(made_by, fields)
        own_values[name] = functools.partial(made_by, **keywords) if is_later else made_by(**keywords)
    return kind(**own_values)


def _without_none(hint: object) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint


def _is_flag(kind: object) -> bool:
    if get_origin(kind) is tuple:
        return all(item in (int, float, str, Ellipsis) for item in get_args(kind))
    return kind in (bool, int, float, str) or get_origin(kind) is Literal or bool(words_beside_bool(kind))


class _BoolOrWord(absl_flags.BooleanParser):
    """Reads yes and no as flags of truth do, and some words as they are."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self._words = words

    def parse(self, argument: str | int) -> Any:
        return argument if argument in self._words else super().parse(argument)


def _define(values: absl_flags.FlagValues, flag: NamedFlag) -> None:
    if flag.name in values:
        raise ValueError(f"two fields are the flag --{flag.name}; give the group of one of them a prefix.")
    # Types that absl has a definition for; texts are what is left.
    simple: dict[object, Callable[..., object]] = {
        bool: absl_flags.DEFINE_boolean,
        int: absl_flags.DEFINE_integer,
        float: absl_flags.DEFINE_float,
    }
    define = simple.get(flag.kind, absl_flags.DEFINE_string)
    # Not so simple: truth or a word, one of several words, a list.
    if words := words_beside_bool(flag.kind):
        parser = _BoolOrWord(words)
        defined = absl_flags.Flag[Any](parser, None, flag.name, flag.default, flag.help, boolean=True)
        absl_flags.DEFINE_flag(defined, values)
    elif get_origin(flag.kind) is Literal:
        absl_flags.DEFINE_enum(flag.name, flag.default, get_args(flag.kind), flag.help, values)
    elif get_origin(flag.kind) is tuple:
        default = None if flag.default is None else [str(item) for item in flag.default]
        absl_flags.DEFINE_list(flag.name, default, flag.help, values)
    else:
        define(flag.name, flag.default, flag.help, flag_values=values)


def _listed(values: Sequence[object]) -> str:
    """With commas between them, as absl reads lists: one that holds a comma is put in quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def converted(flag: NamedFlag, value: Any) -> Any:
    # absl leaves lists as texts.
    if get_origin(flag.kind) is tuple and value is not None:
        item = get_args(flag.kind)[0]
        listed = _listed(value)
        try:
            value = tuple(item(text) for text in value if str(text).strip())
        except ValueError as error:
            raise ValueError(f"--{flag.name} must list numbers, as --{flag.name}=8,4, got {listed}.") from error
    # NaN would pass every comparison with a limit.
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, float) and math.isnan(number):
            raise ValueError(f"--{flag.name} must be a number, got nan.")
    return value


def _helps(kind: object) -> dict[str, str]:
    """Field -> its `:param` text, as one line."""
    # A text ends where the next field of the docstring or an empty line begins.
    pieces = re.split(r":(?:param|ivar) (\w+):", inspect.getdoc(kind) or "")
    helps = {
        name: re.split(r":(?:returns?|raises)\b|\n\n", body)[0]
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    return {name: " ".join(body.split()) for name, body in helps.items()}
