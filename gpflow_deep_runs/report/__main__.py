"""Results of record, from the root of the project: results/*.json, and the pages that show them.

python -m gpflow_deep_runs.report                  write the tables of all pages: make results
python -m gpflow_deep_runs.report check            say what differs; status 1 if anything does; and what is old
python -m gpflow_deep_runs.report sweep runs/uci   enter the table of a sweep in results/uci.json, write the tables
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpflow_deep_runs.report.changes import older
from gpflow_deep_runs.report.entries import of_sweep
from gpflow_deep_runs.report.pages import not_shown, problems, update
from gpflow_deep_runs.report.results import NAME, read_all, write
from gpflow_deep_runs.report.structure import read_json

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = _parser().parse_args(arguments)
    root = Path(options.root)
    try:
        # Elsewhere there would be nothing to compare, and nothing that differs.
        if not (root / "results").is_dir():
            raise ValueError(f"--root={root} must be the folder of the project, but it has no folder results.")
        # Only `check` leaves the pages as they are; the others write them anew in the end.
        if options.command == "check":
            differences = problems(root)
            print("\n".join(differences) or "the tables are those of results/")
            if stale := older(read_all(root / "results"), root):
                print("older than the code that they are about:")
                print("\n".join(f"results/{name}.json is {text}" for name, text in stale.items()))
            return 1 if differences else 0
        if options.command == "sweep":
            _enter_sweep(options, root)
        print("\n".join(f"written: {path}" for path in update(root)) or "the tables are those of results/")
    except OSError as error:
        print(f"error: {error.filename}: {(error.strerror or str(error)).lower()}.", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m gpflow_deep_runs.report", description="Results of record.")
    parser.add_argument("--root", default=".", help="folder of the project")
    parser.set_defaults(command="write")
    commands = parser.add_subparsers()
    for name, text in (
        ("write", "write the tables of all pages"),
        ("check", "compare the tables of all pages with results/"),
        ("sweep", "enter the table of a sweep"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(command=name)
        if name == "sweep":
            command.add_argument("folder", type=Path, help="of the sweep")
            command.add_argument("--results", help="name of the file in results/, without .json")
            command.add_argument("--units", default="", help="NUMBER=UNIT,..., for a new file")
    return parser


def _enter_sweep(given: argparse.Namespace, root: Path) -> None:
    """Write the numbers of table.json into the file of the sweep's name, which may be new."""
    table = read_json(given.folder / "table.json", largest=20_000_000)
    # A file of another name would be refused only once it is there.
    name = given.results or (table["sweep"] if isinstance(table, dict) and "sweep" in table else "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"--results must be a name in small letters, digits and _, got {name!r}; give one.")
    path = root / "results" / f"{name}.json"
    # On record is the command that repeats it: with the file of the project, if it is there.
    file = Path("results") / "sweeps" / f"{table['sweep']}.toml"
    command = f"gpflow-deep sweep {file if (root / file).is_file() else file.name} --data_dir=DATA"
    document = read_json(path) if path.exists() else None
    write(path, of_sweep(table, document, command=command, units=_units(given.units)))
    print(f"written: {path}")
    # Of a new file no page has a marker yet.
    if document is None:
        print("\n".join(["its tables go into a page as:", *not_shown([], {name: read_all(path.parent)[name]})]))


def _units(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if incomplete := ["".join(pair) for pair in pairs if not all(pair)]:
        raise ValueError(f"--units must be NUMBER=UNIT,NUMBER=UNIT, got {', '.join(incomplete)}.")
    return {name.strip(): unit.strip() for name, _, unit in pairs}


if __name__ == "__main__":
    sys.exit(main())
