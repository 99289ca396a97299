import datetime

import numpy as np
import pyarrow as pa
import pytest

from gpflow_deep_runs.data.values.times import check_format, full_pattern, iso_format, read_dates, read_times

_EPOCH = datetime.datetime(1970, 1, 1)


def _days(moment: datetime.datetime) -> float:
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return (moment - _EPOCH) / datetime.timedelta(days=1)


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d",
        "%Y-%m-%dT%H:%M:%S%z",
        "%Y-%m-%d %H:%M:%S.%f",
        "%d/%m/%Y %H:%M",
        "%m/%d/%Y %I:%M %p",
        "%d.%m.%y",
        "%b %d %Y",
        "%B %d, %Y",
        "%a, %d %b %Y %H:%M:%S %Z",
        "%A %d %B %Y",
        "%Y%m%d",
        "%Y%m%dT%H%M%S",
        "%b %Y",
        "%Y",
        "100%% %d-%m-%Y",
    ],
)
def test_dates_are_those_of_strptime(form: str, rng: np.random.Generator) -> None:
    moments = []
    for seconds, micro in zip(rng.integers(-60 * 10**9, 250 * 10**9, 300), rng.integers(0, 10**6, 300), strict=True):
        zone = datetime.timezone(datetime.timedelta(minutes=int(rng.integers(-12 * 60, 14 * 60))))
        moments.append(
            (_EPOCH + datetime.timedelta(seconds=int(seconds), microseconds=int(micro))).replace(
                tzinfo=zone if "%z" in form else datetime.timezone.utc if "%Z" in form else None
            )
        )
    texts = [moment.strftime(form) for moment in moments if moment.year >= 1000]
    expected = [_days(datetime.datetime.strptime(text, form)) for text in texts]
    # days of four digits with a fraction of the day: float64 holds them to 1e-11
    np.testing.assert_allclose(read_dates(pa.array(texts), form), expected, rtol=0, atol=2e-11)


def test_every_day_of_four_hundred_years_and_no_other() -> None:
    day = datetime.date(1600, 1, 1)
    texts = [f"{year}-{month:02}-{d:02}" for year in range(1600, 2000) for month in range(1, 13) for d in range(1, 32)]
    found = read_dates(pa.array(texts), "%Y-%m-%d")
    real = np.flatnonzero(~np.isnan(found))
    assert len(real) == 146097
    expected = [(day + datetime.timedelta(days=i)).isoformat() for i in range(146097)]
    assert [texts[i] for i in real] == expected
    np.testing.assert_array_equal(np.diff(found[real]), 1)


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("%Y-%m-%d", ["2020-02-30", "2020-13-01", "2020-00-10", "2020-01-00", "0000-01-01", "20-01-01", "2020-01-01 "]),
        ("%Y-%m-%d", ["2020-01-01T10:00", "\uff12020-01-01", "2020-01-011", "12020-01-01", ""]),
        ("%Y-%m-%d %H:%M", ["2020-01-01 24:00", "2020-01-01 10:60", "2020-01-01 10:5", "2020-01-01"]),
        ("%Y-%m-%d %H:%M:%S", ["2020-01-01 10:00:60", "2020-01-01 10:00", "2020-01-01 10:00:00."]),
        ("%d/%m/%Y %I:%M %p", ["1/1/2020 13:00 PM", "1/1/2020 0:30 AM", "1/1/2020 10:30"]),
        ("%a %d %b %Y", ["Tue 3 Feb 2020", "Mon 3 Fev 2020"]),  # it was a Monday
        ("%Y-%m-%dT%H:%M%z", ["2020-01-01T10:00", "2020-01-01T10:00 EST", "2020-01-01T10:00+25:00"]),
        ("%Y%m%d", ["2020111", "202011111"]),
    ],
)
def test_what_is_no_date(form: str, texts: list[str]) -> None:
    assert np.isnan(read_dates(pa.array(texts), form)).all()


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("Sept 3 2020", "%b %d %Y", "2020-09-03"),
        ("SEPTEMBER 3 2020", "%b %d %Y", "2020-09-03"),
        ("sep. 3 2020", "%B %d %Y", "2020-09-03"),
        ("3\u00a0May  2020", "%d %b %Y", "2020-05-03"),
        ("1/1/69", "%d/%m/%y", "1969-01-01"),
        ("1/1/68", "%d/%m/%y", "2068-01-01"),
        ("2020-06-15T10:00:00,5-0230", "%Y-%m-%dT%H:%M:%S%z", "2020-06-15T12:30:00.5"),
        ("2020-06-15T23:59:59Z", "%Y-%m-%dT%H:%M:%S%z", "2020-06-15T23:59:59"),
        ("2020-06-15T10+02", "%Y-%m-%dT%H%z", "2020-06-15T08:00:00"),
        ("6/15/2020 12:05a.m.", "%m/%d/%Y %I:%M %p", "2020-06-15T00:05:00"),
    ],
)
def test_ways_of_writing(text: str, form: str, expected: str) -> None:
    found = read_dates(pa.array([text]), form)[0]
    assert found == pytest.approx(_days(datetime.datetime.fromisoformat(expected)), abs=2e-11)


def test_times_are_hours() -> None:
    texts = [f"{hour}:{minute:02}" for hour in range(25) for minute in range(60)]
    np.testing.assert_allclose(read_times(pa.array(texts), "%H:%M"), np.arange(25 * 60) / 60, rtol=1e-15)
    np.testing.assert_array_equal(
        read_times(pa.array(["12:00 AM", "12:00 PM", "7:30 p.m."]), "%I:%M %p"), [0, 12, 19.5]
    )
    np.testing.assert_allclose(
        read_times(pa.array(["1:30.25", "75:00.0"]), "%M:%S.%f"), [90.25 / 3600, 1.25], rtol=1e-15
    )
    assert np.isnan(read_times(pa.array(["25:61", "1:5", "1:05:30", "-1:05", "x"]), "%H:%M")).all()


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("%d.%m", "no year"),
        ("%d %Y", "day but no month"),
        ("%Q", "it has %Q, known are"),
        ("%Y %", "it has %"),
        ("%Y-%Y", "twice"),
        ("%Y %b %B", "twice"),
        ("%Y-%m-%d %I:%M", "%I needs %p"),
        ("%Y-%m-%d %H:%M %p", "%I needs %p"),
    ],
)
def test_impossible_formats(form: str, problem: str) -> None:
    assert problem in check_format(form)


def test_formats_hold_any_text_beside_directives() -> None:
    assert check_format("[a.b*] %Y") == ""
    assert not np.isnan(read_dates(pa.array(["[a.b*] 2020"]), "[a.b*] %Y")).any()
    assert np.isnan(read_dates(pa.array(["[axb*] 2020"]), "[a.b*] %Y")).all()
    assert "(?P<Y>" in full_pattern("%Y")


def test_iso_formats() -> None:
    assert iso_format(pa.array(["2020-01-31"])) == "%Y-%m-%d"
    assert iso_format(pa.array(["2020-01-31T10:20:30.5Z", "2020-01-31T10:20:30+01:00"])) == "%Y-%m-%dT%H:%M:%S%z"
    assert iso_format(pa.array(["31.1.2020"])) == "%Y-%m-%d"  # none fits: then nothing is read


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"])
@pytest.mark.parametrize(
    "odd", ["", "2015-1-2", "2015-02-31", "0000-01-01", "2015-01-01t", "2015-01-01T10", " 25:00:00", "x" * 19]
)
def test_many_moments_are_read_as_few_are(form: str, odd: str, rng: np.random.Generator) -> None:
    moments = [_EPOCH + datetime.timedelta(seconds=int(s)) for s in rng.integers(-60 * 10**9, 250 * 10**9, 3000)]
    texts = [f"{moment.year:04}{moment:{form[2:]}}" for moment in moments]
    odd_texts = [odd, (odd + texts[0][len(odd) :])[: len(texts[0])]]
    few = np.concatenate([read_dates(pa.array(texts[i : i + 100]), form) for i in range(0, 3000, 100)])
    of_odd = read_dates(pa.array(odd_texts), form)
    np.testing.assert_array_equal(read_dates(pa.array([*texts, *odd_texts]), form), [*few, *of_odd])
    np.testing.assert_array_equal(read_dates(pa.array([*texts, *odd_texts]).slice(7), form), [*few[7:], *of_odd])
