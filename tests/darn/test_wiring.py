"""Which layers see which, and the order of the passes."""

import pytest

from darn.model.layers import Wiring


@pytest.mark.parametrize(
    ("skip", "above", "below"),
    [(False, [[1], [2], []], [[0], [1]]), (True, [[1, 2], [2], []], [[0], [0, 1]])],
)
def test_passes(skip: bool, above: list[list[int]], below: list[list[int]]) -> None:
    wiring = Wiring((5, 3, 2), skip)
    assert wiring.top == 2
    assert [list(wiring.above(level)) for level in range(3)] == above
    assert [list(wiring.below(level)) for level in (1, 2)] == below
    calls: list[tuple[int, list[str]]] = []

    def draw(level: int, seen: list[str]) -> str:
        calls.append((level, seen))
        return f"h{level}"

    assert wiring.upward("x", draw) == ["x", "h1", "h2"]
    assert [level for level, _ in calls] == [1, 2]
    assert calls[1][1] == (["x", "h1"] if skip else ["h1"])
    calls.clear()
    assert wiring.downward(draw) == ["h0", "h1", "h2"]
    assert [level for level, _ in calls] == [2, 1, 0]
    assert [seen for _, seen in calls] == [[f"h{other}" for other in above[level]] for level in (2, 1, 0)]
    assert wiring.seen_above(["x", "a", "b"], 0) == (["a", "b"] if skip else ["a"])
    assert wiring.seen_below(["x", "a"], 2) == (["x", "a"] if skip else ["a"])


def test_no_stochastic_layers() -> None:
    assert Wiring((4,), False).upward("x", lambda level, seen: "h") == ["x"]
    assert Wiring((4,), False).downward(lambda level, seen: f"{level}{seen}") == ["0[]"]
