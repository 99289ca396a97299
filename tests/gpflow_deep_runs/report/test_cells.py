"""Numbers and templates as text."""

import math

import pytest

from gpflow_deep_runs.report.cells import Entry, Figure, cell, difference, fields, number, quantities_shown


@pytest.mark.parametrize(
    ("given", "spec", "text"),
    [
        (0.99, ".3f", "0.990"),
        (28240, ",.0f", "28,240"),
        (43600.0, ".2e", "4.36e4"),
        (2.5e-4, ".1e", "2.5e-4"),
        (12000, "", "12000"),
        (Figure(value=1234567), "", "1234567"),
        (0.125, "", "0.125"),
        (-0.0004, ".3f", "0.000"),  # no negative zero
        (Figure(value=276.53, format=".2f"), ".3f", "276.53"),
        (Figure(value=9.96, se=0.3), ".1f", "10.0 ± 0.3"),
        (Figure(value=-101, plus_minus=2.57), ".2f", "-101.00 ± 2.57"),
        (7.0, "d", "7"),
    ],
)
def test_number(given: float | Figure, spec: str, text: str) -> None:
    assert number(given, spec) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (-2.20634, 0.06942, "-2.206 ± 0.069"),
        (10.4778, 0.505, "10.48 ± 0.51"),
        (116.2, 7.31, "116.2 ± 7.3"),
        (1164.4, 78.2, "1164 ± 78"),
        (1164.4, 782.0, "1164 ± 782"),
        (3.14159, 0.0996, "3.14 ± 0.10"),  # rounded first: not 0.100
        (3.14159, 0.0, "3.14159 ± 0"),
    ],
)
def test_without_a_format_the_error_has_two_digits(value: float, error: float, text: str) -> None:
    assert number(Figure(value=value, se=error)) == text


def test_values_have_mean_and_standard_error() -> None:
    """Of 1, 2, 4: mean 7/3; deviations -4/3, -1/3, 5/3, so s^2 = 42/9/2 and the error is sqrt(7/3/3)."""
    figure = Figure(values=(1.0, 2.0, None, 4.0))
    assert figure.mean == pytest.approx(7 / 3, rel=1e-15)
    assert figure.error == pytest.approx(math.sqrt(7) / 3, rel=1e-15)
    assert number(figure, ".3f") == "2.333 ± 0.882"
    assert number(Figure(values=(5.0, None)), ".1f") == "5.0"  # one value has no error


def test_paired_differences_have_the_error_of_the_differences() -> None:
    """The two vary by 10 from repetition to repetition, their difference by far less: 1, 2, 3 has error 1/sqrt(3)."""
    one, other = Figure(values=(11.0, 22.0, 33.0)), Figure(values=(10.0, 20.0, 30.0))
    found = difference(one, other)
    assert found.mean == 2
    assert found.error == pytest.approx(1 / math.sqrt(3), rel=1e-15)
    assert cell(["{a - b:.2f}"], {"a": one, "b": other}) == "2.00 ± 0.58"


def test_differences_leave_out_what_one_of_them_lacks() -> None:
    one, other = Figure(values=(None, 22.0, 33.0, 44.0)), Figure(values=(10.0, 20.0, None, 40.0))
    assert difference(one, other).values == (None, 2.0, None, 4.0)


def test_differences_of_means_have_no_error() -> None:
    """The means alone do not say how their repetitions pair."""
    assert number(difference(Figure(value=3.5, se=0.1), 1), ".1f") == "2.5"
    with pytest.raises(ValueError, match="a difference must be one of numbers, got 'x' and 1"):
        difference("x", 1)


def test_cell_takes_the_first_template_that_it_can_fill() -> None:
    templates = ["{nll:.2f} ({samples:,.0f} samples)", "{nll:.2f} exact"]
    assert cell(templates, {"nll": 13.138, "samples": 1000}) == "13.14 (1,000 samples)"
    assert cell(templates, {"nll": 13.138}) == "13.14 exact"
    assert cell(templates, {"samples": 1000}) == ""
    assert quantities_shown(templates, {"nll": 1, "samples": 2}) == {"nll", "samples"}
    assert quantities_shown(templates, {"samples": 2}) == set()


def test_cell_lists_and_texts() -> None:
    row: dict[str, Entry] = {"published": (0.967, Figure(value=-2.79, format=".2f"), "none"), "model": "DGP2"}
    assert cell(["**{model}**"], row) == "**DGP2**"
    assert cell(["{published:.3f}"], row) == "0.967, -2.79, none"


@pytest.mark.parametrize(
    "template", ["{", "a } b", "{a + b}", "{a:b}", "{a:.3f", "{a!r}", "{a:.999f}", "{a.b}", "{0[x]}"]
)
def test_wrong_templates_are_refused(template: str) -> None:
    """Also those that Python's formats know, and whose output could be anything."""
    with pytest.raises(ValueError, match=r"part of no|format of a number"):
        list(fields(template))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either value or values"),
        ({"value": 1.0, "values": (1.0,)}, "either value or values"),
        ({"values": (None,)}, "a number among its values"),
        ({"values": (1.0, 2.0), "se": 1.0}, "are computed"),
        ({"value": 1.0, "se": -1.0}, "at least 0, got -1.0"),
        ({"value": 1.0, "se": 1.0, "plus_minus": 1.0}, "got both"),
        ({"value": 1.0, "n": 0}, "n from 1 to"),
        ({"value": 1.0, "format": "x"}, "format of a number must be one such as"),
    ],
)
def test_wrong_figures_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Figure(**arguments)
