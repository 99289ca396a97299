"""Assertions on random draws that state how often they are wrong and what they can see."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["assert_mean_close"]


def assert_mean_close(
    draws: ArrayLike, exact: ArrayLike, *, num_se: float = 5.0, min_detectable: float | ArrayLike
) -> None:
    """Assert that the mean of independent `draws` is `exact`, within `num_se` standard errors.

    False alarms: 6e-7 per number compared for 5 standard errors, 3e-3 for 3, if the mean is nearly normal (the limit
    is widened as Student's t for few draws). Power: an error of `min_detectable` is seen in at least half of the
    runs, one of twice the size practically always.

    :param draws: shape [S, ...], at least 10 independent draws along the first axis.
    :param exact: expected value, of the shape [...] of one draw or broadcast to it.
    :param num_se: standard errors to tolerate.
    :param min_detectable: the error that the test must be able to see, in the units of `draws`; of the shape of one
        draw or broadcast to it. The test fails if there are too few draws for it.
    :raises AssertionError: if the draws are too few or too noisy for `min_detectable`, are not finite, do not vary (a
        constant needs no statistics: compare it with `np.testing.assert_allclose`), or if the mean is off.
    """
    draws = np.asarray(draws, dtype=np.float64)
    num_draws = draws.shape[0] if draws.ndim else 0
    assert num_draws >= 10, f"assert_mean_close needs at least 10 draws along the first axis, got {num_draws}."
    assert np.all(np.isfinite(draws)), f"{np.sum(~np.isfinite(draws))} of the draws are not finite."
    standard_error = np.std(draws, axis=0, ddof=1) / np.sqrt(num_draws)
    mean = np.mean(draws, axis=0)
    assert np.all(standard_error > 1e-15 * np.abs(mean)), (
        "draws do not vary (the same noise in every draw?); compare constants with np.testing.assert_allclose."
    )
    limit = stats.t.isf(stats.norm.sf(num_se), num_draws - 1) * standard_error
    too_wide = np.max(limit / np.asarray(min_detectable))
    assert too_wide <= 1.0, (
        f"{num_draws} draws cannot show an error of min_detectable={np.asarray(min_detectable)}: {num_se:g} standard "
        f"errors are {np.max(limit):.3g}. Take {too_wide**2:.1f} times as many draws, or less noisy ones."
    )
    error = np.abs(mean - np.asarray(exact))
    worst = np.unravel_index(np.argmax(error / limit), error.shape)
    assert np.all(error <= limit), (
        f"the mean of {num_draws} draws{f' at {[int(i) for i in worst]}' if worst else ''} is {mean[worst]:.6g}, "
        f"expected {np.broadcast_to(exact, mean.shape)[worst]:.6g}: off by {error[worst] / standard_error[worst]:.1f} "
        f"standard errors, more than {num_se:g}."
    )
