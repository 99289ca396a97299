"""Which tests are slow, by measurement: `slow.txt` beside this file, which conftest.py reads.

A line is "ci TEST" or "nightly TEST": a test function, or one of its cases, that `make test` leaves to `make test-ci`,
which every change has to pass, or to `make test-slow`. Write the lines of ci anew from a run of all of them:

    pytest --runslow --junitxml=measured.xml -m "not install" && python -m tests.tiers measured.xml
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
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


def measured(path: Path) -> Counter[str]:
    """Seconds by test function in a report of pytest in JUnit's format."""
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("skipped") is None:
            file = case.attrib["classname"].replace(".", "/") + ".py"
            name = re.sub(r"\[.*", "", case.attrib["name"], flags=re.DOTALL)
            seconds[f"{file}::{name}"] += float(case.attrib["time"])
    return seconds


def main(report: str, seconds: str = str(SECONDS)) -> None:
    """Write the lines of ci from a report; those of the night stay."""
    kept = {test: tier for test, tier in load().items() if tier == "nightly"}
    whole = {test for test in kept if "[" not in test}
    slow = {test for test, spent in measured(Path(report)).items() if spent > float(seconds)} - whole
    lines = sorted([*(f"ci {test}" for test in slow), *(f"nightly {test}" for test in kept)])
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
