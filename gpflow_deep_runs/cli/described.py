"""What a command line gets wrong, and its --help, before TensorFlow takes seconds to start.

The flags of a script are fields of dataclasses of the packages that it uses, so that reading them imports TensorFlow.
`flags.json`, beside this file, describes the flags of all scripts. `python -m gpflow_deep_runs.cli.described` in a
checkout writes it anew; a test compares it with the scripts.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from gpflow_deep_base.files import entries, write_text
from gpflow_deep_runs.cli.flags import Description, HelpWanted, NamedFlag, describe, read, words_beside_bool
from gpflow_deep_runs.verbs import VERBS

__all__ = ["FILE", "answer", "descriptions_of", "load", "stored"]

FILE = Path(__file__).parent / "flags.json"


#: Flags that name a file to read. Patterns with `*`, `?` or `[` are left to the program.
_INPUTS = ("data", "file", "model", "pretrained")


def load() -> dict[str, Description]:
    """The descriptions in `flags.json`, by script, or by "script command" where a script has several."""
    content = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    return {
        name: Description(entry["about"], [_named(flag) for flag in entry["flags"]], entry["positional"])
        for name, entry in content.items()
    }


def stored(descriptions: Mapping[str, Description]) -> str:
    """The text of `flags.json`."""
    content = {
        name: {
            "about": description.about,
            "flags": [_plain(flag) for flag in description.flags],
            "positional": description.positional,
        }
        for name, description in sorted(descriptions.items())
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def descriptions_of(name: str, script: Any) -> dict[str, Description]:
    """Those of a script, as :func:`load` has them.

    :param name: of its file, without .py.
    :param script: the module, with a function `main` or a dictionary `COMMANDS` of functions.
    """
    commands = getattr(script, "COMMANDS", None)
    mains = {name: script.main} if commands is None else {f"{name} {key}": main for key, main in commands.items()}
    return {key: describe(_flags_of(main)) for key, main in mains.items()}


def _flags_of(main: Any) -> Any:
    hints = get_type_hints(main)
    hints.pop("return", None)
    (kind,) = hints.values()
    return kind


def answer(argv: Sequence[str]) -> None:
    """Answer --help, and refuse flags that are wrong and files that are not there; return where all seems right.

    :param argv: the program and its arguments: a script, or "gpflow-deep VERB".
    :raises SystemExit: with 0 after --help, with 2 after a line that says what is wrong.
    """
    program = Path(argv[0]).name
    verb = program.removeprefix("gpflow-deep ")
    name = VERBS[verb][0] if verb != program and verb in VERBS else Path(program).stem
    known = load()
    arguments = list(argv[1:])
    if name not in known:
        commands = [key.partition(" ")[2] for key in known if key.startswith(f"{name} ")]
        if not commands or not arguments or arguments[0] not in commands:
            return  # another program, or one that says what commands it has
        name = f"{name} {arguments[0]}"
        program = f"{program} {arguments.pop(0)}"
    _check(known[name], arguments, program)


def _check(description: Description, arguments: Sequence[str], program: str) -> None:
    """The part of :func:`answer` for one description."""
    resumed = any(word.lstrip("-").partition("=")[0] == "resume" for word in arguments)
    if any(word.lstrip("-") in ("helpfull", "helpshort", "helpxml") for word in arguments):
        return
    try:
        values = read(description, arguments, program, with_absl=True)
    except HelpWanted as wanted:
        print(wanted)
        raise SystemExit(0) from None
    except ValueError as error:
        _refuse(program, str(error))
    for flag in description.flags:
        if flag.name not in _INPUTS or resumed:
            continue
        value = values[flag.name].value
        for path in value if isinstance(value, list) else [value]:
            if (
                path
                and "://" not in path
                and not any(sign in path for sign in "*?[")
                and not Path(path).expanduser().exists()
            ):
                _refuse(program, f"--{flag.name}={path}: no such file or folder{_near(Path(path))}; check the path.")


def _near(path: Path) -> str:
    """Names like the one that is not there."""
    if not path.parent.is_dir():
        return f" ({path.parent} is none, either)"
    near = difflib.get_close_matches(path.name, [entry.name for entry in entries(path.parent)], n=1)
    return f" (there is {near[0]})" if near else ""


def _refuse(program: str, message: str) -> NoReturn:
    print(f"{program}: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def _plain(flag: NamedFlag) -> dict[str, Any]:
    """What JSON holds of a flag."""
    kind: Any = flag.kind
    if get_origin(kind) is tuple:
        kind = ["list", get_args(kind)[0].__name__]
    elif get_origin(kind) is Literal:
        kind = ["one of", *get_args(kind)]
    elif words := words_beside_bool(kind):
        kind = ["bool or", *words]
    else:
        kind = kind.__name__
    default = list(flag.default) if isinstance(flag.default, tuple) else flag.default
    return {"name": flag.name, "kind": kind, "default": default, "is_required": flag.is_required, "help": flag.help}


def _named(plain: Mapping[str, Any]) -> NamedFlag:
    """The inverse of :func:`_plain`; groups and fields, which only the dataclass needs, are left out."""
    simple = {"bool": bool, "int": int, "float": float, "str": str}
    kind: Any = plain["kind"]
    if isinstance(kind, str):
        kind = simple[kind]
    elif kind[0] == "list":
        kind = tuple[simple[kind[1]], ...]  # type: ignore[misc, valid-type]
    elif kind[0] == "bool or":
        kind = bool | Literal[tuple(kind[1:])]
    else:
        kind = Literal[tuple(kind[1:])]
    default = tuple(plain["default"]) if isinstance(plain["default"], list) else plain["default"]
    return NamedFlag("", plain["name"], plain["name"], kind, default, plain["is_required"], plain["help"])


def main() -> None:
    """Write `flags.json` for the scripts of a checkout."""
    descriptions: dict[str, Description] = {}
    for path in sorted((Path(__file__).resolve().parents[2] / "scripts").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no Python module.")
        script = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = script
        spec.loader.exec_module(script)
        descriptions |= descriptions_of(path.stem, script)
    write_text(FILE, stored(descriptions))
    print(f"{FILE}: {len(descriptions)} programs")


if __name__ == "__main__":
    main()
