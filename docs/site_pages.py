"""Sphinx extension: files of the project as pages of the site, and links that lead on in both places.

A page that consists of one link to a Markdown file outside of docs/, as in `[darn/README.md](../../darn/README.md)`, is
that file on the site. Relative links in it are those of the file, as on a host that shows the repository. A link to a
file that is a page becomes a link to the page; one to another file of the project is text, unless pyproject.toml has an
address of the source.
"""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
STUB = re.compile(r"\[[^\]]*\]\((\.\./[^)#]+\.md)\)\s*")
LINK = re.compile(
    r"(?P<code>^(?:```|~~~|:::).*?^(?:```|~~~|:::)[^\n]*$|`[^`\n]*`)"
    r"|(?P<mark>!?)\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)",
    re.DOTALL | re.MULTILINE,
)

ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)


def file_of(page: Path) -> Path:
    """The file that a page of docs/ shows: itself, or the one that it links to."""
    link = STUB.fullmatch(page.read_text(encoding="utf-8"))
    return (page.parent / link[1]).resolve() if link else page


def pages_of_files() -> dict[Path, Path]:
    """The pages by the files that they show."""
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    return {file_of(page): page for page in sorted(pages)}


def relinked(text: str, file: Path, page: Path, pages: dict[Path, Path], source: str = "") -> str:
    """Markdown of a file as text of its page.

    :param pages: as :func:`pages_of_files`.
    :param source: address of the repository at a host, or "".
    """

    def link(match: re.Match[str]) -> str:
        mark, label, (path, _, anchor) = match["mark"], match["label"], (match["target"] or "").partition("#")
        linked_file = (file.parent / path).resolve()
        # Code, links within the page, links to the web, and what is not there stay as they are.
        if match["code"] or not path or re.match(r"[a-z]+:", path) or not linked_file.exists():
            return match[0]
        if (
            anchor
            and linked_file.suffix == ".md"
            and f'<a id="{anchor}"></a>' in linked_file.read_text(encoding="utf-8")
        ):
            return f"[{label}](#{anchor})"  # a target of the whole site
        # What the site has as a page or a picture is linked there, all else at the host of the source.
        if linked_file in pages or linked_file in pages.values() or mark:
            there = os.path.relpath(pages.get(linked_file, linked_file), page.parent)
            return f"{mark}[{label}]({there}{'#' * bool(anchor)}{anchor})"
        return f"[{label}]({source}/blob/HEAD/{linked_file.relative_to(ROOT)})" if source else label

    return ANCHOR.sub(r"(\1)=", LINK.sub(link, text))


def setup(app: "Sphinx") -> dict[str, bool]:
    """Called by Sphinx."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = project.get("urls", {}).get("Source", "").rstrip("/")
    pages = pages_of_files()

    def read(app: "Sphinx", name: str, content: list[str]) -> None:
        page = Path(app.env.doc2path(name))
        if page.suffix == ".md":
            file = file_of(page)
            app.env.note_dependency(str(file))
            content[0] = relinked(file.read_text(encoding="utf-8"), file, page, pages, source)

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
