"""Which results of record are older than the code that they are about.

results/changes/behaviour.json lists changes after which a program gives other numbers:

    {"changes": [{"date": "2026-11-24", "of": ["gpflow_deep/train/training.py"], "what": "a new end of training",
                  "unaffected": {"mnist": "it has two and three layers"}}]}

A result depends on the files and folders that its "depends" names; without it, on the scripts and benchmarks of its
commands, and on the modules of the papers' packages that these import, and that those import in turn.
"""

import ast
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gpflow_deep_runs.report.results import Results
from gpflow_deep_runs.report.structure import built, read_json
from gpflow_deep_runs.verbs import VERBS

__all__ = ["Change", "depends_on", "modules_of", "older", "read_changes"]

FILE = Path("results") / "changes" / "behaviour.json"
TRAINED_BY_MAKE = "scripts/train_dgp.py"
"""What `make train` runs."""
PACKAGES = ("gpflow_deep", "darn", "rbm_tracking", "ebp", "compression")


@dataclass(frozen=True)
class Change:
    """A change after which a program gives other numbers.

    :param date: of the change.
    :param of: the files that changed.
    :param what: the change, in a few words.
    :param unaffected: names of files of results that depend on these files and did not change, with the reason.
    """

    date: str
    of: tuple[str, ...]
    what: str
    unaffected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Changes:
    changes: tuple[Change, ...]


def read_changes(root: str | os.PathLike[str]) -> tuple[Change, ...]:
    """The list of a project; empty if it has none.

    :raises ValueError: if it is damaged, or names a file that is not there.
    """
    path = Path(root) / FILE
    if not path.exists():
        return ()
    changes = built(_Changes, read_json(path), str(FILE)).changes
    for change in changes:
        for name in change.of:
            if not (Path(root) / name).exists():
                raise ValueError(f"{FILE}: {name} is not there; name the file that has its code now.")
    return changes


def depends_on(results: Results, root: str | os.PathLike[str]) -> frozenset[str]:
    """Files and folders that the numbers of a file depend on, relative to the root."""
    if results.depends:
        return frozenset(results.depends)
    # The scripts and benchmarks that the commands of the file call.
    programs = set[str]()
    for run in results.runs:
        command = run.command or ""
        programs |= set(re.findall(r"\b(?:scripts|benchmarks)/\w+\.py", command))
        programs |= {TRAINED_BY_MAKE} if command.startswith("make train") else set()
        programs |= {
            f"scripts/{VERBS[verb][0]}.py" for verb in re.findall(r"gpflow-deep (\S+)", command) if verb in VERBS
        }

    # Their imports, and those of what they import, until nothing new is reached.
    base = Path(root).resolve()
    reached = set[Path]()
    waiting = [base / name for name in programs if (base / name).exists()]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _imported(path, base)
    return frozenset(str(path.relative_to(base)) for path in reached)


def older(stored: Mapping[str, Results], root: str | os.PathLike[str]) -> dict[str, str]:
    """Of the files of results that are older than the last change of what they depend on: both dates, and the change.

    :param stored: results by the names of their files.
    """
    lines = dict[str, str]()
    # The newest change comes first, so that a file names the last that concerns it.
    changes = sorted(read_changes(root), key=lambda change: change.date, reverse=True)
    for name, results in sorted(stored.items()):
        # A file is as old as its newest run.
        newest = max([results.date, *(run.date for run in results.runs if run.date)])
        depends = depends_on(results, root)
        for change in changes:
            if change.date > newest and name not in change.unaffected and _is_within(change.of, depends):
                lines[name] = f"of {newest}; since {change.date}: {change.what} ({', '.join(change.of)})"
                break
    return lines


def _is_within(files: tuple[str, ...], depends: frozenset[str]) -> bool:
    return any(file == place or file.startswith(f"{place}/") for file in files for place in depends)


@cache
def _imported(path: Path, root: Path) -> tuple[Path, ...]:
    """The modules of the papers' packages that a file imports."""
    code = path.read_text(encoding="utf-8")
    return tuple(modules_of(code, root, PACKAGES, within=path.relative_to(root).parent.parts))


def modules_of(code: str, root: Path, packages: Collection[str], *, within: tuple[str, ...] = ()) -> list[Path]:
    """The modules of some packages that code imports, by file; where a package exports a name, the one that has it.

    :param root: folder of the packages.
    :param within: the package that the code is in, for `from .module import name`.
    """
    modules = list[Path]()
    tree = ast.parse(code)
    # What is imported for types alone changes no number.
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for block in blocks:
        block.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules += _files(root, packages, alias.name.split("."), [])
        elif isinstance(node, ast.ImportFrom):
            # Of `from ..files import x` the package, one folder up for each dot after the first.
            base = within[: len(within) - node.level + 1] if node.level else ()
            module = [*base, *(node.module.split(".") if node.module else [])]
            modules += _files(root, packages, module, [alias.name for alias in node.names])
    return modules


def _files(root: Path, packages: Collection[str], module: list[str], names: list[str]) -> list[Path]:
    """The files behind an import of names from a module; none where it is of another project."""
    if not module or module[0] not in packages:
        return []
    # A module is one file; a package exports names from modules that its stub names.
    path = root.joinpath(*module)
    if path.with_suffix(".py").exists():
        return [path.with_suffix(".py")]
    exported = _exported(path / "__init__.pyi")
    modules = [path / "__init__.py"] if (path / "__init__.py").exists() else []
    for name in names:
        if name in exported:
            modules += _files(root, packages, [*module, *exported[name].split(".")], [])
        elif (path / f"{name}.py").exists():
            modules.append(path / f"{name}.py")
    return modules


@cache
def _exported(stub: Path) -> dict[str, str]:
    """Module by the name that a package exports from it."""
    text = stub.read_text(encoding="utf-8") if stub.exists() else ""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.asname or alias.name: str(node.module) for node in nodes for alias in node.names}
