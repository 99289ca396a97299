"""What programs print, as a terminal of 80 columns shows it."""

import re

WIDTH = 80
LONG_WORD = 30
"""A line may be wider than a terminal for a word of so many characters, such as a path."""


def joined(text: str) -> str:
    """What was printed, without the breaks within lines of prose."""
    return re.sub(r"\n {4}(?=\S)", " ", text)


def check_width(text: str) -> None:
    """What a script has printed fits into a terminal."""
    wide = [line for line in text.splitlines() if len(line) > WIDTH and max(map(len, line.split())) < LONG_WORD]
    assert not wide, wide
