"""Rounding by rate and posterior variance: the lowest cost by enumeration, limits in which it is something known."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from compression.rounding.codebook import Codebook
from compression.rounding.rate_rounding import RATES, rate_book, rate_search


def cost(weights: np.ndarray, variances: np.ndarray, book: Codebook, rate: float) -> float:
    """sum (w - c)^2 / 2V + rate bits, with the bits of the counts that the book has."""
    parts = book.counts / book.counts.sum()
    bits = -np.log2(parts, where=parts > 0, out=np.zeros_like(parts))[book.indices]
    return float(np.sum((weights - book.values) ** 2 / (2 * variances) + rate * bits))


def test_no_single_weight_has_a_cheaper_value(rng: np.random.Generator) -> None:
    weights, variances = rng.normal(size=(12, 15)), rng.uniform(0.01, 1.0, (12, 15))
    book = rate_book(weights, variances, 6, rate=0.3)
    values = book.centres.astype(np.float64)
    bits = -np.log2(book.counts / book.counts.sum())
    costs = (weights[..., None] - values) ** 2 / (2 * variances[..., None]) + 0.3 * bits
    taken = np.take_along_axis(costs, book.indices[..., None].astype(int), -1)[..., 0]
    assert np.all(taken <= costs.min(axis=-1) + 0.02)  # the 1/2 in the counts, and centres in float16


def test_it_costs_less_than_any_split_of_few_weights_at_the_values_found() -> None:
    weights, variances = np.array([0.1, -0.2, 0.9, 1.1, 1.0, 0.05]), np.array([1.0, 1.0, 0.1, 0.1, 0.1, 0.01])
    book = rate_book(weights, variances, 2, rate=0.05)
    assert len(book.centres) == 2
    found = cost(weights, variances, book, 0.05)
    for indices in itertools.product((0, 1), repeat=6):
        other = Codebook(book.centres, np.array(indices, np.uint8))
        assert found <= cost(weights, variances, other, 0.05) + 1e-9
    mean = np.sum(weights[2:5] / variances[2:5]) / np.sum(1 / variances[2:5])
    assert book.values[3] == pytest.approx(mean, rel=2**-10)
    assert book.values[0] == 0.0


def test_a_bit_that_costs_nothing_leaves_the_nearest_values(rng: np.random.Generator) -> None:
    weights = rng.normal(size=200)
    book = rate_book(weights, rng.uniform(0.01, 1.0, 200), 8, rate=0.0)
    every = np.abs(weights[:, None] - book.centres.astype(np.float64))
    np.testing.assert_allclose(np.abs(weights - book.values), every.min(axis=1), atol=2e-3)  # float16


def test_uncertain_weights_go_to_zero_and_certain_ones_stay(rng: np.random.Generator) -> None:
    weights = rng.normal(size=400)
    variances = np.where(np.arange(400) < 200, 100.0, 1e-4)
    book = rate_book(weights, variances, 32, rate=math.log(2))
    assert np.all(book.values[:200] == 0)
    assert np.max(np.abs(book.values[200:] - weights[200:])) < 0.3
    more = rate_book(weights, variances, 32, rate=8.0)
    entropy = [-np.sum(p * np.log2(p)) for p in (b.counts / b.counts.sum() for b in (book, more))]
    assert entropy[1] < entropy[0]


def test_layers_that_are_not_bayesian_take_k_means(rng: np.random.Generator) -> None:
    book = rate_book(rng.normal(size=50), np.zeros(50), 4, rate=1.0)
    assert len(book.centres) == 4


def test_the_search_takes_the_highest_rate_within_the_bound(rng: np.random.Generator) -> None:
    weights, variances = rng.normal(size=300), np.full(300, 0.05)

    def error_of(books: Sequence[Codebook]) -> float:
        return float(np.mean((books[0].values - weights) ** 2))

    errors = [error_of([rate_book(weights, variances, 16, rate=rate)]) for rate in RATES]
    for number in (1, 4, 7):
        found = rate_search([weights], [variances], 16, error_of, max_error=errors[number])
        assert error_of(found) == errors[number] < errors[number + 1]
    assert error_of(rate_search([weights], [variances], 16, error_of, max_error=0.0)) == errors[0]


@pytest.mark.parametrize(("too_high", "expected"), [({2}, 10), ({3, 5}, 10), ({2, 4, 5}, 3), ({2, 3}, 1)])
def test_the_search_goes_on_after_one_error_that_is_too_high(too_high: set[int], expected: int) -> None:
    """It ends at two in a row: a single one may be chance."""
    weights, variances = np.linspace(-1, 1, 50), np.full(50, 0.05)
    rates: list[int] = []

    def noted(books: list[Codebook]) -> list[Codebook]:
        rates.append(len(rates))
        return [Codebook(np.array([float(rates[-1])], np.float16), np.zeros(50, np.uint8))]

    (found,) = rate_search([weights], [variances], 4, lambda books: rates[-1] in too_high, max_error=0.5, tuned=noted)
    assert found.centres == [expected]
    assert len(RATES) == 11


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [({"k": 1}, (3,), "k=1"), ({"k": 257}, (3,), "k=257"), ({"rate": -1.0}, (3,), "rate=-1"), ({}, (2,), "got")],
)
def test_bad_input(options: dict[str, float], shape: tuple[int, ...], message: str) -> None:
    settings = {"k": 4, "rate": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        rate_book(np.ones(3), np.ones(shape), int(settings["k"]), rate=settings["rate"])


def test_the_search_looks_at_centres_after_they_were_trained(rng: np.random.Generator) -> None:
    weights, variances, seen = rng.normal(size=300), np.full(300, 0.05), []

    def negated(books: list[Codebook]) -> list[Codebook]:
        return [Codebook(-book.centres, book.indices) for book in books]

    def error_of(books: Sequence[Codebook]) -> float:
        seen.append(books)
        return len(seen)

    (found,) = rate_search([weights], [variances], 16, error_of, max_error=2.0, tuned=negated)
    expected = rate_book(weights, variances, 16, rate=RATES[2])
    np.testing.assert_array_equal(found.values, -expected.values)


def test_weights_that_are_0_stay_0(rng: np.random.Generator) -> None:
    weights = np.where(rng.uniform(size=300) < 0.6, 0.0, rng.normal(size=300))
    for rate in (0.0, 0.3, 3.0):
        book = rate_book(weights, np.full(300, 10.0), 8, rate=rate)
        assert np.all(book.values[weights == 0] == 0)
