"""gpflow_deep_base.runtime.tracing and text."""

import copy
import pickle
from collections.abc import Callable

from gpflow_deep_base.runtime.tracing import Graphs, counted_alone
from gpflow_deep_base.text import aligned, duration, plus_minus, within


def factory() -> Callable[[int], int]:
    @counted_alone
    def add(x: int) -> int:
        return x + 1

    return add


def test_each_function_of_a_factory_has_its_own_code() -> None:
    first, second = factory(), factory()
    assert first.__code__ != second.__code__
    assert first(1) == second(1) == 2


def test_functions_are_made_once_and_never_copied() -> None:
    graphs = Graphs()
    assert graphs.get("a", lambda: object()) is graphs.get("a", lambda: object())
    for other in (copy.deepcopy(graphs), pickle.loads(pickle.dumps(graphs))):
        assert other.get("a", lambda: 3) == 3


def test_tables_and_numbers() -> None:
    assert (
        aligned([["name", "nats"], ["a", "-1.5"], ["long name", "2"]])
        == "name       nats\na          -1.5\nlong name     2"
    )
    assert aligned([["a", "b"], ["cc", "d"]], is_text=True) == "a   b\ncc  d"
    assert [duration(s) for s in (0.4, 42, 185, 9600)] == ["0 s", "42 s", "3 min 5 s", "2 h 40 min"]
    assert plus_minus(1.3524, 0.0071) == "1.352 ± 0.007"
    assert plus_minus(1.3524, float("nan"), 2) == plus_minus(1.3524, None, 2) == "1.35"


def test_what_is_printed_fits_into_80_columns() -> None:
    """Prose is broken at blanks, with the rest of a line indented; cells of text are, too; tables of numbers stay."""
    prose = "deep GP (3 layers): 0.252 ± 0.089 nats a row better than GP (1 layer); settled after 20,000 steps."
    path = "written to /" + 90 * "a"
    numbers = 10 * "  1234.5678"
    lines = within(f"short\n{prose}\n{numbers}\n{path}").split("\n")
    assert lines[0] == "short"
    assert [line[:4] for line in lines[1:3]] == ["deep", 4 * " "]
    assert max(map(len, lines[1:3])) <= 80
    assert " ".join(line.strip() for line in lines[1:3]) == prose
    assert lines[3] == numbers
    assert lines[4:] == ["written to", f"    /{90 * 'a'}"]
    cells = [["column", "details", "becomes"], ["x", " ".join(30 * ["level"]), "x=level"], ["y", "", "y"]]
    table = aligned(cells, is_text=True).splitlines()
    assert 70 < max(map(len, table)) <= 80
    assert len(table) == 5
    assert table[1].endswith("x=level")
    assert table[2].split() == ["level"] * len(table[2].split())
    assert table[-1].split() == ["y", "y"]
