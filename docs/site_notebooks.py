"""Outputs of the notebooks: made by full runs only, kept in docs/_build/outputs, shown where nothing has changed since.

    python docs/site_notebooks.py                    run those whose outputs are missing or older than their code
    python docs/site_notebooks.py docs/notebooks/05_rbm_log_z.md

An output is found by a hash of the cells of code and of the modules of ours that they import by name. A page without
outputs is shown without them, and says so. As a Sphinx extension it gives each page its outputs.
"""

import ast
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
OUTPUTS = DOCS / "_build" / "outputs"
FENCE = re.compile(r"^```\{code-cell\}[^\n]*\n((?::[\w-]+:[^\n]*\n)*)(.*?)^```$", re.DOTALL | re.MULTILINE)
MISSING = "```{note}\nThis page is shown without outputs: `make notebooks` runs it in full and keeps them.\n```"


def code_of(text: str) -> list[str]:
    """The cells of code of a MyST notebook, without their options."""
    return [match[2] for match in FENCE.finditer(text)]


def sources_of(code: str) -> list[Path]:
    """The modules of ours that some code imports, by file: where a package exports a name, the module that has it."""
    found = set[Path]()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for each in node.names:
                found |= set(_files(each.name, []))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= set(_files(node.module, [each.name for each in node.names]))
    return sorted(found)


def key_of(text: str) -> str:
    """What the outputs of a notebook are found by."""
    code = "\n\n".join(code_of(text))
    digest = hashlib.sha256(code.encode())
    for path in sources_of(code):
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def output_of(page: Path, text: str) -> Path:
    """The file of the outputs of a page, which may not be there."""
    return OUTPUTS / f"{page.stem}-{key_of(text)}.ipynb"


def read(text: str, page: str) -> Any:
    """A page as a notebook, with the outputs of its full run if there is one: what myst-nb calls.

    :param text: the page, with its links as they are on the site.
    :param page: its file.
    """
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook

    notebook = read_myst_markdown_notebook(text, add_source_map=True)
    path = output_of(Path(page), Path(page).read_text(encoding="utf-8"))
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if path.exists():
        stored = nbformat.read(path, as_version=4)
        run = [cell for cell in stored.cells if cell.cell_type == "code"]
        for cell, done in zip(cells, run, strict=True):
            cell.outputs, cell.execution_count = done.outputs, done.execution_count
    else:
        title, _, rest = notebook.cells[0].source.partition("\n")
        notebook.cells[0].source = f"{title}\n\n{MISSING}\n{rest}"
    return notebook


def run(page: Path) -> Path:
    """Run a notebook in full, and keep it with its outputs in place of older ones.

    :raises ValueError: where GPFLOW_DEEP_FAST cuts it short: outputs of tests are not shown.
    """
    if os.environ.get("GPFLOW_DEEP_FAST"):
        raise ValueError("GPFLOW_DEEP_FAST is set; outputs that are shown come from full runs, so unset it.")
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook
    from nbclient import NotebookClient

    text = page.read_text(encoding="utf-8")
    path = output_of(page, text)
    notebook = read_myst_markdown_notebook(text)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=7200, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute()
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)
    for older in OUTPUTS.glob(f"{page.stem}-*.ipynb"):
        if older != path:
            older.unlink()
    return path


def _files(module: str, names: list[str]) -> Iterator[Path]:
    """The files behind an import of names from a module, if it is ours."""
    path = ROOT / Path(*module.split("."))
    if not (ROOT / module.partition(".")[0] / "__init__.py").exists():
        return
    if path.with_suffix(".py").exists():
        yield path.with_suffix(".py")
        return
    stub = path / "__init__.pyi"
    exported = dict[str, str]()
    for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))) if stub.exists() else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            exported |= {each.asname or each.name: node.module for each in node.names}
    yield path / "__init__.py"
    for name in names:
        if name in exported:
            yield from _files(f"{module}.{exported[name]}", [])
        elif (path / f"{name}.py").exists():
            yield path / f"{name}.py"


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""

    def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
        """The notebooks, as outputs may have come."""
        return [name for name in env.found_docs if re.fullmatch(r"notebooks/\d.*", name)]

    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True}


def main(arguments: list[str]) -> int:
    """Run the notebooks that are named, or those whose outputs are missing; the exit status."""
    sys.path.insert(0, str(ROOT))
    pages = [Path(each).resolve() for each in arguments] or sorted((DOCS / "notebooks").glob("[0-9]*.md"))
    for page in pages:
        if not arguments and output_of(page, page.read_text(encoding="utf-8")).exists():
            print(f"{page.name}: its outputs are there")
            continue
        start = time.monotonic()
        print(f"{page.name}: in {time.monotonic() - start:.0f} s -> {run(page).relative_to(ROOT)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
