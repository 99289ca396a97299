"""All that is known of log Z at a step, and what follows from it: one interval, and one verdict with its reasons.

    verdict = judge(Evidence(tracked=Tracking(12.3, 0.1, lag=0.2), ais=Annealing(15.4, 0.4, ess=7, num_chains=100)))
    verdict.low, verdict.high, verdict.reasons

What each source may say, in nats and with a probability of 95 %:

- the filter: log Z within 1.96 standard deviations, or within the lag if that is more;
- forward AIS, E[w] = Z: by Markov's inequality it is above log Z + x with a probability of at most exp(-x), whatever
  its effective sample size, so that log Z >= AIS - log 20. It is an estimate where its weights are even;
- reverse AIS from exact samples, E[1 / w] = 1 / Z: the same from above. Its samples are those of the chains;
- AIS on another path, that of training, is the same from below. It does not share the failures of temperatures: behind
  a first-order transition all that walks through temperatures is wrong together, and agrees;
- a row: q~(v) <= Z. The exact log Z, where it is at hand, ends the matter.

A mode that is missed makes the filter, AIS and reverse AIS too low, and stays missed. A filter that was refuted by a
certificate therefore stays refuted until an AIS with even weights agrees with it, and AIS, which is alone then, must
have a tenth of its chains effective. Where AIS is below the filter, by more than their errors and a nat of the lag,
either may be wrong, and neither is trusted, unless reverse AIS from the particles ends where AIS does: then no particle
is in a mode that AIS has missed, and it is the filter that is too high.
Plain Python; nothing is remembered but what is handed in.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "EQUAL",
    "LIMITS",
    "Z_95",
    "Annealing",
    "Choice",
    "Evidence",
    "Limits",
    "Tracking",
    "Verdict",
    "choice",
    "flag_names",
    "half_width",
    "is_better",
    "is_candidate",
    "is_even",
    "is_in_doubt",
    "is_inverted",
    "judge",
    "rise",
    "statement",
    "stronger",
    "tracking_errors",
]

FLAGS = {"swap_rate": 1, "ess": 2, "nis": 4, "lag": 8, "std": 16, "not_finite": 64, "samples": 128}
"""Name of a reason -> its bit."""

Z_95 = 1.96
"""Half the width of a 95 % interval of a normal in standard deviations."""

EQUAL = 1e-6
"""Weights whose relative deviation is below this are equal, but for the rounding of float32."""


class Limits(NamedTuple):
    """Beyond these a reason is given: the probability of a swap, effective samples, the mean square of normalised
    innovations, lag and standard deviation in nats; by how much samples are not those of the model, in the means of
    units, in the energy alone and in the distance of temperatures, and by how many standard deviations of what exact
    samples give; and in the energy of all temperatures, on average over observations, in standard deviations of one
    sample and in standard errors."""

    min_swap_rate: float = 0.3
    min_ess: float = 3.0
    max_nis: float = 1.5
    max_lag: float = 5.0
    max_std: float = 1.0
    max_discrepancy: float = 1.0
    max_energy: float = 0.1
    max_slope: float = 0.1
    max_deviations: float = 5.0
    max_shift: float = 0.1
    max_errors: float = 3.5


LIMITS = Limits()

CERTIFICATE = math.log(20)
"""Markov's inequality: one estimate is above (in reverse, below) log Z by so much with a probability of 5 % at most."""
PAIR = 4.744
"""The x of (1 + x) exp(-x) = 5 %: AIS is above log Z, and reverse AIS below it, by so much together."""
# of the chains effective; nats: AIS is then an estimate with an error
MIN_EVEN_SHARE = 0.1
MAX_EVEN_STD = 0.3
MIN_EVEN = 20.0  # effective chains that are enough, however many there are, unless AIS stands alone
AIS_ERRORS = 3.0
"""Standard errors of AIS in half of its 95 % interval: weights are skewed, and their standard error is too small. For
log-normal weights that are even the interval covers 96 to 99.7 %; with 1.96 it would cover 78 to 96 %."""
AGREES = 1.0  # nats of the filter's interval that count when AIS and the filter are to agree


def flag_names(flags: int) -> list[str]:
    """Names of the reasons in the bits of `filtering.health_flags`."""
    return [name for name, bit in FLAGS.items() if int(flags) & bit]


class Tracking(NamedTuple):
    """The filter: log Z, its standard deviation and lag in nats, health flags."""

    log_z: float
    std: float
    lag: float = 0.0
    flags: int = 0


class Annealing(NamedTuple):
    """AIS, in either direction: log of the mean weight and its standard error in nats, effective and all chains."""

    log_z: float
    std: float
    ess: float
    num_chains: int


class Evidence(NamedTuple):
    """What is known of log Z at a step; None where nothing is. `highest_log_q`: the largest log q~(v) of a row.
    `along`: AIS along the parameters of training, a path of its own. `rise`: see :func:`rise`."""

    tracked: Tracking | None = None
    ais: Annealing | None = None
    reverse: Annealing | None = None
    exact: float | None = None
    highest_log_q: float = -math.inf
    along: Annealing | None = None
    rise: float = 0.0


class Verdict(NamedTuple):
    """log Z is `log_z`, and between `low` and `high` with a probability of 95 %, nats; `high` is infinite if nothing
    bounds it. `is_trusted`: an estimate stands. `is_refuted`: the chains miss a mode, or did and nothing shows that
    they do no longer; it is handed to the next :func:`judge`. `reasons` are sentences."""

    log_z: float
    low: float
    high: float
    is_trusted: bool
    is_refuted: bool
    reasons: tuple[str, ...]


def judge(evidence: Evidence, *, was_refuted: bool = False) -> Verdict:
    """The interval and the verdict that follow from the evidence.

    :param was_refuted: `is_refuted` of the verdict before.
    :raises ValueError: if there is no evidence at all.
    """
    # The path of training, where it knows more than AIS does.
    if evidence.along is not None and not _is_within(evidence.along, evidence.ais):
        evidence = evidence._replace(ais=stronger(evidence.ais, evidence.along))
    tracked, ais, reverse, exact, row, *_ = evidence
    if tracked is None and ais is None and reverse is None and exact is None:
        raise ValueError("a verdict on log Z needs the filter, AIS, reverse AIS or the exact value, got none of them.")
    # What refutes the filter at this step, or did before and is not cleared yet.
    reasons = _refutations(evidence)
    is_refuted = bool(reasons) or (was_refuted and not _is_cleared(evidence))
    if is_refuted and not reasons:
        reasons = ["the filter was refuted before, and no AIS has agreed with it since"]
    if exact is not None:
        return Verdict(exact, exact, exact, True, is_refuted, tuple(reasons))
    # The interval of log Z, and what speaks against it without refuting the filter.
    span, more = _span(evidence, is_refuted)
    flags = [] if tracked is None or is_refuted else flag_names(tracked.flags)
    if not is_refuted and (gap := _below(evidence)) is not None and _is_closed(ais, reverse):
        reasons.append(f"the filter is {gap:.1f} nats above a bracket of AIS that is closed")
    if is_refuted and ais is not None and is_even(ais) and ais.ess < MIN_EVEN_SHARE * ais.num_chains:
        more = [*more, f"AIS, which is alone, has {ais.ess:.0f} of {ais.num_chains} chains effective"]
    if evidence.rise > 0:
        more = [*more, f"AIS rises by {evidence.rise:.1f} nats with the number of temperatures"]
    # Even AIS outweighs flags of the filter, but nothing odd.
    is_trusted = span is not None and not more and ((ais is not None and is_even(ais)) or not flags)
    reasons += more + [f"flag of the filter: {name}" for name in flags]
    # Without an interval: the highest estimate, and no ends but the bounds below.
    log_zs = [source.log_z for source in (tracked, ais, reverse) if source is not None and math.isfinite(source.log_z)]
    value, low, high = span or _Span(max(log_zs, default=row), -math.inf, math.inf)
    # Bounds that hold however uneven the weights are: a row, AIS by Markov's inequality, and reverse AIS.
    low = max(low, row, -math.inf if ais is None else ais.log_z - CERTIFICATE)
    if reverse is not None and not is_refuted:
        above = value if ais is None else max(value, ais.log_z)
        high = min(high, max(reverse.log_z + _reach(reverse), above))  # its samples are not exact
    high = max(high, low)
    return Verdict(min(max(value, low), high), low, high, is_trusted, is_refuted, tuple(reasons))


def statement(verdict: Verdict) -> str:
    """The verdict in one line."""
    low = verdict.low
    high = verdict.high
    # From what is sure to what is not.
    if low == high:
        return f"log Z is {low:.2f}"
    if verdict.is_refuted:
        return f"log Z is at least {low:.2f}: the chains miss a mode"
    if not math.isfinite(high):
        return f"log Z is at least {low:.2f}, and nothing bounds it from above"
    return f"log Z is between {low:.2f} and {high:.2f} (95 %)" + ("" if verdict.is_trusted else ", with doubts")


def half_width(tracked: Tracking) -> float:
    """Half of the 95 % interval of the filter: the particles trail behind moving parameters by up to the lag."""
    return max(Z_95 * tracked.std, tracked.lag)


def is_even(ais: Annealing) -> bool:
    """Whether the weights are so even that AIS is an estimate of log Z with an error, and not a bound alone."""
    return ais.ess >= min(MIN_EVEN_SHARE * ais.num_chains, MIN_EVEN) and ais.std <= MAX_EVEN_STD


def is_in_doubt(evidence: Evidence, verdict: Verdict) -> bool:
    """Whether the filter and an AIS below it contradict each other, which reverse AIS could settle."""
    return not verdict.is_refuted and _below(evidence) is not None and evidence.reverse is None


def is_inverted(ais: Annealing, reverse: Annealing) -> bool:
    """Whether the lower end of the bracket is above its upper end, beyond the errors of both."""
    if is_even(ais) or is_even(reverse):
        slack = math.hypot(_reach(ais), _reach(reverse))
    else:
        # Both are bounds alone: by how much they may cross with a probability of 5 %
        slack = PAIR
    return ais.log_z - reverse.log_z > slack


def stronger(first: Annealing | None, second: Annealing, *, is_reverse: bool = False) -> Annealing:
    """Of two estimates from the same side, on different paths, the higher if they differ beyond their errors or neither
    has even weights, else the more even.

    A path that misses a mode is too low, with even weights, too, and from above as well where its samples miss it. How
    even uneven weights are says nothing: from below the mean of both estimates of Z is one, too, and the higher one is
    above it by log 2 at most, which is taken off. From above the higher one is the bound without that.
    """
    if first is None:
        return second
    higher = max(first, second)
    if not is_even(first) and not is_even(second):
        return higher if is_reverse else higher._replace(log_z=higher.log_z - math.log(2))
    if abs(first.log_z - second.log_z) > math.hypot(_reach(first), _reach(second)):
        return higher
    # Both are right, as far as their errors tell.
    return max(first, second, key=lambda estimate: estimate.ess / estimate.num_chains)


def rise(short: Annealing, long: Annealing) -> float:
    """By how much AIS of many temperatures is above that of few, nats; 0 if both may be the same, or one is uneven.

    AIS that has arrived does not move when it gets more time: what is still rising may go on to.
    """
    if not (is_even(short) and is_even(long)):
        return 0.0
    gap = long.log_z - short.log_z
    return gap if gap > math.hypot(_reach(short), _reach(long)) else 0.0


def _is_within(along: Annealing, ais: Annealing | None) -> bool:
    """Whether AIS with even weights says all that AIS on another path does: it is no lower, but for the errors of both.

    How narrow the other one is does not count: a path that misses a part of the mass may have weights that are more
    even.
    """
    if ais is None or not is_even(ais):
        return False
    return along.log_z - ais.log_z <= math.hypot(_reach(along), _reach(ais))


def _reach(annealing: Annealing) -> float:
    """How far the true log Z may lie beyond an estimate, on the side that is bounded, nats."""
    # Errors of the mean weight, relative to it; further than the certificate nothing lies.
    return min(-math.log1p(-AIS_ERRORS * annealing.std), CERTIFICATE) if is_even(annealing) else CERTIFICATE


def _refutations(evidence: Evidence) -> list[str]:
    """Why the chains miss a mode, or the filter is wrong for another reason, by the evidence of this step."""
    tracked, ais, reverse, exact, row, *_ = evidence
    reasons = []
    # Bounds from both sides that contradict each other.
    if ais is not None and reverse is not None and is_inverted(ais, reverse):
        gap = ais.log_z - reverse.log_z
        reasons.append(
            f"the bracket is inverted: AIS, a lower bound, is {gap:.1f} nats above reverse AIS, an upper one"
        )
    if tracked is None:
        return reasons
    if not (math.isfinite(tracked.log_z) and math.isfinite(tracked.std)):
        return [*reasons, "the log Z of the filter is not finite"]
    # A row, the exact value or AIS that the filter's interval excludes.
    plain = Z_95 * tracked.std
    widened = half_width(tracked)
    if row - tracked.log_z > plain:
        reasons.append(f"a row has log p = {row - tracked.log_z:.1f} by the filter")
    if exact is not None and abs(exact - tracked.log_z) > max(widened, AGREES):
        reasons.append(f"the filter is off by {tracked.log_z - exact:+.1f} nats")
    if ais is not None:
        gap = ais.log_z - tracked.log_z
        by_certificate = gap - CERTIFICATE > plain
        if by_certificate or (is_even(ais) and gap > math.hypot(widened, _reach(ais))):
            reasons.append(f"AIS, a lower bound, is {gap:.1f} nats above the filter")
    return reasons


def _is_cleared(evidence: Evidence) -> bool:
    """Whether an AIS with even weights, or the exact value, agrees with the filter."""
    tracked = evidence.tracked
    ais = evidence.ais
    exact = evidence.exact
    if tracked is None:
        return False
    # By the exact value, or by AIS that says the same.
    if exact is not None:
        return abs(exact - tracked.log_z) <= min(half_width(tracked), AGREES)
    return ais is not None and is_even(ais) and _agree(tracked, ais)


def _agree(tracked: Tracking, ais: Annealing) -> bool:
    """Whether the filter and AIS say the same, up to their errors; a filter that knows little confirms nothing."""
    half = min(half_width(tracked), AGREES)
    return abs(ais.log_z - tracked.log_z) <= math.hypot(half, _reach(ais))


class _Span(NamedTuple):
    """A value with a 95 % interval, nats."""

    value: float
    low: float
    high: float


def _below(evidence: Evidence) -> float | None:
    """By how much an AIS with even weights is below the filter, beyond what they may differ by; None if it is not."""
    tracked = evidence.tracked
    ais = evidence.ais
    if tracked is None or ais is None or not is_even(ais) or _agree(tracked, ais):
        return None
    return tracked.log_z - ais.log_z if tracked.log_z > ais.log_z else None


def _is_closed(ais: Annealing | None, reverse: Annealing | None) -> bool:
    """Whether AIS and reverse AIS, both with even weights, are the same up to their errors."""
    if ais is None or reverse is None or not (is_even(ais) and is_even(reverse)):
        return False
    return abs(ais.log_z - reverse.log_z) <= math.hypot(_reach(ais), _reach(reverse))


def _span(evidence: Evidence, is_refuted: bool) -> tuple[_Span | None, list[str]]:
    """The narrower of the intervals of the filter and of AIS, stretched up to a bound above it; what is odd.

    A filter that doubts itself has no interval where AIS agrees with it: its chains may be about to lose a mode.
    """
    tracked = evidence.tracked
    ais = evidence.ais
    reverse = evidence.reverse
    # The interval of the filter, unless it is refuted or doubted, and that of AIS with even weights.
    halves = []
    is_doubted = (
        tracked is not None and tracked.flags != 0 and ais is not None and is_even(ais) and _agree(tracked, ais)
    )
    if tracked is not None and not is_refuted and not is_doubted:
        halves.append((half_width(tracked), tracked.log_z))
    if ais is not None and is_even(ais):
        halves.append((_reach(ais), ais.log_z))
    if not halves:
        return None, []
    # AIS below the filter: a closed bracket decides for AIS, else the interval covers both.
    if len(halves) == 2 and (gap := _below(evidence)) is not None:
        (half, value), (reach, below) = halves
        if ais is not None and reverse is not None and _is_closed(ais, reverse):
            return _Span(below, below - reach, max(below + reach, reverse.log_z + _reach(reverse))), []
        return _Span(value, below - reach, value + half), [f"AIS is {gap:.1f} nats below the filter"]
    # The narrower interval, stretched up to an uneven AIS above it or one on the other path, which are lower bounds.
    half, value = min(halves)
    names = {"AIS": ais, "AIS along the parameters of training": evidence.along}
    bounds = {
        name: estimate.log_z
        for name, estimate in names.items()
        if estimate is not None and (estimate is evidence.along or not is_even(estimate))
    }
    name = max(bounds, key=lambda candidate: bounds[candidate], default="")
    if not name or bounds[name] <= value + half:
        return _Span(value, value - half, value + half), []
    gap = bounds[name] - value - half
    rest = "the filter allows" if ais is None or not is_even(ais) else "the filter and AIS allow"
    odd = [f"{name}, of few effective chains, is {gap:.1f} nats above what {rest}"] if gap > AGREES else []
    return _Span(value, value - half, bounds[name]), odd


# Which evaluation is the best.


class Choice(NamedTuple):
    """What an evaluation is chosen by: the validation log-likelihood, and a standard deviation of which 1.96 reach to
    the lower end of its interval, nats; whether the verdict on log Z is trusted."""

    log_likelihood: float = -math.inf
    std: float = 0.0
    is_trusted: bool = False

    @property
    def low(self) -> float:
        """The lower end of the interval: by the upper end of that of log Z."""
        return self.log_likelihood - Z_95 * self.std


def choice(mean_log_q: float, verdict: Verdict) -> Choice:
    """That of the validation rows with the mean log q~ `mean_log_q`, nats."""
    return Choice(mean_log_q - verdict.log_z, (verdict.high - verdict.log_z) / Z_95, verdict.is_trusted)


def is_candidate(new: Choice, best: Choice) -> bool:
    """Whether an evaluation could be about to become the best: the upper end of its interval says so."""
    return not best.is_trusted or new.log_likelihood + Z_95 * new.std > best.low


def is_better(new: Choice, best: Choice) -> bool | None:
    """True if an evaluation is better than the best one, False if it is worse, None if that is open.

    Better is a higher lower end of the interval, worse a difference beyond the errors of both. One that is not trusted
    never takes the place of one that is, and one without a lower end takes no place.
    """
    # By what each is worth at least; trust comes first.
    if math.isfinite(new.low) and (new.low > best.low if new.is_trusted == best.is_trusted else new.is_trusted):
        return True
    gain = new.log_likelihood - best.log_likelihood + Z_95 * math.hypot(new.std, best.std)
    return False if gain < 0 or (best.is_trusted and not new.is_trusted) else None


# Against the exact log Z.


def tracking_errors(
    error: ArrayLike, std: ArrayLike, flags: ArrayLike, half_width: ArrayLike | None = None
) -> dict[str, float | None]:
    """How good a tracked log Z was over some updates, and whether its intervals and flags say so.

    :param error: [T], the tracked minus the exact log Z, nats.
    :param std: [T], standard deviations of the tracked one, nats.
    :param flags: [T], integers, see `filtering.health_flags`.
    :param half_width: [T], half of the 95 % intervals that the lag widens, nats; if not given, 1.96 `std`.
    :return: the number of updates; root mean square, largest and mean error; the shares of errors within 1.96 `std`
        and within the widened interval, and of updates that are flagged; the number of errors above 1 nat, and which
        share of these is flagged (None if there are none).
    """
    error = np.asarray(error)
    std = np.asarray(std)
    flags = np.asarray(flags)
    half = Z_95 * std if half_width is None else np.asarray(half_width)
    # What is wrong by more than a nat should be flagged.
    is_flagged = flags > 0
    is_wrong = np.abs(error) > 1
    return {
        "num_exact": len(error),
        "rmse_nats": float(np.sqrt(np.mean(error**2))),
        "max_nats": float(np.abs(error).max()),
        "bias_nats": float(error.mean()),
        "coverage_95": float(np.mean(np.abs(error) <= Z_95 * std)),
        "coverage_95_with_lag": float(np.mean(np.abs(error) <= half)),
        "flagged": float(is_flagged.mean()),
        "flagged_of_wrong": float(is_flagged[is_wrong].mean()) if is_wrong.any() else None,
        "num_wrong": int(is_wrong.sum()),
    }
