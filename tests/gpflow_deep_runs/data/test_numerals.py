import random
import struct
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.values.numerals import Style, numbers, plain_numbers


def _decimals(rng: np.random.Generator, count: int) -> list[str]:
    """Numbers of 1 to 25 digits, many of them close to the middle between two doubles."""
    texts, context = [], Context(prec=30)
    for _ in range(count):
        digits = "".join(map(str, rng.integers(0, 10, rng.integers(1, 26))))
        cut = int(rng.integers(0, len(digits) + 1))
        text = f"{digits[:cut]}.{digits[cut:]}" if rng.random() < 0.8 else digits
        if rng.random() < 0.4:
            text += f"e{rng.integers(-340, 320)}"
        texts.append(("-" if rng.random() < 0.3 else "") + text)
    for bits in rng.integers(0, 2**63 - 2**53, count, dtype=np.uint64):  # also numbers below 1e-308
        low = struct.unpack("<d", struct.pack("<Q", int(bits)))[0]
        high = float(np.nextafter(low, np.inf))
        if np.isfinite(high):
            texts += [repr(low), str(context.divide(Decimal(low) + Decimal(high), Decimal(2)))]
    return texts


def test_plain_numbers_are_those_of_python(rng: np.random.Generator) -> None:
    texts = _decimals(rng, 2000)
    expected = np.array([float(text) for text in texts])
    found = plain_numbers(pa.array(texts))
    assert found is not None
    assert found.tobytes() == expected.tobytes()  # the last bit, too
    assert numbers(pa.array(texts), Style()).tobytes() == expected.tobytes()
    missing = plain_numbers(pa.array([f" {text} " for text in texts] + ["", "NaN", "n/a"]))
    assert missing is not None
    np.testing.assert_array_equal(missing, [*expected, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("style", [Style(".", ",", "€"), Style(",", ".", "EUR"), Style(",", " "), Style(".", "'", "%")])
def test_numbers_of_a_style_are_those_of_decimal(style: Style, rng: np.random.Generator) -> None:
    """Written from an exact decimal, in all the ways that the style allows."""
    texts, expected = [], []
    for _ in range(300):
        value = Decimal(int(rng.integers(0, 10**10))).scaleb(-int(rng.integers(0, 8)))
        whole, _, rest = f"{value:,f}".partition(".")
        text = whole.replace(",", style.thousands if rng.random() < 0.7 else "") + (
            style.decimal + rest if rest else ""
        )
        sign = random.Random(int(rng.integers(2**31))).choice(["", "-", "+", "\u2212"])
        gap = " " if rng.random() < 0.5 else "\u00a0"
        if not style.unit:
            text = sign + text
        elif rng.random() < 0.5:
            text = f"{sign}{text}{gap}{style.unit}"
        else:
            text = f"{sign}{style.unit}{gap}{text}"
        texts.append(text)
        expected.append(float(-value if sign in ("-", "\u2212") else value))
    np.testing.assert_array_equal(numbers(pa.array(texts), style), expected)


@pytest.mark.parametrize(
    ("text", "style"),
    [
        *((text, Style()) for text in ("", " ", "-", "x", "1x", "x1", "0x10", "1_000", "1,5", "1.2.3", "--5", "+-5")),
        *(
            (text, Style())
            for text in ("\uff11\uff12", "\u0663", "\u00bd", "1/2", "5-", "(5)", "1e", "e5", "1e5.5", "nan")
        ),
        *((text, Style()) for text in ("12:30", "infinite", "1 000", "1\n2", "5 %")),
        *(
            (text, Style(thousands=","))
            for text in ("1,23", "1,2345", "0,123", "12,3456", ",123", "1,234,56", "1,,234")
        ),
        *((text, Style(unit="km")) for text in ("5", "5 mi", "km", "5 km km", "km 5 km", "5 Km", "1 5 km", "5 k m")),
        *((text, Style(unit="Rs")) for text in ("Rs.500", "Rs .5", "Rs 5 Rs", "-Rs -5")),
        *((text, Style(has_parentheses=True)) for text in ("(5", "5)", "(-5)", "((5))", "()", "-(5)")),
        *((text, Style(decimal=",")) for text in ("1.5", "1.000,5", "1,5,5")),
    ],
)
def test_what_is_no_number(text: str, style: Style) -> None:
    assert np.isnan(numbers(pa.array([text]), style)).all()
    if style == Style() and text.strip() not in ("", "nan"):
        assert plain_numbers(pa.array([text])) is None


@pytest.mark.parametrize(
    ("text", "style", "expected"),
    [
        ("Infinity", Style(), np.inf),
        ("-inf", Style(), -np.inf),
        ("1e400", Style(), np.inf),
        ("1e-400", Style(), 0.0),
        ("+5", Style(), 5.0),
        ("- 5", Style(), -5.0),
        ("5.", Style(), 5.0),
        (".5", Style(), 0.5),
        ("(5)", Style(has_parentheses=True), -5.0),
        ("($5.50)", Style(unit="$", has_parentheses=True), -5.5),
        ("$-5", Style(unit="$"), -5.0),
        ("-$5", Style(unit="$"), -5.0),
        ("$.50", Style(unit="$"), 0.5),
        ("Rs.500", Style(unit="Rs."), 500.0),
        ("1e-5 kg", Style(unit="kg"), 1e-5),
        ("0", Style(unit="km"), 0.0),
        ("0.00", Style(unit="%"), 0.0),
        ("12 m2", Style(unit="m2"), 12.0),
        ("12,34,567.5", Style(thousands=","), 1234567.5),
    ],
)
def test_what_is_a_number(text: str, style: Style, expected: float) -> None:
    assert numbers(pa.array([text]), style).tolist() == [expected]


def test_texts_that_only_look_missing_are_not() -> None:
    assert plain_numbers(pa.array(["1", "nan(1)"])) is None
    assert plain_numbers(pa.array(["1", "-"])) is None
    assert plain_numbers(pa.array(["1", "-"]), missing=["-"]) is not None
    assert plain_numbers(pa.array(["1"] * 20_000 + ["x"])) is None
