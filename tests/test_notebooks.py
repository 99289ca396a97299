"""The notebooks of docs/notebooks run, cut short by GPFLOW_DEEP_FAST.

A cell that fails is named: `python tests/test_notebooks.py docs/notebooks/05_rbm_log_z.md` runs one by hand, in full
length unless GPFLOW_DEEP_FAST is set.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import traceback
import types
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("[0-9]*.md"))
FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
FENCE = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"^:[\w-]+:[^\n]*$", re.MULTILINE)


class Cell(NamedTuple):
    """A cell of code: its number from 1, the line of the page on which its code starts, and the code."""

    number: int
    line: int
    source: str


def cells_of(text: str) -> list[Cell]:
    """The cells of code of a MyST notebook, without their options (":tags: ...")."""
    found = []
    for number, match in enumerate(FENCE.finditer(text), start=1):
        line = text.count("\n", 0, match.start(1)) + 1
        found.append(Cell(number, line, OPTION.sub("", match.group(1))))
    return found


def run(path: Path) -> str | None:
    """Run all cells of a notebook in one module, one after the other.

    :return: which cell failed; None if none did.
    """
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for cell in cells_of(path.read_text(encoding="utf-8")):
        try:
            code = compile("\n" * (cell.line - 1) + cell.source, str(path), "exec")
            exec(code, module.__dict__)
        except Exception:
            traceback.print_exc()
            return f"{path.name}: cell {cell.number}, from line {cell.line}, failed"
    return None


def environment() -> dict[str, str]:
    """That of a short run without a screen."""
    return {**os.environ, "GPFLOW_DEEP_FAST": "1", "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}


def execute(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A notebook, cut short, in a process of its own whose files go to a folder."""
    command = [sys.executable, str(Path(__file__).resolve()), str(path)]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)


def test_there_are_notebooks_for_all_five_systems() -> None:
    imported = " ".join(path.read_text("utf-8") for path in NOTEBOOKS)
    for package in ("gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"):
        assert re.search(rf"^(import|from) {package}\b", imported, re.MULTILINE), package


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_one_and_shows_a_picture(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    front = FRONT.match(text)
    assert front is not None
    assert "file_format: mystnb" in front[1]
    assert "name: python3" in front[1]
    cells = cells_of(text)
    assert text.count("```{code-cell}") == len(cells)
    for cell in cells:
        compile(cell.source, f"{path.name}, cell {cell.number}", "exec")
    code = "\n".join(cell.source for cell in cells)
    assert "GPFLOW_DEEP_FAST" in code
    assert "plt.show()" in code


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    done = execute(path, tmp_path)
    assert done.returncode == 0, f"{done.stderr[-3000:]}"
    assert not list(tmp_path.iterdir()), "a notebook writes to temporary folders only"


def test_a_failing_cell_is_named(tmp_path: Path) -> None:
    page = tmp_path / "bad.md"
    page.write_text("---\n---\n\n```{code-cell}\n:tags: [x]\n\na = 1\n```\n\n```{code-cell}\na\nb\n```\n")
    done = execute(page, tmp_path)
    assert done.returncode == 1
    assert "bad.md: cell 2, from line 11, failed" in done.stderr
    assert "line 12" in done.stderr
    assert "NameError: name 'b' is not defined" in done.stderr


def test_outputs_are_those_of_the_code_that_a_page_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = extension("site_notebooks")
    (tmp_path / "darn" / "model").mkdir(parents=True)
    for name in ("__init__.py", "model/__init__.py"):
        (tmp_path / "darn" / name).write_text("")
    (tmp_path / "darn" / "__init__.pyi").write_text("from .model.model import DARN as DARN\n")
    model = tmp_path / "darn" / "model" / "model.py"
    model.write_text("DARN = 1\n")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    page = "# Title\n\n```{code-cell}\n:tags: [x]\n\nimport numpy\nfrom darn import DARN\n```\n"
    assert site.sources_of(site.code_of(page)[0]) == [tmp_path / "darn" / "__init__.py", model]
    key, sources = site.key_of(page), site.keys_of_sources(page)
    assert site.key_of(page.replace("import numpy", "import numpy  # arrays") + "\nMore text.\n") == key
    assert site.key_of(page.replace("numpy", "scipy")) != key
    run = {"date": "2026-01-02", "cpu_seconds": 30, "sources": sources}
    assert site.note_of(run, sources) == "*Outputs of a full run of 2026-01-02, 30 CPU seconds.*"
    model.write_text("DARN = 1  # as before\n")
    assert site.keys_of_sources(page) == sources
    model.write_text("DARN = 2\n")
    later = site.note_of(run, site.keys_of_sources(page))
    assert later.endswith("These have changed since: `darn/model/model.py`.")


STORED = sorted((ROOT / "docs" / "notebooks" / "outputs").glob("*"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_stored_outputs_are_whole_small_and_of_the_page(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    page = ROOT / "docs" / "notebooks" / f"{path.stem}.md"
    is_of_page = notebook["metadata"]["full_run"]["code"] == extension("site_notebooks").key_of(page.read_text("utf-8"))
    assert is_of_page, f"{page.name} has other code now: `python docs/site_notebooks.py {page.relative_to(ROOT)}`"
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert all(output["output_type"] != "error" for output in outputs)
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert pictures
    assert max(map(len, pictures)) < 200_000
    assert not re.search(r"/tmp/|/home/|/root/|site-packages", "".join(map(str, outputs)))


def test_what_tests_cut_short_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPFLOW_DEEP_FAST", "1")
    with pytest.raises(ValueError, match="full runs"):
        extension("site_notebooks").run(NOTEBOOKS[0])
    assert "GPFLOW_DEEP_FAST" not in (ROOT / "Makefile").read_text(encoding="utf-8")


def extension(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    for notebook in map(Path, sys.argv[1:]):
        start = time.monotonic()
        if failure := run(notebook):
            sys.exit(failure)
        print(f"{notebook.name}: {time.monotonic() - start:.0f} s")
