"""The documentation against the code: each command that is shown, by verb or script, has flags that it knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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


FIELD_WITHIN_A_LINE = re.compile(r"\S +:(?:param|ivar|raises|return|returns)\b[^:\n`]*:(?:\s|$)", re.MULTILINE)


@pytest.mark.parametrize("package", [*PACKAGES, "scripts"])
def test_each_field_of_a_docstring_has_a_line(package: str) -> None:
    """Of two on one line, the second one vanishes on the site."""
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node, clean=False) or ""
                wrong += [f"{path.relative_to(ROOT)}: {found[0]}" for found in FIELD_WITHIN_A_LINE.finditer(text)]
    assert not wrong
