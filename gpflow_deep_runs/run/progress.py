"""What a training shows of itself on standard error: a bar in a terminal, a line a minute elsewhere."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType

from tqdm import tqdm

from gpflow_deep_base.text import duration

__all__ = ["Progress", "headline"]

LINE_SECONDS = 60.0
PARTS = ("train", "valid", "test")
_BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {remaining}{postfix}"
"""That of tqdm without its speed, so that the scores fit into 80 columns."""


def headline(scalars: Mapping[str, float]) -> dict[str, float]:
    """The first scalar of the training part, and the first of the validation part (of the test part without one)."""
    # Validation rows stand for what is new to the model; without them, the test rows do.
    tags = {part: next((tag for tag in scalars if _is_of(part, tag)), None) for part in PARTS}
    if tags["valid"] is not None:
        tags["test"] = None
    return {tag: float(scalars[tag]) for tag in tags.values() if tag is not None}


class Progress:
    """Counts steps from `first` to `total`, with the newest headline scalars; use it in a `with` statement.

    :param is_shown: False: show nothing.
    """

    def __init__(self, first: int, total: int, *, is_shown: bool) -> None:
        self.step = first
        self._total = total
        # A bar needs a terminal; elsewhere there is a line a minute.
        self._has_lines = is_shown and not sys.stderr.isatty()
        is_bar = is_shown and not self._has_lines and first < total
        self._bar = tqdm(initial=first, total=total, disable=not is_bar, dynamic_ncols=True, bar_format=_BAR)
        self._first = first
        self._start = time.monotonic()
        self._next_line = self._start + LINE_SECONDS
        self._newest = dict[str, dict[str, float]]()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    def advance(self, step: int, scalars: Mapping[str, float]) -> None:
        """`step` steps are done; `scalars` are what was logged of the last one, if anything."""
        # The bar counts steps of this process, and the newest scalars stand beside it.
        self._bar.update(step - self.step)
        self.step = step
        if heads := headline(scalars):
            for part in PARTS:  # a newer scalar of a part takes the place of the older
                self._newest[part] = {t: v for t, v in heads.items() if _is_of(part, t)} or self._newest.get(part, {})
            self._bar.set_postfix_str(self._scalars(), refresh=False)
        # Without a terminal a line a minute says the same.
        if self._has_lines and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Step, scalars, and the time that is left at the speed so far."""
        speed = (self.step - self._first) / max(time.monotonic() - self._start, 1e-9)
        remaining = duration((self._total - self.step) / speed) if speed > 0 else "?"
        return "; ".join(filter(None, [f"step {self.step} of {self._total}", self._scalars(), f"{remaining} left"]))

    def _scalars(self) -> str:
        """The newest headline in so few words that a bar fits beside it: "elbo -1118.7, valid nll -5.827"."""
        words = list[str]()
        names = set[str]()
        # Of each part its newest scalar, in the order training, validation, test.
        for tag, value in (item for of_part in self._newest.values() for item in of_part.items()):
            name = tag.removesuffix("_nats").removesuffix("_percent").rpartition("/")[2]
            part = next((part for part in PARTS[1:] if _is_of(part, tag)), "")
            # A name that was there already is not said again: "error 3.1, valid 3.4".
            shown = [part, *([name] if name not in names or not part else [])]
            names.add(name)
            words.append(" ".join([*filter(None, shown), f"{value:.5g}"]))
        return ", ".join(words)


def _is_of(part: str, tag: str) -> bool:
    return part in tag.split("/")[:-1]
