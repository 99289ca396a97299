"""The dependency rule: scripts -> {one paper package, experiment}; a paper package stands alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAPERS = {"gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"}
PRESENT = sorted(package for package in PAPERS if (ROOT / package).is_dir())
NEVER = {"tests", "scripts", "benchmarks"}


def imported_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that `source` imports absolutely: `from a import b` gives "a.b"."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def violations(source: str, forbidden: set[str]) -> list[str]:
    """ "line: name" of the imports at or below one of the `forbidden` dotted names."""
    return [
        f"{line}: {name}"
        for line, name in imported_names(source)
        if any(f"{name}.".startswith(f"{top}.") for top in forbidden)
    ]


def violations_in(folder: Path, forbidden: set[str]) -> list[str]:
    files = sorted(folder.rglob("*.py"))
    assert files, f"{folder} holds no Python files"
    return [
        f"{path.relative_to(ROOT)}:{violation}"
        for path in files
        for violation in violations(path.read_text(encoding="utf-8"), forbidden)
    ]


def test_gpflow_deep_and_experiment_are_looked_at() -> None:
    assert "gpflow_deep" in PRESENT
    assert (ROOT / "experiment" / "__init__.py").is_file()


@pytest.mark.parametrize("package", PRESENT)
def test_paper_package_stands_alone(package: str) -> None:
    forbidden = (PAPERS - {package}) | NEVER | {"experiment", "absl.flags", "absl.app"}
    assert not violations_in(ROOT / package, forbidden)


def test_experiment_knows_no_models() -> None:
    assert not violations_in(ROOT / "experiment", PAPERS | NEVER | {"gpflow", "gpflux"})


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_script_uses_at_most_one_paper_package(script: Path) -> None:
    names = {name.split(".")[0] for _, name in imported_names(script.read_text(encoding="utf-8"))}
    assert len(names & PAPERS) <= 1
    assert not names & NEVER


@pytest.mark.parametrize(
    "source",
    [
        "import experiment",
        "import numpy, experiment.loop as loop",
        "from experiment import loop",
        "from experiment.loop import train",
        "def f():\n    from experiment import loop",
        "if True:\n    import experiment.loop",
        "import importlib\nimportlib.import_module('experiment.loop')",
        "__import__('experiment')",
        "from absl import flags",
        "from absl import logging, flags as f",
        "import absl.flags",
        "from absl.flags import FLAGS",
    ],
)
def test_the_check_finds_each_form_of_import(source: str) -> None:
    assert len(violations(source, {"experiment", "absl.flags"})) == 1


@pytest.mark.parametrize(
    "source",
    ["import experimental", "from absl import logging", "from . import experiment", "'import experiment'", "import os"],
)
def test_the_check_leaves_other_imports_alone(source: str) -> None:
    assert not violations(source, {"experiment", "absl.flags"})
