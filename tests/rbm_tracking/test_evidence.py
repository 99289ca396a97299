"""One interval and one verdict on log Z: certificates by hand, recorded sequences, simulated estimates."""

import math

import numpy as np
import pytest

from rbm_tracking.track.evidence import (
    CERTIFICATE,
    PAIR,
    Annealing,
    Choice,
    Evidence,
    Tracking,
    Verdict,
    choice,
    half_width,
    is_better,
    is_candidate,
    is_even,
    is_in_doubt,
    is_inverted,
    judge,
    rise,
    statement,
    stronger,
)

EVEN = Annealing(10.0, 0.1, 60.0, 100)
UNEVEN = Annealing(10.0, 0.4, 5.0, 100)
REACH = -math.log1p(-0.3)  # of EVEN: three standard errors of the mean weight


def test_the_constants_are_those_of_markovs_inequality() -> None:
    assert math.exp(-CERTIFICATE) == pytest.approx(0.05)
    assert (1 + PAIR) * math.exp(-PAIR) == pytest.approx(0.05, rel=1e-3)


def test_forward_ais_overshoots_as_seldom_as_the_certificate_says(rng: np.random.Generator) -> None:
    """E[w] = 1 for log-normal weights of any spread: their mean of five exceeds 20 in fewer than 1 in 20 cases."""
    for spread in (0.5, 2.0, 5.0):
        log_w = spread * rng.normal(size=(20_000, 5)) - spread**2 / 2
        assert np.mean(np.log(np.exp(log_w).mean(axis=1)) > CERTIFICATE) < 0.05


# The interval


def test_the_filter_alone_has_its_interval_widened_by_the_lag() -> None:
    assert half_width(Tracking(5.0, 0.5)) == pytest.approx(0.98)
    for lag, half in ((0.2, 0.98), (1.5, 1.5)):
        found = judge(Evidence(Tracking(5.0, 0.5, lag)))
        assert found[:5] == pytest.approx((5.0, 5.0 - half, 5.0 + half, True, False))
        assert found.reasons == ()
    flagged = judge(Evidence(Tracking(5.0, 0.5, 0.2, flags=2)))
    assert (flagged.is_trusted, flagged.reasons) == (False, ("flag of the filter: ess",))


def test_even_weights_make_ais_an_estimate_and_uneven_ones_a_bound() -> None:
    assert is_even(EVEN)
    assert not is_even(UNEVEN)
    assert not is_even(EVEN._replace(std=0.31))
    assert is_even(Annealing(10.0, 0.2, 20.0, 1000))  # twenty effective chains are enough, however many there are
    assert not is_even(Annealing(10.0, 0.2, 19.0, 1000))
    alone = judge(Evidence(ais=EVEN))
    assert alone[:5] == pytest.approx((10.0, 10.0 - REACH, 10.0 + REACH, True, False))
    bound = judge(Evidence(ais=UNEVEN))
    assert bound[:5] == (10.0, 10.0 - CERTIFICATE, math.inf, False, False)
    assert statement(bound) == "log Z is at least 7.00, and nothing bounds it from above"


def test_ais_that_rises_with_its_length_is_not_trusted() -> None:
    """A gap beyond the errors of both is a reason by itself; a fall, uneven weights and an exact log Z are none."""
    higher = EVEN._replace(log_z=11.0)
    assert rise(EVEN, higher) == pytest.approx(1.0)
    assert rise(higher, EVEN) == rise(EVEN, EVEN._replace(log_z=10.4)) == rise(UNEVEN, higher) == 0.0
    verdict = judge(Evidence(Tracking(11.0, 0.1), higher, rise=1.0))
    assert not verdict.is_trusted
    assert verdict.reasons == ("AIS rises by 1.0 nats with the number of temperatures",)
    assert statement(verdict).endswith("(95 %), with doubts")
    assert judge(Evidence(Tracking(11.0, 0.1), higher)).is_trusted
    assert judge(Evidence(Tracking(11.0, 0.1), higher, exact=11.0, rise=1.0)).is_trusted


def test_the_narrower_interval_counts() -> None:
    narrow_filter = judge(Evidence(Tracking(9.9, 0.02), EVEN))
    assert narrow_filter[:3] == pytest.approx((9.9, 9.9 - 0.0392, 9.9392))
    narrow_ais = judge(Evidence(Tracking(10.9, 0.1, lag=2.0, flags=8), EVEN))
    assert narrow_ais[:3] == pytest.approx((10.0, 10.0 - REACH, 10.0 + REACH))
    doubted = judge(Evidence(Tracking(9.9, 0.02, flags=1), EVEN))  # a filter that doubts itself has no interval
    assert doubted[:3] == pytest.approx((10.0, 10.0 - REACH, 10.0 + REACH))
    assert narrow_ais.is_trusted  # AIS says it, whatever the filter thinks of itself
    uneven = judge(Evidence(Tracking(9.0, 0.1), UNEVEN))  # a bound above the filter, if not by so much as to refute it
    assert uneven[:3] == pytest.approx((9.0, 9.0 - 0.196, 10.0))


def test_an_ais_below_the_filter_leaves_the_interval_of_both() -> None:
    """Both are too low where they miss a mode, so that the higher one is the value."""
    found = judge(Evidence(Tracking(13.0, 0.1), EVEN))
    assert found[:3] == pytest.approx((13.0, 10.0 - REACH, 13.196))
    assert (found.is_trusted, found.is_refuted) == (False, False)
    assert found.reasons == ("AIS is 3.0 nats below the filter",)


def test_a_long_lag_is_no_reason_to_believe_an_ais_that_is_lower() -> None:
    """Recorded: 500 columns at a rate far too high. All of 100 chains missed a mode of 45 nats more, with even weights,
    8 nats below a filter with a lag of 20; a long AIS found it with one chain."""
    found = judge(Evidence(Tracking(315.8, 0.9, lag=20.0, flags=8), Annealing(307.5, 0.15, 30.0, 100)))
    assert not found.is_trusted
    assert found.low < 307.5
    assert found.high == pytest.approx(335.8)
    vague = judge(Evidence(Tracking(1299.2, 30.0, flags=16), Annealing(1240.8, 0.2, 20.0, 100)))  # silhouettes: 1249.2
    assert not vague.is_trusted
    assert vague.low < 1249.2 < vague.high


def test_a_closed_bracket_below_the_filter_says_that_the_filter_is_wrong() -> None:
    """Reverse AIS from the particles would be above AIS if one of them were in a mode that AIS has missed."""
    known = Evidence(Tracking(13.0, 0.2, lag=0.4), EVEN)
    assert is_in_doubt(known, judge(known))
    closed = known._replace(reverse=Annealing(10.1, 0.1, 70.0, 100))
    assert not is_in_doubt(closed, judge(closed))
    found = judge(closed)
    assert found[:3] == pytest.approx((10.0, 10.0 - REACH, 10.1 + REACH))
    assert found[3:] == (True, False, ("the filter is 3.0 nats above a bracket of AIS that is closed",))
    for reverse in (Annealing(11.5, 0.1, 70.0, 100), Annealing(10.1, 0.4, 5.0, 100)):  # open; no estimate
        found = judge(known._replace(reverse=reverse))
        assert (found.log_z, found.is_trusted, found.reasons) == (13.0, False, ("AIS is 3.0 nats below the filter",))
    refuted = judge(closed, was_refuted=True)  # it stays so, and AIS stands alone
    assert (refuted.log_z, refuted.is_refuted) == (10.0, True)
    agrees = Evidence(Tracking(10.3, 0.2), EVEN)
    assert not is_in_doubt(agrees, judge(agrees))


def test_the_exact_value_ends_the_matter() -> None:
    found = judge(Evidence(Tracking(5.0, 0.1), EVEN, exact=10.1))
    assert found[:4] == (10.1, 10.1, 10.1, True)
    assert found.is_refuted
    assert statement(found) == "log Z is 10.10"
    assert not judge(Evidence(Tracking(10.2, 0.1), exact=10.1)).is_refuted


def test_reverse_ais_bounds_from_above_where_the_chains_are_trusted() -> None:
    upper = Annealing(10.3, 0.05, 80.0, 100)
    reach = -math.log1p(-0.15)
    assert judge(Evidence(Tracking(10.0, 0.1, lag=2.0), reverse=upper)).high == pytest.approx(10.3 + reach)
    assert judge(Evidence(ais=UNEVEN, reverse=upper)).high == pytest.approx(10.3 + reach)
    assert judge(Evidence(ais=UNEVEN, reverse=upper), was_refuted=True).high == math.inf
    below = judge(Evidence(ais=EVEN, reverse=upper._replace(log_z=9.8)))  # within the errors: no inversion
    assert (below.log_z, below.high) == (10.0, 10.0)


def test_a_row_bounds_log_z_from_below() -> None:
    found = judge(Evidence(Tracking(5.0, 0.1, lag=0.3), highest_log_q=7.5))
    assert (found.low, found.high, found.is_refuted) == (7.5, math.inf, True)
    assert found.reasons == ("a row has log p = 2.5 by the filter",)
    assert judge(Evidence(Tracking(5.0, 0.1), highest_log_q=5.1)).low == 5.1
    assert not judge(Evidence(Tracking(5.0, 0.1), highest_log_q=5.1)).is_refuted


def test_what_is_not_finite_is_no_evidence() -> None:
    found = judge(Evidence(Tracking(math.nan, 0.1), highest_log_q=3.0))
    assert (found.log_z, found.low, found.high, found.is_trusted) == (3.0, 3.0, math.inf, False)
    assert judge(Evidence(Tracking(math.nan, math.nan), EVEN)).is_trusted
    with pytest.raises(ValueError, match="needs the filter, AIS, reverse AIS or the exact value, got none"):
        judge(Evidence())


# The verdict


def test_an_inverted_bracket_says_that_the_chains_miss_a_mode() -> None:
    """Forward AIS 6 nats above reverse AIS, with 5 effective chains of 100: a lower bound above an upper one."""
    lower, upper = Annealing(306.0, 0.4, 5.0, 100), Annealing(300.0, 0.1, 70.0, 100)
    found = judge(Evidence(Tracking(299.5, 0.5, lag=4.2), lower, upper))
    assert found.is_refuted
    assert found.high == math.inf
    assert statement(found) == f"log Z is at least {306 - CERTIFICATE:.2f}: the chains miss a mode"
    assert found.reasons[0].startswith("the bracket is inverted: AIS, a lower bound, is 6.0 nats above reverse AIS")


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (EVEN, EVEN._replace(log_z=9.9), False),
        (EVEN, EVEN._replace(log_z=9.4), True),
        (EVEN, EVEN._replace(log_z=10.5), False),
        (UNEVEN, EVEN._replace(log_z=7.1), False),
        (UNEVEN, EVEN._replace(log_z=6.9), True),
        (UNEVEN, UNEVEN._replace(log_z=5.3), False),
        (UNEVEN, UNEVEN._replace(log_z=5.2), True),
    ],
)
def test_a_bracket_is_inverted_beyond_the_errors_of_both(lower: Annealing, upper: Annealing, expected: bool) -> None:
    assert is_inverted(lower, upper) is expected


def test_an_ais_that_stands_alone_needs_a_tenth_of_its_chains() -> None:
    tracked = Tracking(5.0, 0.1)
    for ess, is_trusted in ((29.0, False), (30.0, True)):
        ais = Annealing(10.0, 0.1, ess=ess, num_chains=300)
        found = judge(Evidence(tracked, ais))
        assert (found.is_refuted, found.is_trusted) == (True, is_trusted)
        assert judge(Evidence(Tracking(10.0, 0.1), ais)).is_trusted  # the filter agrees with it
    assert (
        "AIS, which is alone, has 29 of 300 chains effective"
        in judge(Evidence(tracked, Annealing(10.0, 0.1, ess=29.0, num_chains=300))).reasons
    )


def test_a_refuted_filter_stays_refuted_until_an_ais_agrees() -> None:
    behind = judge(Evidence(Tracking(5.0, 0.5), UNEVEN))
    assert behind.is_refuted
    assert behind.low == 10.0 - CERTIFICATE
    silent = judge(Evidence(Tracking(5.5, 0.5)), was_refuted=behind.is_refuted)
    assert silent.is_refuted
    assert (silent.is_trusted, silent.high) == (False, math.inf)
    assert silent.reasons == ("the filter was refuted before, and no AIS has agreed with it since",)
    uneven = judge(
        Evidence(Tracking(9.8, 0.5), UNEVEN), was_refuted=True
    )  # a bound that is not above it clears nothing
    assert uneven.is_refuted
    trailing = judge(Evidence(Tracking(7.5, 0.1, lag=4.0), EVEN), was_refuted=True)  # within its lag, which is no proof
    assert trailing.is_refuted
    assert trailing.is_trusted  # by AIS
    agreeing = judge(Evidence(Tracking(9.9, 0.1), EVEN), was_refuted=True)
    assert not agreeing.is_refuted
    assert not judge(Evidence(Tracking(9.9, 0.1), exact=10.0), was_refuted=True).is_refuted


def sequence(evaluations: list[tuple[float, Evidence]]) -> tuple[list[Verdict], int]:
    """Verdicts on evaluations with the mean log q~ of the validation rows, and which of them is the best."""
    was_refuted, best, best_index, verdicts = False, Choice(), -1, []
    for i, (mean_log_q, evidence) in enumerate(evaluations):
        verdict = judge(evidence, was_refuted=was_refuted)
        was_refuted = verdict.is_refuted
        new = choice(mean_log_q, verdict)
        if is_better(new, best):
            best, best_index = new, i
        verdicts.append(verdict)
    return verdicts, best_index


def test_a_recorded_run_that_lost_a_mode_reports_the_model_from_before() -> None:
    """200 hidden units on one-hot columns: the filter against AIS, the effective chains, std and lag as they were.

    At the last evaluation the lag has shrunk with the learning rate until its flag is gone, while the filter is still 7
    nats too low: by the filter it would be the best by far.
    """
    truth, lag_flag = 100.0, 8
    recorded = [  # error of the filter against AIS, effective chains, std, lag, flags, largest log p of a row
        (+0.4, 55.0, 0.5, 5.4, lag_flag, -8.0),
        (-7.0, 7.0, 0.5, 6.3, lag_flag, -1.0),
        (-11.0, 4.0, 0.7, 7.3, lag_flag, 2.0),
        (-3.0, 4.0, 0.6, 5.7, lag_flag, -5.0),
        (-7.0, 5.0, 0.5, 4.15, 0, -1.0),
    ]
    evaluations = [
        (
            truth - 15.0,
            Evidence(
                Tracking(truth + error, std, lag, flags),
                Annealing(truth, 0.13 if ess > 50 else 0.4, ess, 100),
                highest_log_q=truth + error + highest,
            ),
        )
        for error, ess, std, lag, flags, highest in recorded
    ]
    # AIS refutes the filter from the second evaluation on, and the first one stays the best
    verdicts, best = sequence(evaluations)
    assert best == 0
    assert [verdict.is_refuted for verdict in verdicts] == [False, True, True, True, True]
    assert [verdict.is_trusted for verdict in verdicts] == [True, False, False, False, False]
    assert all(verdict.low <= truth <= verdict.high for verdict in verdicts)
    # A filter that was refuted stays so without AIS
    unchecked = [(log_q, evidence._replace(ais=None)) for log_q, evidence in evaluations]
    assert sequence([*evaluations[:2], *unchecked[2:]])[1] == 0  # no AIS was asked any more, and nothing is forgotten
    believed = choice(unchecked[4][0], judge(unchecked[4][1]))
    assert believed.low > choice(evaluations[0][0], verdicts[0]).log_likelihood + 2  # without a memory it would win


@pytest.mark.parametrize("spread", [0.05, 0.7, 1.3, 2.0])
@pytest.mark.parametrize("is_filtered", [False, True])
def test_intervals_cover_simulated_truths(spread: float, is_filtered: bool, rng: np.random.Generator) -> None:
    """AIS with log-normal weights, and a filter with the error that it states: at least 95 %, less 5 standard errors,
    of the verdicts that are trusted; and as seldom as that is the filter refuted."""
    covered, trusted, refuted, runs = 0, 0, 0, 1500
    for _ in range(runs):
        std = rng.uniform(0.02, 0.5)
        w = np.exp(spread * rng.normal(size=100) - spread**2 / 2)
        ais = Annealing(np.log(w.mean()), w.std(ddof=1) / 10 / w.mean(), w.sum() ** 2 / (w**2).sum(), 100)
        found = judge(Evidence(Tracking(std * rng.normal(), std) if is_filtered else None, ais))
        trusted += found.is_trusted
        covered += found.is_trusted and found.low <= 0 <= found.high
        refuted += found.is_refuted
    error = 5 * math.sqrt(0.05 * 0.95 / trusted)
    assert covered / trusted > 0.95 - error
    assert refuted / runs < 0.05 + error


# Which evaluation is the best


def test_an_evaluation_is_chosen_by_the_upper_end_of_log_z() -> None:
    found = choice(2.0, Verdict(5.0, 4.8, 5.98, True, False, ()))
    assert found == pytest.approx(Choice(-3.0, 0.5, True))
    assert found.low == pytest.approx(-3.98)
    assert choice(2.0, Verdict(5.0, 4.8, math.inf, False, True, ())).low == -math.inf


@pytest.mark.parametrize(
    ("new", "best", "expected"),
    [
        (Choice(-9.0, 0.1, True), Choice(), True),
        (Choice(-9.0, 0.1, False), Choice(), True),
        (Choice(-9.0, math.inf, False), Choice(), None),
        (Choice(-4.9, 0.1, True), Choice(-5.0, 0.1, True), True),
        (Choice(-5.0, 0.1, True), Choice(-5.0, 0.1, True), None),
        (Choice(-4.9, 0.3, True), Choice(-5.0, 0.1, True), None),  # the lower end is -5.49, below -5.2
        (Choice(-5.25, 0.1, True), Choice(-5.0, 0.1, True), None),  # 1.96 sqrt(0.02) is 0.28
        (Choice(-5.3, 0.1, True), Choice(-5.0, 0.1, True), False),
        (Choice(-1.0, 0.1, False), Choice(-5.0, 0.1, True), False),  # doubted against trusted
        (Choice(-1.0, math.inf, False), Choice(-5.0, 0.1, True), False),
        (Choice(-9.0, 0.1, True), Choice(-5.0, 0.1, False), True),  # trusted against doubted
        (Choice(-4.0, 0.1, False), Choice(-5.0, 0.1, False), True),
        (Choice(-9.0, 0.1, False), Choice(-5.0, 0.1, False), False),
    ],
)
def test_better_and_worse_are_beyond_the_errors(new: Choice, best: Choice, expected: bool | None) -> None:
    assert is_better(new, best) is expected


def test_candidates_are_those_that_could_be_the_best() -> None:
    best = Choice(-5.0, 0.1, True)
    assert is_candidate(Choice(-5.1, 0.1, True), best)
    assert is_candidate(Choice(-9.0, 2.0, True), best)
    assert not is_candidate(Choice(-9.0, 1.9, True), best)
    assert is_candidate(Choice(-9.0, math.inf, False), best)
    assert is_candidate(Choice(-99.0, 0.1, True), best._replace(is_trusted=False))
    assert is_candidate(Choice(-99.0, 0.1, True), Choice())


def test_of_two_paths_the_one_that_misses_a_mode_is_left_alone() -> None:
    """Recorded: AIS of 500 hidden units on MNIST by temperatures, and along the parameters of training."""
    temperatures, trajectory = Annealing(944.58, 0.06, 70, 100), Annealing(942.19, 0.16, 29, 100)
    assert stronger(temperatures, trajectory) == stronger(trajectory, temperatures) == temperatures
    upper = Annealing(944.60, 0.05, 76, 100)
    assert stronger(upper, Annealing(943.32, 0.25, 13, 100)) == upper


def test_of_two_paths_that_agree_the_more_even_one_counts() -> None:
    even, uneven = Annealing(177.20, 0.03, 90, 100), Annealing(177.36, 0.08, 60, 100)
    assert stronger(even, uneven) == stronger(uneven, even) == even
    assert stronger(None, uneven) == uneven
    few = Annealing(179.0, 0.7, 2, 100)  # less than Markov's inequality allows it
    assert stronger(even, few) == even


def test_of_two_paths_with_few_effective_chains_the_higher_one_counts() -> None:
    """Less log 2: the mean of both is at least half of it, and Markov's inequality holds for the mean."""
    by_temperatures, by_trajectory = Annealing(94.98, 0.8, 1.6, 100), Annealing(96.43, 1.0, 1.03, 100)
    found = stronger(by_temperatures, by_trajectory)
    assert found == stronger(by_trajectory, by_temperatures)
    assert found == by_trajectory._replace(log_z=96.43 - math.log(2))
    assert stronger(by_temperatures, by_trajectory, is_reverse=True) == by_trajectory


def test_a_recorded_run_whose_chains_may_miss_a_mode_is_not_trusted() -> None:
    """web, 100 hidden units at a rate of 0.2: no flag, 1.6 effective chains far above, particles that saw nothing."""
    tracked, ais = Tracking(91.667, 0.446, 2.188), Annealing(94.977, 0.78, 1.63, 100)
    verdict = judge(Evidence(tracked, ais, Annealing(93.009, 0.16, 29.7, 100)))
    assert not verdict.is_trusted
    assert verdict.high == ais.log_z
    assert verdict.low == pytest.approx(ais.log_z - CERTIFICATE)
    assert verdict.reasons == ("AIS, of few effective chains, is 1.1 nats above what the filter allows",)
    assert statement(verdict).endswith("with doubts")
    within = judge(Evidence(tracked, ais._replace(log_z=94.5)))
    assert (within.is_trusted, within.high) == (True, 94.5)


def test_ais_along_training_counts_where_temperatures_agree_and_are_wrong() -> None:
    """The filter and AIS through temperatures walk one path, and miss a mode together."""
    known = Evidence(Tracking(10.0, 0.1), Annealing(10.05, 0.05, 80.0, 100))
    alone = judge(known)
    even = Annealing(11.5, 0.05, 80.0, 100)
    refuted = judge(known._replace(along=even))
    assert alone.is_trusted
    assert alone.high < 11.2
    assert refuted.is_refuted
    assert refuted.low <= 11.5 <= refuted.high
    assert refuted.reasons == ("AIS, a lower bound, is 1.5 nats above the filter",)
    few = judge(known._replace(along=Annealing(12.0, 0.6, 3.0, 400)))
    assert few.high == 12.0
    assert not few.is_trusted
    assert len(few.reasons) == 1
    assert "AIS along the parameters of training, of few effective chains" in few.reasons[0]
    assert judge(known._replace(along=Annealing(9.0, 0.6, 3.0, 400))) == alone  # a lower bound that is lower
    assert judge(Evidence(along=even)) == judge(Evidence(ais=even))
    narrower = Annealing(10.0, 0.01, 99.0, 100)
    assert judge(known._replace(along=narrower)) == alone  # its weights are more even, which says nothing


def test_the_interval_reaches_up_to_the_other_path() -> None:
    """AIS along training is a lower bound, too: where both agree up to their errors, it may still be the higher one."""
    ais, along = Annealing(59.98, 0.029, 600, 1200), Annealing(60.14, 0.063, 150, 400)
    verdict = judge(Evidence(ais=ais, along=along))
    assert verdict.is_trusted
    assert (verdict.log_z, verdict.high) == (59.98, 60.14)
    assert judge(Evidence(ais=ais, along=along._replace(log_z=59.9))).high == judge(Evidence(ais=ais)).high
