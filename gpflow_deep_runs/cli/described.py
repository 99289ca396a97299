"""What a command line gets wrong, and its --help, before TensorFlow takes seconds to start.

The flags of a script are fields of dataclasses of the packages that it uses, so that reading them imports TensorFlow.
`flags.json`, beside this file, describes the flags of all scripts, and what the scripts say of values that are wrong.
`python -m gpflow_deep_runs.cli.described` in a checkout writes it anew; a test compares it with the scripts.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import GenericAlias
from typing import Any, Literal, NoReturn, get_args, get_origin

from gpflow_deep_base.files import entries, write_text
from gpflow_deep_runs.cli.contradictions import found, holds, objection
from gpflow_deep_runs.cli.flags import (
    Contradiction,
    Description,
    HelpWanted,
    NamedFlag,
    Values,
    converted,
    describe,
    flags_of,
    help_page,
    parse,
    read,
    text_of,
    words_beside_bool,
)
from gpflow_deep_runs.cli.output import print_asked_for
from gpflow_deep_runs.run_dir import RunDir, check_free, check_same_flags, is_resumed
from gpflow_deep_runs.verbs import VERBS

__all__ = ["FILE", "answer", "descriptions_of", "load", "stored"]

FILE = Path(__file__).parent / "flags.json"


#: Flags that name a file or folder to read. Patterns with `*`, `?` or `[` are left to the program.
_INPUTS = ("data", "data_dir", "file", "input", "labels", "lookup", "model", "pretrained", "runs")

#: Of scripts that use a run: a file of it without which it has no model, and the verb that makes it.
_MODELS = {"predict_dgp": ("inputs.json", "train"), "predict_ebp": ("model_*.npz", "ebp")}

#: Flags that list columns of --data.
_COLUMNS = ("target", "features", "ignore", "categorical", "numeric", "dates")

#: What numbers and words are tried with. What is refused of them is refused of 0, of all numbers below 0, of 1, of all
#: above 1 (if it is of `_LARGE`), of all words but those that are in the message and taken, and of an empty list.
_NUMBERS = ("0", "-1", "1.5", "1")
_LARGE = "1000000000"
_WORD = "nonsense"

_SIMPLE = {"bool": bool, "int": int, "float": float, "str": str}
"""Types of flags, by the words that JSON has for them."""
_HEAD = 2**18
"""Bytes at the beginning of a text among which its names of columns are."""


def load() -> dict[str, Description]:
    """The descriptions in `flags.json`, by script, or by "script command" where a script has several."""
    content = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    return {
        name: Description(
            entry["about"],
            [_named(flag) for flag in entry["flags"]],
            entry["positional"],
            entry.get("refused", {}),
            entry.get("free", ()),
            [Contradiction(*parts) for parts in entry.get("contradictions", ())],
        )
        for name, entry in content.items()
    }


def stored(descriptions: Mapping[str, Description]) -> str:
    """The text of `flags.json`."""
    programs = list[str]()
    for name, description in sorted(descriptions.items()):
        texts = {key: getattr(description, key) for key in ("about", "positional", "refused", "contradictions")}
        fields = [f"{_line(key)}: {_line(value)}" for key, value in {**texts, "free": sorted(description.free)}.items()]
        flags = ",\n".join(_line(_plain(flag)) for flag in description.flags)  # one a line
        programs.append(f"{_line(name)}: {{\n" + ",\n".join([*fields, f'"flags": [\n{flags}\n]']) + "\n}")
    return "{\n" + ",\n".join(programs) + "\n}\n"


def descriptions_of(name: str, script: Any, *, is_new: bool = False) -> dict[str, Description]:
    """Those of a script, as :func:`load` has them.

    :param name: of its file, without .py.
    :param script: the module, with a function `main` or a dictionary `COMMANDS` of functions.
    :param is_new: find flags that contradict each other anew, which takes seconds; else those in `flags.json` that
        still do.
    """
    commands = getattr(script, "COMMANDS", None)
    mains = {name: script.main} if commands is None else {f"{name} {key}": main for key, main in commands.items()}
    free = getattr(script, "REPORT_FLAGS", ())
    known = {} if is_new else load()
    descriptions = dict[str, Description]()
    # Of each program its flags, what they refuse, and which contradict each other.
    for key, main in mains.items():
        kind = flags_of(main)
        description = describe(kind)
        if is_new:
            contradictions = found(kind, description.flags)
        else:
            stored_ones = known[key].contradictions if key in known else ()
            contradictions = [part for part in stored_ones if holds(kind, description.flags, part)]
        descriptions[key] = description._replace(refused=_refused(kind), free=free, contradictions=contradictions)
    return descriptions


def _refused(kind: type) -> dict[str, dict[str, str]]:
    """What is said of each flag's values of `_NUMBERS`, `_WORD` and ""; `{}` is where the value stands. With "words":
    those that the flag may be.
    """
    flags = describe(kind).flags
    # Flags that must be given have some value while another one is tried.
    needed = {flag.name: "1" if flag.kind in (int, float) else "x.csv" for flag in flags if flag.is_required}

    def said(flag: NamedFlag, value: str) -> str:
        """What is wrong with one value, or ""; nothing about flags that are not given."""
        try:
            parse(kind, [f"--{name}={argument}" for name, argument in {**needed, flag.name: value}.items()])
        except ValueError as error:
            if not value:
                return str(error) if flag.name in str(error) else ""
            # With {} in place of the value, the message serves all values of its kind.
            template = re.sub(rf"got (\(?'?){value}(\.0)?(?![\d.]\d)", r"got \1{}", str(error))
            return template if "{}" in template else ""
        return ""

    return {flag.name: messages for flag in flags if (messages := _messages(flag, said))}


def _messages(flag: NamedFlag, said: Callable[[NamedFlag, str], str]) -> dict[str, str]:
    """The part of :func:`_refused` for one flag."""
    is_list = get_origin(flag.kind) is tuple
    kind = get_args(flag.kind)[0] if is_list else flag.kind
    messages = dict[str, str]()
    # An empty list can be wrong only where the default is another.
    if is_list and flag.default:
        messages[""] = said(flag, "")
    # Of words, the message for nonsense, and which of its own words the flag takes.
    if kind is str and (message := said(flag, _WORD)):
        words = sorted({word for word in re.findall(r"\w+", message) if not said(flag, word)})
        messages |= {_WORD: message, "words": " ".join(words)}
    # Of numbers, those around 0 and 1, where what is refused may change.
    if kind in (int, float):
        messages |= {number: said(flag, number) for number in _NUMBERS[: 2 if kind is int else 4]}
        # What is said of 0 is said of numbers below it, too, unless they have words of their own.
        if messages["-1"] == messages["0"]:
            del messages["-1"]
        if kind is float and said(flag, _LARGE) != messages["1.5"]:
            del messages["1.5"], messages["1"]
    return {value: message for value, message in messages.items() if message}


def answer(argv: Sequence[str]) -> None:
    """Answer --help, and refuse flags that are wrong and files that are not there; return where all seems right.

    :param argv: the program and its arguments: a script, or "gpflow-deep VERB".
    :raises SystemExit: with 0 after --help, with 2 after a line that says what is wrong.
    """
    # Which script it is: a verb of gpflow-deep, or the name of a file.
    program = Path(argv[0]).name
    arguments = list(argv[1:])
    if program == "gpflow-deep" and arguments[:1] in (["compress"], ["decompress"]):  # of a table
        name = VERBS["decompress"][0]
    else:
        verb = program.removeprefix("gpflow-deep ")
        name = VERBS[verb][0] if verb != program and verb in VERBS else Path(program).stem
    descriptions = load()
    # A script of several commands has a description for each.
    if name not in descriptions:
        commands = [key.partition(" ")[2] for key in descriptions if key.startswith(f"{name} ")]
        if not commands:
            return  # another program
        command = arguments.pop(0) if arguments else ""
        if command == "--help":
            print_asked_for(
                "\n\n".join(
                    help_page(descriptions[f"{name} {subcommand}"], f"{program} {subcommand}")
                    for subcommand in commands
                )
            )
            raise SystemExit(0)
        if command not in commands:
            alternatives = " or ".join(commands)
            _refuse(program, f"say {alternatives}, then flags, --name=value, got {command!r}; see --help.")
        name = f"{name} {command}"
        program = f"{program} {command}"
    _check(name, descriptions[name], arguments, program)


def _check(name: str, description: Description, arguments: Sequence[str], program: str) -> None:
    """The part of :func:`answer` for one description."""
    if any(word.lstrip("-") in ("helpfull", "helpshort", "helpxml") for word in arguments):
        return
    # Cheap checks first: each flag alone, the folder of the run, and only then the files.
    try:
        flag_values = read(description, arguments, program, with_absl=True)
        values = {flag.name: flag_values[flag.name].value for flag in description.flags}
        _check_texts(description, values)
        _check_values(description, values)
        if message := objection(description.contradictions, description.flags, values):
            raise ValueError(message)
        # Of a run that is continued, the files were looked at when it began.
        is_begun = _check_folder(name, description, values)
        if not is_begun:
            _check_files(values)
            _check_dataset(values)
            _check_table(values)
            if values.get("data"):
                from gpflow_deep_runs.cli import rows  # takes a while to import, and most command lines need no table

                rows.check(name, {flag.name: converted(flag, values[flag.name]) for flag in description.flags})
    except HelpWanted as help_request:
        print_asked_for(help_request)
        raise SystemExit(0) from None
    except ValueError as error:
        _refuse(program, str(error))
    except OSError as error:
        _refuse(program, f"{error.filename}: {(error.strerror or '').lower()}; check the path.")


def _check_texts(description: Description, values: Values) -> None:
    """:raises ValueError: for an empty text where no flag of a script can have one."""
    for flag in description.flags:
        if values[flag.name] == "" and flag.default != "":
            raise ValueError(f"--{flag.name} must not be empty; give a value, or leave it out.")


def _check_values(description: Description, values: Values) -> None:
    """:raises ValueError: for a value that the flag's own check would refuse, and with its words."""
    for name, messages in description.refused.items():
        value = values[name]
        # An empty list has a message of its own, another list those of its parts.
        if value == []:
            objections = [messages[""]] if "" in messages else []
        else:
            singles = value if isinstance(value, list) else [] if value is None else [value]
            objections = [message for single in singles if (message := _said_of(single, messages))]
        if objections:
            raise ValueError(objections[0].replace("{}", ",".join(value) if isinstance(value, list) else str(value)))


def _said_of(value: str, messages: Mapping[str, str]) -> str:
    """What :func:`_refused` has for values like this one, or ""."""
    try:
        number = float(value)
    except ValueError:
        is_file = "." in value or "/" in value
        return "" if is_file or value in messages.get("words", "").split() else messages.get(_WORD, "")
    if number < 0:
        return messages.get("-1", messages.get("0", ""))
    # Numbers above 1 are told the same, and those between 0 and 1 nothing.
    representative = "0" if number == 0 else "1" if number == 1 else "1.5" if number > 1 else None
    return messages.get(representative, "") if representative else ""


def _check_folder(name: str, description: Description, values: Values) -> bool:
    """Look at --run_dir: whether it can be had, or holds what is to be read.

    :return: whether a run in it is continued.
    :raises ValueError: if not. Of several workers, only the chief could tell, so nothing is said.
    """
    folder = values.get("run_dir")
    if folder is None or "TF_CONFIG" in os.environ:
        return False
    path = Path(folder).expanduser()
    # A script without --resume reads a run, so that the folder has to hold one.
    if "resume" not in values:
        pattern, verb = _MODELS.get(name, ("", ""))
        if not path.is_dir():
            raise ValueError(f"--run_dir={folder}: no such folder{_near(path)}; check the path.")
        if pattern and not any(path.glob(pattern)):
            raise ValueError(
                f"--run_dir must be a run of gpflow-deep {verb} with a trained model, but {folder} has no {pattern}; "
                "check the path, or train to the first checkpoint."
            )
        return False

    # A script that trains makes the folder, or continues the run in it.
    check_free(path, resume=values["resume"])
    if not is_resumed(path, values["resume"]):
        return False
    known = {name for flag in description.flags for name in (flag.name, flag.name.removeprefix("no"))}
    check_same_flags(RunDir(path), text_of(description, values), description.free, known)
    return True


def _check_files(values: Values) -> None:
    """:raises ValueError: for a file to read that is not there."""
    has_file = str(values.get("network")).endswith(".keras")  # else it is one of the package's networks
    for name in (*_INPUTS, "network") if has_file else _INPUTS:
        value = values.get(name)
        for path in value if isinstance(value, list) else [value]:
            if not path or "://" in path or any(sign in path for sign in "*?["):
                continue
            if not Path(path).expanduser().exists():
                raise ValueError(f"--{name}={path}: no such file or folder{_near(Path(path))}; check the path.")


def _check_dataset(values: Values) -> None:
    """:raises ValueError: for a data set that is not known, or whose files are not there."""
    dataset = values.get("dataset")
    data = values.get("data")
    # A table of the user's own has no target unless a flag names it.
    is_table = data is not None and data.endswith((".csv", ".tsv", ".xlsx", ".parquet"))
    if is_table and "resume" in values and values.get("target") == []:  # else new rows, which may have none
        raise ValueError(f"--target must be a column of {data}, got none; give it as --target=NAME.")
    if dataset is None:
        return
    from gpflow_deep_runs.data.sets import files  # which imports NumPy

    # The name has to be known, and its files have to be where they are looked for.
    if dataset not in files.KNOWN:
        near = difflib.get_close_matches(dataset, files.KNOWN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it must be one of {', '.join(sorted(files.KNOWN))};"
        raise ValueError(f"there is no data set --dataset={dataset}; {hint} For own data use --data.")
    entry = files.KNOWN[dataset]
    files.located(files.files_of(entry), files.folder_of(values.get("data_dir")), dataset, entry.get("get", ""))


def _check_table(values: Values) -> None:
    """:raises ValueError: for a text that is empty, or does not begin with the names of columns that flags have."""
    path = Path(values.get("data") or "").expanduser()
    if not path.is_file():
        return
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; check how it was written.")
    if path.suffix not in (".csv", ".tsv") or values.get("names"):
        return

    # The beginning of the text: a line of names, and rows below it.
    with open(path, encoding="utf-8", errors="replace") as file:
        head = file.read(_HEAD)
    is_one_line = len(head.splitlines()) < 2
    if "\0" in head or (is_one_line and (len(head) == _HEAD or not re.search("[^\\W\\deE_]", head))):
        return  # of 16 bits, more names than are looked at, or a row of numbers
    if is_one_line:
        raise ValueError(f"{path} has a line of names and no rows below it; check how it was written.")
    # Only plain names are looked for: others may be written otherwise in the file.
    for flag in _COLUMNS:
        for column in values.get(flag) or ():
            name = column.partition(":")[0]
            if re.fullmatch(r"[A-Za-z_]\w*[A-Za-z_]", name, re.ASCII) and name not in head:
                names = [title.strip("\"' ") for title in re.split("[,;\t|]", head.partition("\n")[0])]
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it begins with {', '.join(names)[:60]}."
                raise ValueError(f"--{flag} must name columns of {path}, got {name!r}; {hint}")


def _near(path: Path) -> str:
    """Names like the one that is not there."""
    if not path.parent.is_dir():
        return f" ({path.parent} is none, either)"
    near = difflib.get_close_matches(path.name, [entry.name for entry in entries(path.parent)], n=1)
    return f" (there is {near[0]})" if near else ""


def _refuse(program: str, message: str) -> NoReturn:
    print(f"{program}: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(flag: NamedFlag) -> dict[str, object]:
    """What JSON holds of a flag."""
    # Types as JSON has them: a word, or a list that begins with the kind.
    kind: str | list[str]
    if get_origin(flag.kind) is tuple:
        kind = ["list", get_args(flag.kind)[0].__name__]
    elif get_origin(flag.kind) is Literal:
        kind = ["one of", *get_args(flag.kind)]
    elif words := words_beside_bool(flag.kind):
        kind = ["bool or", *words]
    else:
        kind = next(name for name, simple in _SIMPLE.items() if simple is flag.kind)
    default = list(flag.default) if isinstance(flag.default, tuple) else flag.default
    return {"name": flag.name, "kind": kind, "default": default, "is_required": flag.is_required, "help": flag.help}


def _named(plain: Mapping[str, Any]) -> NamedFlag:
    """The inverse of :func:`_plain`; groups and fields, which only the dataclass needs, are left out."""
    kind: object
    match plain["kind"]:
        case str(name):
            kind = _SIMPLE[name]
        case ["list", name]:
            kind = GenericAlias(tuple, (_SIMPLE[name], ...))
        case ["bool or", *words]:
            kind = bool | Literal[tuple(words)]
        case [_, *words]:
            kind = Literal[tuple(words)]
    default = tuple(plain["default"]) if isinstance(plain["default"], list) else plain["default"]
    return NamedFlag("", plain["name"], plain["name"], kind, default, plain["is_required"], plain["help"])


def main() -> None:
    """Write `flags.json` for the scripts of a checkout."""
    descriptions: dict[str, Description] = {}
    # In a checkout the scripts are no package, so that each is imported by its path.
    for path in sorted((Path(__file__).resolve().parents[2] / "scripts").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no Python module.")
        script = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = script
        spec.loader.exec_module(script)
        descriptions |= descriptions_of(path.stem, script, is_new=True)
    write_text(FILE, stored(descriptions))
    print(f"{FILE}: {len(descriptions)} programs")


if __name__ == "__main__":
    main()
