"""The documentation against the code: each command that is shown, by verb or script, has flags that it knows."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

import pytest

from gpflow_deep_runs.cli.described import load
from gpflow_deep_runs.verbs import VERBS
from tests.distributions import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {path.name: path for path in sorted((ROOT / "scripts").glob("*.py"))}
PAGES = [
    ROOT / "Makefile",
    *sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")] if "." not in path.parent.name),
    *sorted((ROOT / "docs").glob("*/*.md")),
]
NAMES = {f"gpflow-deep {verb}": f"{script}.py" for verb, (script, _) in VERBS.items()} | {
    name: name for name in SCRIPTS
}
"""Scripts by what a page calls them."""
_LONGEST_FIRST = sorted(NAMES, key=len, reverse=True)
COMMAND = re.compile(rf"\b({'|'.join(map(re.escape, _LONGEST_FIRST))})(?![\w-])((?:\\\n|[^\n`#|;])*)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9_]*)")
DESCRIBED = load()
"""Flags of the scripts, without their imports; that these are as the scripts say is a test of `described`."""
OF_ABSL = {"flagfile", "verbosity", "help", "helpfull"}


def flags_of(script: str) -> set[str]:
    """Names on the command line, `no` before those that can be switched off among them."""
    described = [description for key, description in DESCRIBED.items() if key.partition(" ")[0] == script[:-3]]
    found = [flag for description in described for flag in description.flags]
    return OF_ABSL | {flag.name for flag in found} | {f"no{flag.name}" for flag in found if flag.kind is bool}


def commands(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Line, script and names of flags of each command, continued lines joined."""
    for match in COMMAND.finditer(text):
        yield text[: match.start()].count("\n") + 1, NAMES[match[1]], FLAG.findall(match[2])


def test_commands_are_found() -> None:
    text = (
        "run `train_darn.py --hidden=3 --nojit` or\ngpflow-deep train --run_dir=x \\\n  --num_steps=3  # --not_this\n"
        "gpflow-deep ebp-predict --output=y.csv\n"
    )
    assert [found[1:] for found in commands(text)] == [
        ("train_darn.py", ["hidden", "nojit"]),
        ("train_dgp.py", ["run_dir", "num_steps"]),
        ("predict_ebp.py", ["output"]),
    ]


@pytest.mark.parametrize("script", SCRIPTS)
def test_flags_of_documented_commands_exist(script: str) -> None:
    known, unknown, seen = flags_of(script), [], 0
    for page in [*PAGES, SCRIPTS[script]]:
        for line, name, flags in commands(page.read_text(encoding="utf-8")):
            if name == script:
                seen += 1
                unknown += [f"{page.relative_to(ROOT)}:{line}: --{flag}" for flag in flags if flag not in known]
    assert seen > 0
    assert not unknown


CODE = re.compile(r"^```(?:python|\{code-cell\}[^\n]*)\n((?::[^\n]*\n)*)(.*?)^```", re.DOTALL | re.MULTILINE)


def imported(text: str) -> Iterator[tuple[Path, str]]:
    """Path of the package or module, without its suffix, and each name that the code of a page imports from ours."""
    for match in CODE.finditer(text):
        for node in ast.walk(ast.parse(match[2])):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
                for alias in node.names:
                    yield ROOT.joinpath(*node.module.split(".")), alias.name


def has_name(module: Path, name: str) -> bool:
    """Whether a module defines or imports a name, or a package exports it or has a module of this name."""
    if (module / f"{name}.py").exists() or (module / name / "__init__.py").exists():
        return True
    files = [module.with_suffix(".py"), module / "__init__.pyi", module / "__init__.py"]
    return any(re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for path in files if path.exists())


def test_what_the_code_of_pages_imports_is_there() -> None:
    missing = []
    for page in PAGES[1:]:
        for module, name in imported(page.read_text(encoding="utf-8")):
            if not has_name(module, name):
                missing.append(f"{page.relative_to(ROOT)}: {name} of {module.relative_to(ROOT)}")
    assert not missing
    assert not has_name(ROOT / "darn", "no_such_name")


def test_code_of_pages_fits_the_column_of_the_site() -> None:
    """At most one line in twenty has more than 80 characters."""
    fences = re.compile(r"^```(?!\{(?!code-cell))[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
    lengths = list[int]()
    for page in PAGES[1:]:
        for match in fences.finditer(page.read_text(encoding="utf-8")):
            lengths += map(len, match[1].splitlines())
    assert sum(length > 80 for length in lengths) < 0.05 * len(lengths)


def documented(package: str) -> Iterator[tuple[str, list[str], str]]:
    """Place, names of parameters and docstring of each public function, method and class that the package exports."""
    stub = ast.parse((ROOT / package / "__init__.pyi").read_text(encoding="utf-8"))
    for node in ast.walk(stub):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        path = (ROOT / package / Path(*node.module.split("."))).with_suffix(".py")
        exported = {each.name for each in node.names}
        for found in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else ():
            if getattr(found, "name", None) not in exported:
                continue
            place = f"{path.relative_to(ROOT)}: {getattr(found, 'name', '')}"
            if isinstance(found, ast.FunctionDef):
                yield place, names_of(found), ast.get_docstring(found) or ""
            elif isinstance(found, ast.ClassDef):
                yield from documented_of_class(found, place)


def documented_of_class(found: ast.ClassDef, place: str) -> Iterator[tuple[str, list[str], str]]:
    text = ast.get_docstring(found) or ""
    for each in found.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            yield place, names_of(each)[1:], f"{text}\n{ast.get_docstring(each) or ''}"
        elif isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            names, is_static = names_of(each), "staticmethod" in map(ast.unparse, each.decorator_list)
            if own := ast.get_docstring(each):  # without one it is not shown
                yield f"{place}.{each.name}", names if is_static else names[1:], own
    if any("dataclass" in ast.unparse(each) for each in found.decorator_list):
        fields = [each.target.id for each in found.body if isinstance(each, ast.AnnAssign) and is_name(each.target)]
        yield place, fields, f"{text}\n{ast.unparse(found)}"


def is_name(target: ast.expr) -> TypeGuard[ast.Name]:
    return isinstance(target, ast.Name) and not target.id.startswith("_")


def names_of(function: ast.FunctionDef) -> list[str]:
    found = function.args
    return [each.arg for each in [*found.posonlyargs, *found.args, *found.kwonlyargs]]


OF_PAPERS = ["gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"]


@pytest.mark.parametrize("package", OF_PAPERS)
def test_each_parameter_of_the_reference_has_a_text(package: str) -> None:
    missing_texts = site_docstrings().missing_texts
    without = []
    for place, names, docstring in documented(package):
        texts = missing_texts(package, names, docstring)
        without += [f"{place}: {name}" for name, text in texts.items() if not text]
    assert not without


def test_texts_of_parameters_are_those_of_some() -> None:
    site = site_docstrings()
    used = set[tuple[str, str]]()
    for package in OF_PAPERS:
        for _, names, docstring in documented(package):
            for name in site.missing_texts(package, names, docstring):
                used.add((package if name in site.TEXTS[package] else "all", name))
    assert {(part, name) for part, words in site.TEXTS.items() for name in words} - used == set()


def test_a_missing_parameter_follows_those_that_are_there() -> None:
    with_parameters = site_docstrings().with_parameters
    lines = ["What.", "", ":param a: of", "    two lines.", ":return: it."]
    assert with_parameters(lines, {"X": "inputs", "q": ""}) == [*lines[:4], ":param X: inputs.", lines[4]]
    assert with_parameters(["What."], {"X": "inputs"}) == ["What.", "", ":param X: inputs."]
    assert with_parameters(lines, {"q": ""}) == lines


@cache
def site_docstrings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_docstrings", ROOT / "docs" / "site_docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FIELD_WITHIN_A_LINE = re.compile(r"\S +:(?:param|ivar|raises|return|returns)\b[^:\n`]*:(?:\s|$)", re.MULTILINE)
FIELD_BELOW_A_PARAGRAPH = re.compile(r"^[^:\s][^\n]*\n:(?:param|ivar|raises|return|returns)\b", re.MULTILINE)


@pytest.mark.parametrize("package", [*PACKAGES, "scripts"])
def test_each_field_of_a_docstring_has_a_line(package: str) -> None:
    """Of two on one line, the second one vanishes on the site; one below a paragraph is part of it."""
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for text, pattern in (
                    (ast.get_docstring(node, clean=False) or "", FIELD_WITHIN_A_LINE),
                    (ast.get_docstring(node) or "", FIELD_BELOW_A_PARAGRAPH),
                ):
                    wrong += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert not wrong
