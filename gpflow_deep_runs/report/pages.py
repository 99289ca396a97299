"""Tables of results in Markdown pages, between markers; text outside of them is written by hand.

    <!-- table: uci/log_likelihood -->     the table log_likelihood of results/uci.json
    <!-- commands: uci -->                 what made its numbers, folded
    <!-- index -->                         links to the sections of the page and to its tables
    <!-- summary -->                       the table of docs/results/summary.json, with cells of other tables in it
    ...
    <!-- end -->

A marker is alone on its line, and not within a block of code.
"""

import html
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpflow_deep_base.files import write_text
from gpflow_deep_runs.report.changes import older
from gpflow_deep_runs.report.results import Made, Results, as_text, cells, read_all
from gpflow_deep_runs.report.structure import built, read_json

__all__ = ["filled", "markdown", "markers", "not_shown", "problems", "update"]

T = TypeVar("T")

MARKER = re.compile(r"<!-- (table|commands|index|summary|end)(?:: (\S+))? -->")
SUMMARY = "summary"
"""Stem of the file of rows of text, in which `[[FILE/TABLE|first cell|...|title of a column]]` is a cell of a table."""
CELL = re.compile(r"\[\[(\w+)/(\w+)\|([^\]]+)\]\]")
WIDTH = 120
CODE_WIDTH = 80
"""What the column of a page shows of a line of code."""


class Marker(NamedTuple):
    """What is between two lines of a page: its kind as in :data:`MARKER`, of what, and the numbers of the lines."""

    kind: str
    name: str
    first: int
    last: int


def markers(page: str) -> list[Marker]:
    """The markers of a page, with the lines of opening and end counted from 0.

    :raises ValueError: with the line, if a marker has no end, an end no marker, or a marker no name.
    """
    closed = list[Marker]()
    opened = None
    # Markers do not nest: an opening one needs its end before the next.
    for number, kind, name in _marker_lines(page):
        if (kind == "end") == (opened is None):
            raise ValueError(
                f"line {number + 1}: {'an end without its marker' if kind == 'end' else _unclosed(opened)}."
            )
        if (kind in ("table", "commands")) != bool(name):
            raise ValueError(f"line {number + 1}: must be <!-- table: FILE/TABLE --> or <!-- commands: FILE -->.")
        if kind == "end":
            assert opened is not None
            closed.append(opened._replace(last=number))
        opened = None if kind == "end" else Marker(kind, name, number, number)
    if opened is not None:
        raise ValueError(f"line {opened.first + 1}: {_unclosed(opened)}.")
    return closed


def filled(
    page: str,
    stored: Mapping[str, Results],
    summary: Sequence[Sequence[str]] = (),
    stale: Mapping[str, str] | None = None,
) -> str:
    """The page with what its markers ask for.

    :param stored: results by the names of their files.
    :param summary: rows of text with references to cells, titles first.
    :param stale: as :func:`gpflow_deep_runs.report.changes.older`, which the commands of these files say; None: none.
    :raises ValueError: with the line, if there is no such file or table, or as :func:`markers`.
    """
    lines = page.split("\n")
    # From the last to the first, so that the lines of those before keep their numbers.
    for marker, content in reversed(_contents(page, stored, summary, stale)):
        lines[marker.first + 1 : marker.last] = content
    return "\n".join(lines)


def not_shown(pages: Iterable[str], stored: Mapping[str, Results]) -> list[str]:
    """The markers that no page has: one for each table of each file, and one for its commands."""
    # A dictionary keeps the order of files and tables, as a set would not.
    required = {f"<!-- table: {name}/{table} -->": None for name, results in stored.items() for table in results.tables}
    required |= {f"<!-- commands: {name} -->": None for name in stored}
    shown = {f"<!-- {marker.kind}: {marker.name} -->" for page in pages for marker in markers(page)}
    return [marker for marker in required if marker not in shown]


def update(root: str | os.PathLike[str]) -> list[Path]:
    """Write the tables of all pages of a project, and its results as they are laid out.

    :param root: the folder of the project, with results/*.json, and pages in it and in the folders right below.
    :return: the files that changed.
    :raises ValueError: if a file of results or a marker is wrong; then nothing is written.
    :raises OSError: if a file cannot be read or written.
    """
    stored = read_all(Path(root) / "results")
    texts = _texts(root)
    summary = _summary_rows(root)
    stale = older(stored, root)
    # All texts are made before the first is written: an error leaves every page as it is.
    new_texts = {path: _placed(path, filled, text, stored, summary, stale) for path, text in texts.items()}
    new_texts |= {path: as_text(read_json(path)) for path in sorted((Path(root) / "results").glob("*.json"))}
    changed = [path for path, text in new_texts.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        write_text(path, new_texts[path])
    return changed


def problems(root: str | os.PathLike[str]) -> list[str]:
    """What :func:`update` would change, and what no page shows, one line each.

    :raises ValueError: if a file of results or a marker is wrong.
    :raises OSError: if a file cannot be read.
    """
    stored = read_all(Path(root) / "results")
    texts = _texts(root)
    summary = _summary_rows(root)
    stale = older(stored, root)
    lines = list[str]()
    # Pages: the first line that differs of each marker.
    for path, text in texts.items():
        for marker, content in _placed(path, _contents, text, stored, summary, stale):
            shown = text.split("\n")[marker.first + 1 : marker.last]
            if shown != content:
                offset, shown_line, results_line = _first_difference(shown, content)
                place = f"{path.relative_to(root)}:{marker.first + 2 + offset}: {marker.kind} {marker.name}".rstrip()
                lines.append(f"{place} has {shown_line!r}, the results {results_line!r}; run `make results`")
    # Files of results that were edited by hand and are laid out otherwise.
    for path in sorted((Path(root) / "results").glob("*.json")):
        if path.read_text(encoding="utf-8") != as_text(read_json(path)):
            lines.append(f"{path.relative_to(root)}: is not laid out as it is written; run `make results`")
    return lines + [f"no page has {marker}" for marker in not_shown(texts.values(), stored)]


def markdown(rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown: the titles, and the cells."""
    lines = [["" if cell == "" else f" {cell}".replace("|", "\\|") for cell in row] for row in rows]
    texts = [f"|{' |'.join(line)} |" for line in lines]
    return "\n".join([texts[0], "|" + "---|" * len(lines[0]), *texts[1:]])


def _marker_lines(page: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind and name of the markers that are in no block of code, but for one between markers."""
    is_code = False
    for number, line in enumerate(page.split("\n")):
        is_code ^= line.startswith("```")
        if not is_code and (match := MARKER.fullmatch(line)):
            yield number, match[1], match[2] or ""


def _unclosed(marker: Marker | None) -> str:
    assert marker is not None
    return f"the {marker.kind} {marker.name} of line {marker.first + 1} must have its <!-- end --> first"


def _texts(root: str | os.PathLike[str]) -> dict[Path, str]:
    paths = sorted(path for pattern in ("*.md", "*/*.md", "docs/results/*.md") for path in Path(root).glob(pattern))
    return {path: path.read_text(encoding="utf-8") for path in paths if not path.parent.name.startswith(".")}


def _summary_rows(root: str | os.PathLike[str]) -> list[list[str]]:
    """Rows of the summary, titles first; none where a project has no such file.

    :raises ValueError: if the file is no list of rows of text that are equally long.
    """
    path = Path(root) / "docs" / "results" / f"{SUMMARY}.json"
    if not path.is_file():
        return []
    rows = built(tuple[tuple[str, ...], ...], read_json(path), str(path))
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError(f"{path}: must be rows of equally many cells, titles first.")
    return [list(row) for row in rows]


def _placed(path: Path, function: Callable[..., T], *arguments: object) -> T:
    try:
        return function(*arguments)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _first_difference(shown: Sequence[str], wanted: Sequence[str]) -> tuple[int, str, str]:
    """Index and lines."""
    for index, (a, b) in enumerate(zip_longest(shown, wanted, fillvalue="")):
        if a != b:
            return index, a, b
    return min(len(shown), len(wanted)), "", "an empty line"


def _contents(
    page: str,
    stored: Mapping[str, Results],
    summary: Sequence[Sequence[str]] = (),
    stale: Mapping[str, str] | None = None,
) -> list[tuple[Marker, list[str]]]:
    """The markers of a page, and the lines that belong there."""
    page_markers = markers(page)
    is_indexed = any(marker.kind == "index" for marker in page_markers)
    contents = []
    for marker in page_markers:
        try:
            # Each kind of marker has its own content; an error says at which line.
            match marker.kind:
                case "index":
                    content = _index(page, page_markers, stored)
                case "summary":
                    content = f"\n{markdown([_referred(text, stored) for text in row] for row in summary)}\n"
                case _:
                    content = _content(marker, stored, is_indexed, (stale or {}).get(marker.name, ""))
        except ValueError as error:
            raise ValueError(f"line {marker.first + 1}: {error}") from None
        contents.append((marker, content.split("\n")))
    return contents


def _content(marker: Marker, stored: Mapping[str, Results], is_indexed: bool, stale: str) -> str:
    name, _, table = marker.name.partition("/")
    if name not in stored:
        raise ValueError(f"{marker.name}: there is no results/{name}.json, only {', '.join(stored) or 'none'}.")
    if marker.kind == "commands":
        return _commands(stored[name], stale)
    if table not in stored[name].tables:
        raise ValueError(f"{marker.name}: results/{name}.json has the tables {', '.join(stored[name].tables)}.")
    anchor = f'<a id="{_anchor(marker.name)}"></a>\n\n' if is_indexed else "\n"
    return f"{anchor}{markdown(cells(stored[name], table))}\n"


def _referred(text: str, stored: Mapping[str, Results]) -> str:
    """Text of the summary with the cells that it refers to.

    :raises ValueError: if there is no such cell, or more than one.
    """

    def cell_of(match: re.Match[str]) -> str:
        name = match[1]
        table = match[2]
        # A reference names the first cells of its row and the title of its column.
        *first, title = match[3].split("|")
        if name not in stored or table not in stored[name].tables:
            raise ValueError(f"{match[0]}: there is no table {table} in results/{name}.json.")
        titles, *rows = [list(row) for row in cells(stored[name], table)]
        chosen = [row for row in rows if row[: len(first)] == first]
        if title not in titles or len(chosen) != 1:
            raise ValueError(f"{match[0]}: must name one row and one of {', '.join(titles)}; {len(chosen)} rows fit.")
        return chosen[0][titles.index(title)]

    return CELL.sub(cell_of, text)


def _anchor(name: str) -> str:
    return name.replace("/", "-")


def _index(page: str, every: Iterable[Marker], stored: Mapping[str, Results]) -> str:
    """A list of the sections of the second level, each with the tables in it."""
    sections = dict(_headings(page))
    # A table belongs to the last section above its marker.
    links: dict[int, list[str]] = {number: [] for number in sections}
    for marker in every:
        name, _, table = marker.name.partition("/")
        sections_above = [number for number in sections if number < marker.first]
        if marker.kind == "table" and sections_above and name in stored and table in stored[name].tables:
            links[sections_above[-1]].append(f"[{stored[name].tables[table].title}](#{_anchor(marker.name)})")
    # An item for each section, with the links to its tables behind a colon.
    items = [
        _filled_lines([f"- [{title}](#{_slug(title)}){':' if links[number] else ''}", *_listed(links[number])])
        for number, title in sections.items()
    ]
    return "\n" + "\n".join(items) + "\n"


def _listed(links: Sequence[str]) -> list[str]:
    return [link + "," for link in links[:-1]] + [*links[-1:]]


def _filled_lines(parts: Iterable[str]) -> str:
    """Parts with blanks between them, on lines that are not too long; those after the first are indented."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append(" ")
        lines[-1] += f" {part}" if lines[-1] else part
    return "\n".join(lines)


def _headings(page: str) -> Iterator[tuple[int, str]]:
    is_code = False
    for number, line in enumerate(page.split("\n")):
        is_code ^= line.startswith("```")
        if not is_code and line.startswith("## "):
            yield number, line[3:].strip()


def _slug(title: str) -> str:
    """The anchor that a heading has on GitHub."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _commands(results: Results, stale: str = "") -> str:
    """What made the numbers, folded: machine, commit and date, and each command after a comment on it.

    :param stale: what changed since; said before it.
    """
    # The fold's title names the programs, the commits and the date.
    commands = [run.command for run in results.runs]
    programs = dict.fromkeys(
        word for c in commands for word in re.findall(r"\w+\.py\b", c) or [" ".join(c.split()[:2])]
    )
    names = ", ".join(f"<code>{html.escape(name)}</code>" for name in programs)
    commits = dict.fromkeys(_short(run.commit or results.commit) for run in results.runs)
    # Below it the machine, and the commands with what is known of each.
    parts = [f"<details><summary>Made by {names}: {', '.join(commits)}, {results.date}</summary>"]
    parts.append(textwrap.fill(f"{results.machine}; commit {results.commit}.", WIDTH))
    parts.append("```sh\n" + "\n".join(_command(run) for run in results.runs) + "\n```")
    older_than_code = [textwrap.fill(f"**These numbers are older than the code**: {stale}.", WIDTH)] if stale else []
    return "\n\n".join([*older_than_code, *parts, "</details>"])


def _short(commit: str) -> str:
    """A commit, or several, as people write them."""
    return "commit " + re.sub(r"\b([0-9a-f]{7})[0-9a-f]{33}\b", r"\1", commit)


def _command(run: Made) -> str:
    """A command as a shell takes it, after what is known of it in comments."""
    seconds = "" if run.seconds is None else f"{run.seconds:,.0f} s"
    # What differs from the file as a whole, in one line of comment.
    facts = [
        run.of,
        f"{len(run.parts)} runs" + (f", together {seconds}" if seconds else "") if run.parts else seconds,
        _short(run.commit) if run.commit else "",
        run.machine or "",
        run.date or "",
    ]
    remarks = (run.remark,) if isinstance(run.remark, str) else run.remark
    comment = [
        line for text in ("; ".join(filter(None, facts)), *remarks) for line in textwrap.wrap(text, CODE_WIDTH - 2)
    ]
    return "\n".join([*(f"# {line}" for line in comment), *_wrapped(run.command)])


def _wrapped(command: str) -> list[str]:
    """A long command on several lines, broken at blanks outside of quotes."""
    # Quoted text is one word, blanks and all.
    words = re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'])+""", command)
    lines = [""]
    for word in words:
        if lines[-1].strip() and len(lines[-1]) + 1 + len(word) > CODE_WIDTH - 2:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return [line + " \\" for line in lines[:-1]] + lines[-1:]
