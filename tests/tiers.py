"""Which tests are slow, by measurement: `slow.txt` beside this file, which conftest.py reads.

A line is "ci TEST" or "nightly TEST": a file (whose fixture is slow), a test function or one of its cases that
`make test` leaves to `make test-ci`, which every change has to pass, or to `make test-slow`. The narrowest line counts.
Add the functions that a run found slow to those of ci:

    make test PYTEST_FLAGS=--junitxml=measured.xml && python -m tests.tiers measured.xml
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

__all__ = ["FILE", "SECONDS", "load"]

FILE = Path(__file__).parent / "slow.txt"
SECONDS = 1.6
"""CPU seconds of all cases of a test function from which on it is no part of `make test`."""


def load(path: Path = FILE) -> dict[str, str]:
    """Tier, "ci" or "nightly", by test; empty where there is no file."""
    if not path.is_file():
        return {}
    lines = [line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return {test: tier for tier, test in lines}


def measured(path: Path) -> dict[str, float]:
    """Seconds by test function in a report of pytest in JUnit's format."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("skipped") is None:
            places = case.attrib["classname"].split(".")
            classes = [place for place in places if place.startswith("Test")]
            file = "/".join(places[: len(places) - len(classes)]) + ".py"
            name = re.sub(r"\[.*", "", case.attrib["name"], flags=re.DOTALL)
            seconds["::".join([file, *classes, name])] += float(case.attrib["time"])
    return seconds


def main(report: str, seconds: str = str(SECONDS)) -> None:
    """Add a line of ci for each function of a report that takes longer and has no line yet."""
    tiers = load()
    slow = {test for test, spent in measured(Path(report)).items() if spent > float(seconds)}
    new = {test: "ci" for test in slow if test not in tiers and test.split("::")[0] not in tiers}
    lines = sorted(f"{tier} {test}" for test, tier in {**new, **tiers}.items())
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
