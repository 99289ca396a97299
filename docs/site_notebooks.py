"""Outputs of the notebooks: made by full runs only, kept in docs/notebooks/outputs as .ipynb, shown on the pages.

    python docs/site_notebooks.py                    run those whose outputs are missing or of other code
    python docs/site_notebooks.py docs/notebooks/05_rbm_log_z.md

A page shows outputs only if they are of the code that it has. It says when they were made, and which modules of ours
that it imports have changed since, formatting and comments aside; a page without outputs says that it has none. As a
Sphinx extension it gives each page its outputs.
"""

import ast
import base64
import datetime
import hashlib
import io
import os
import re
import resource
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpflow_deep_runs.report.changes import PACKAGES, modules_of

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
OUTPUTS = DOCS / "notebooks" / "outputs"
FENCE = re.compile(r"^```\{code-cell\}[^\n]*\n((?::[\w-]+:[^\n]*\n)*)(.*?)^```$", re.DOTALL | re.MULTILINE)
MISSING = "```{note}\nThis page is shown without outputs: `make notebooks` runs it in full and keeps them.\n```"


def code_of(text: str) -> list[str]:
    """The cells of code of a MyST notebook, without their options."""
    return [match[2] for match in FENCE.finditer(text)]


def sources_of(code: str) -> list[Path]:
    """The modules of ours that some code imports, by file: where a package exports a name, the module that has it."""
    return sorted(set(modules_of(code, ROOT, [*PACKAGES, "gpflow_deep_base", "gpflow_deep_runs"])))


def key_of(text: str) -> str:
    """What the code of a notebook is known by."""
    return _key(code_of(text))


def keys_of_sources(text: str) -> dict[str, str]:
    """What the modules that a notebook imports are known by, by their files relative to the root."""
    paths = sources_of("\n\n".join(code_of(text)))
    return {path.relative_to(ROOT).as_posix(): _key([path.read_text(encoding="utf-8")]) for path in paths}


def _key(cells: list[str]) -> str:
    """A name for some code that formatting and comments do not change."""
    trees = [ast.dump(ast.parse(cell)) for cell in cells]
    return hashlib.sha256("\n".join(trees).encode()).hexdigest()[:16]


def output_of(page: Path) -> Path:
    """The file of the outputs of a page, which may not be there."""
    return OUTPUTS / f"{page.stem}.ipynb"


def stored(page: Path) -> "NotebookNode | None":
    """The notebook of a page with the outputs of its full run; None if there is none of its present code."""
    import nbformat

    path = output_of(page)
    if not path.exists():
        return None
    notebook = nbformat.read(path, as_version=4)
    is_of_page = notebook.metadata["full_run"]["code"] == key_of(page.read_text(encoding="utf-8"))
    return notebook if is_of_page else None


def note_of(run: dict[str, Any], sources: dict[str, str]) -> str:
    """When outputs were made, and what has changed since.

    :param run: `full_run` of the metadata of a stored notebook.
    :param sources: as :func:`keys_of_sources` has them now.
    """
    changed = sorted(name for name, key in sources.items() if run["sources"].get(name) != key)
    since = f" These have changed since: {', '.join(f'`{name}`' for name in changed)}." if changed else ""
    return f"*Outputs of a full run of {run['date']}, {run['cpu_seconds']} CPU seconds.*{since}"


def read(text: str, page: str) -> "NotebookNode":
    """A page as a notebook, with the outputs of its full run if there is one: what myst-nb calls.

    :param text: the page, with its links as they are on the site.
    :param page: its file.
    """
    from myst_nb.core.read import read_myst_markdown_notebook

    # The page as it is, and below each cell what its full run has left.
    notebook = read_myst_markdown_notebook(text, add_source_map=True)
    run = stored(Path(page))
    note = MISSING
    if run is not None:
        note = note_of(run.metadata["full_run"], keys_of_sources(text))
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        finished = [cell for cell in run.cells if cell.cell_type == "code"]
        for cell, done in zip(cells, finished, strict=True):
            cell.outputs = done.outputs
            cell.execution_count = done.execution_count
    # Below the title it says of when the outputs are.
    title, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{title}\n\n{note}\n{rest}"
    return notebook


def run(page: Path) -> Path:
    """Run a notebook in full, and keep it with its outputs in place of older ones.

    :raises ValueError: where GPFLOW_DEEP_FAST cuts it short: outputs of tests are not shown; or where an output names a
        folder of this machine.
    """
    if os.environ.get("GPFLOW_DEEP_FAST"):
        raise ValueError("GPFLOW_DEEP_FAST is set; outputs that are shown come from full runs, so unset it.")
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook
    from nbclient import NotebookClient

    text = page.read_text(encoding="utf-8")
    # The kernel runs in a folder of its own, and finds this checkout.
    notebook = read_myst_markdown_notebook(text)
    sources = keys_of_sources(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=7200, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Times of cells and folders of this machine are nobody's business.
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            _make_smaller(output)
            if re.search(rf"{re.escape(str(ROOT))}|{re.escape(tempfile.gettempdir())}/|/site-packages/", str(output)):
                raise ValueError(f"{page.name}: an output names a folder of this machine: {str(output)[:2000]}")
    notebook.metadata["full_run"] = {
        "date": datetime.date.today().isoformat(),
        "cpu_seconds": round(seconds),
        "code": key_of(text),
        "sources": sources,
    }
    path = output_of(page)
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    # In one piece, so that no page has half of its outputs.
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)
    return path


def _make_smaller(output: "NotebookNode") -> None:
    """Pictures of 128 colours, which take a third of the bytes."""
    from PIL import Image

    data = output.get("data", {})
    if "image/png" in data:
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        buffer = io.BytesIO()
        picture.quantize(128).save(buffer, "PNG", optimize=True)
        data["image/png"] = base64.b64encode(buffer.getvalue()).decode()


def setup(app: "Sphinx") -> dict[str, bool]:
    """Called by Sphinx."""

    def outdated(
        app: "Sphinx", env: "BuildEnvironment", added: set[str], changed: set[str], removed: set[str]
    ) -> list[str]:
        """The notebooks, as outputs may have come."""
        return [name for name in env.found_docs if re.fullmatch(r"notebooks/\d.*", name)]

    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True}


def main(arguments: list[str]) -> int:
    """Run the notebooks that are named, or those whose outputs are missing; the exit status."""
    sys.path.insert(0, str(ROOT))
    pages = [Path(argument).resolve() for argument in arguments] or sorted((DOCS / "notebooks").glob("[0-9]*.md"))
    for page in pages:
        if not arguments and stored(page) is not None:
            print(f"{page.name}: its outputs are there")
            continue
        print(f"{page.name}: {run(page).relative_to(ROOT)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
