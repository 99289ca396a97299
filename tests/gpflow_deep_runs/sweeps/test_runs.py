import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from gpflow_deep_runs.cli.flags import parse as parse_flags
from gpflow_deep_runs.cli.flags import text
from gpflow_deep_runs.sweeps import arguments, expand, parse

HEAD = 'script = "train_dgp.py"\n'


def test_every_combination_once_and_in_order() -> None:
    sweep = parse(
        HEAD + "[flags]\nnum_steps = 9\n[axes]\ndataset = ['boston', 'energy']\nsplit = [0, 1]\n"
        "[settings]\ndgp2 = {num_layers = 2}\ndgp3 = {num_layers = 3, num_steps = 5}\n"
    )
    runs = expand(sweep)
    expected = list(itertools.product(["boston", "energy"], [0, 1], ["dgp2", "dgp3"]))
    assert [(run.point["dataset"], run.point["split"], run.setting) for run in runs] == expected
    assert [run.name for run in runs] == [f"{d}-split{s}-{setting}" for d, s, setting in expected]
    assert runs[0].flags == {"num_steps": 9, "dataset": "boston", "split": 0, "num_layers": 2}
    assert runs[3].flags == {"num_steps": 5, "dataset": "boston", "split": 1, "num_layers": 3}  # a setting's own


def test_without_axes_and_settings_there_is_one_run() -> None:
    (run,) = expand(parse(HEAD + "[flags]\nnum_steps = 9\n"))
    assert (run.name, run.point, run.setting, run.flags) == ("run", {}, "", {"num_steps": 9})


def test_names_are_names_of_folders() -> None:
    sweep = parse(HEAD + "[axes]\ndata = ['../my tables/a.csv', '.hidden', '']\nard = [true]\nhidden = [[3, 2]]\n")
    assert [run.name for run in expand(sweep)] == [
        "_my_tables_a.csv-ardTrue-hidden3,2",
        "hidden-ardTrue-hidden3,2",
        "data-ardTrue-hidden3,2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[axes]\ndata = ['a b', 'a/b']\n", "two runs have the name a_b"),
        ("[settings]\na = {x = 1}\nb = {x = 1}\n", "the runs a and b have the same flags"),
    ],
)
def test_runs_that_cannot_be_told_apart_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expand(parse(HEAD + text))


@dataclass(frozen=True)
class Flags:
    """Flags of all kinds."""

    name: str
    number: float = 1.0
    count: int = 2
    is_on: bool = True
    sizes: tuple[int, ...] = (1,)
    words: tuple[str, ...] = ()


def test_arguments_are_read_back_as_they_were_meant() -> None:
    flags: Any = {
        "name": "a b=c,d",
        "number": 1e-300,
        "count": -3,
        "is_on": False,
        "sizes": (8, 4),
        "words": ("a,b", 'say "x"', "plain"),
    }
    parsed = parse_flags(Flags, arguments(flags))
    assert parsed == Flags(**flags)
    assert sorted(arguments(flags)) == text(parsed).splitlines()  # so that they can be compared with flags.txt
