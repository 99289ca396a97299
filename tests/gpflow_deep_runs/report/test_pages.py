"""Markers in pages: what is written between them, and what a check finds."""

from pathlib import Path
from typing import Any

import pytest

from gpflow_deep_runs.report.pages import filled, markdown, markers, not_shown, problems, update
from gpflow_deep_runs.report.results import as_text, parsed, write
from tests.gpflow_deep_runs.report.example import document

PAGE = """# Page

<!-- index -->
<!-- end -->

## First: a section!

By hand.
<!-- table: small/scores -->
old
<!-- end -->
Also by hand.

```md
<!-- table: nothing/here -->
## No section
```

## Second
<!-- table: small/differences -->
<!-- end -->
<!-- commands: small -->
<!-- end -->
"""


def stored(**changes: Any) -> dict[str, Any]:
    return {"small": parsed(document(**changes), "small")}


def test_filled() -> None:
    text = filled(PAGE, stored())
    assert (
        """By hand.
<!-- table: small/scores -->
<a id="small-scores"></a>

| data set | linear | GP | published |
|---|---|---|---|
| boston | -2.80 ± 0.06 | -2.50 ± 0.12 | -2.4 |
| energy | -2.50 ± 0.04 | -0.78 | |

<!-- end -->
Also by hand.
"""
        in text
    )
    assert (
        """
- [First: a section!](#first-a-section): [scores](#small-scores)
- [Second](#second): [paired differences](#small-differences)
"""
        in text
    )
    assert "<!-- table: nothing/here -->\n## No section" in text
    assert "old" not in text


SUMMARY = [["set", "ours", "theirs"], ["boston", "[[small/scores|boston|GP]] (a GP)", "by hand"]]


def test_a_summary_has_cells_of_tables() -> None:
    page = "<!-- summary -->\n<!-- end -->"
    text = filled(page, stored(), SUMMARY)
    assert "| set | ours | theirs |\n|---|---|---|\n| boston | -2.50 ± 0.12 (a GP) | by hand |\n" in text
    assert filled(text, stored(), SUMMARY) == text


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("[[other/scores|boston|GP]]", "there is no table scores in results/other.json"),
        ("[[small/other|boston|GP]]", "there is no table other in results/small.json"),
        ("[[small/scores|oslo|GP]]", "0 rows fit"),
        ("[[small/scores|GP]]", "2 rows fit"),
        ("[[small/scores|boston|SVM]]", "one of data set, linear, GP, published"),
    ],
)
def test_a_summary_of_nothing_is_refused(reference: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"line 1: .*{message}"):
        filled("<!-- summary -->\n<!-- end -->", stored(), [["ours"], [reference]])


def test_what_is_filled_stays() -> None:
    text = filled(PAGE, stored())
    assert filled(text, stored()) == text


def test_the_text_by_hand_stays() -> None:
    """All lines outside of markers, in their order."""

    def by_hand(page: str) -> list[str]:
        inside = [range(marker.first, marker.last + 1) for marker in markers(page)]
        return [line for n, line in enumerate(page.split("\n")) if not any(n in lines for lines in inside)]

    assert by_hand(filled(PAGE, stored())) == by_hand(PAGE)


def test_commands() -> None:
    command = "train.py --long=" + "x" * 40 + ' --text="a b" --longer=' + "y" * 60
    runs = [
        {
            "command": command,
            "of": "all",
            "seconds": 7200.4,
            "remark": ["by night", "b: by day"],
            "parts": {"a": 1, "b": None},
        }
    ]
    runs += [{"command": "make train", "commit": "d" * 40, "date": "2026-11-23"}]
    text = filled("<!-- commands: small -->\n<!-- end -->", stored(runs=runs))
    made = "Made by <code>train.py</code>, <code>make train</code>"
    assert (
        text
        == f"""<!-- commands: small -->
<details><summary>{made}: commit c0ffee0, commit ddddddd, 2026-11-22</summary>

two cores; commit c0ffee{"0" * 34}.

```sh
# all; 2 runs, together 7,200 s
# by night
# b: by day
train.py --long={"x" * 40} --text="a b" \\
    --longer={"y" * 60}
# commit ddddddd; 2026-11-23
make train
```

</details>
<!-- end -->"""
    )


def test_numbers_that_are_older_than_the_code_say_so() -> None:
    page = "<!-- table: small/scores -->\n<!-- end -->\n<!-- commands: small -->\n<!-- end -->"
    stale = {"small": "of 2026-11-22; since 2026-11-25: another rule (ebp/fit.py)"}
    note = "**These numbers are older than the code**: of 2026-11-22; since 2026-11-25: another rule (ebp/fit.py)."
    assert f"{note}\n\n<details>" in filled(page, stored(), stale=stale)
    assert note not in filled(page, stored())


def test_markdown_keeps_cells_apart() -> None:
    assert markdown([["a|b", ""], ["", "q(h | x)"]]) == "| a\\|b | |\n|---|---|\n| | q(h \\| x) |"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("\n<!-- table: small/scores -->", "line 2: the table small/scores of line 2 must have its <!-- end -->"),
        ("<!-- end -->", "line 1: an end without its marker"),
        ("<!-- index -->\n<!-- table: small/scores -->", "line 2: the index  of line 1 must have its"),
        ("<!-- table -->\n<!-- end -->", "line 1: must be <!-- table: FILE/TABLE -->"),
        ("<!-- table: big/scores -->\n<!-- end -->", r"line 1: big/scores: there is no results/big\.json, only small"),
        (
            "<!-- table: small/score -->\n<!-- end -->",
            r"line 1: small/score: results/small\.json has the tables scores, ",
        ),
        ("<!-- commands: big -->\n<!-- end -->", "line 1: big: there is no"),
    ],
)
def test_wrong_markers_are_refused(page: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled(page, stored())


def test_not_shown() -> None:
    assert not_shown([PAGE], stored()) == []
    assert not_shown(["<!-- table: small/scores -->\n<!-- end -->"], stored()) == [
        "<!-- table: small/differences -->",
        "<!-- commands: small -->",
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path / "results" / "small.json", document())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    (tmp_path / "README.md").write_text("No marker.\n")
    return tmp_path


def test_update_then_no_problems(project: Path) -> None:
    assert update(project) == [project / "docs" / "page.md"]
    assert problems(project) == []
    assert update(project) == []


def test_the_summary_is_a_file_of_rows(project: Path) -> None:
    folder = project / "docs" / "results"
    folder.mkdir()
    (folder / "page.md").write_text("<!-- table: small/scores -->\n<!-- end -->")
    (project / "README.md").write_text("<!-- summary -->\n<!-- end -->")
    (folder / "summary.json").write_text('[["ours"], ["[[small/scores|boston|GP]]"]]')
    assert set(update(project)) == {project / "README.md", project / "docs" / "page.md", folder / "page.md"}
    assert "| -2.50 ± 0.12 |" in (project / "README.md").read_text()
    assert problems(project) == []
    (folder / "summary.json").write_text('[["ours"], ["a", "b"]]')
    with pytest.raises(ValueError, match=r"summary\.json: must be rows of equally many cells"):
        update(project)


def test_a_changed_number_is_found_with_its_place(project: Path) -> None:
    update(project)
    page = project / "docs" / "page.md"
    page.write_text(page.read_text().replace("-0.78", "-0.87"))
    line = page.read_text().split("\n").index("| energy | -2.50 ± 0.04 | -0.87 | |") + 1
    (found,) = problems(project)
    assert found.startswith(f"docs/page.md:{line}: table small/scores has '| energy | -2.50 ± 0.04 | -0.87 | |', the ")
    assert "'| energy | -2.50 ± 0.04 | -0.78 | |'" in found


def test_changed_results_are_found(project: Path) -> None:
    update(project)
    given = document()
    given["rows"][1]["gp"] = -0.79
    write(project / "results" / "small.json", given)
    assert [found.split(" has ")[0].split(": ")[1] for found in problems(project)] == [
        "table small/scores",
        "table small/differences",
    ]


def test_a_table_without_a_marker_and_a_layout_by_hand_are_found(project: Path) -> None:
    update(project)
    write(project / "results" / "other.json", document())
    path = project / "results" / "small.json"
    path.write_text(path.read_text().replace("    ", "\t"))
    assert problems(project) == [
        "results/small.json: is not laid out as it is written; run `make results`",
        "no page has <!-- table: other/scores -->",
        "no page has <!-- table: other/differences -->",
        "no page has <!-- commands: other -->",
    ]
    assert update(project) == [path]
    assert path.read_text() == as_text(document())


def test_nothing_is_written_if_a_file_is_wrong(project: Path) -> None:
    before = (project / "docs" / "page.md").read_text()
    (project / "README.md").write_text("<!-- table: small/none -->\n<!-- end -->\n")
    for call in (update, problems):
        with pytest.raises(ValueError, match=r"README\.md: line 1: small/none"):
            call(project)
    assert (project / "docs" / "page.md").read_text() == before
