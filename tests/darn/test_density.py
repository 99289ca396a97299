"""`DARNDensity` as scikit-learn wants it."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import check_estimator

import darn
from darn import DARN, DARNConfig, DARNDensity, TrainingConfig
from darn.more.ordered import as_categories
from darn.train.chain_fitting import fit_chain
from tests.darn.rows import every_row

N_X = 5
DOUBLE = {"dtype": "float64"}
TINY = DARNDensity(hidden=3, units=4, learning_rate=0.01, weight_decay=0.0, max_steps=50)

# Rows that weigh nothing may be those that validate.
UNEQUAL = {
    f"check_sample_weight_equivalence_on_{kind}_data": "validation rows are drawn without regard to weights"
    for kind in ("dense", "sparse")
}


@pytest.fixture(scope="module")
def bits() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.integers(0, 2, (3, N_X))[rng.integers(0, 3, 200)] ^ (rng.uniform(size=(200, N_X)) < 0.1)).astype(int)


@pytest.fixture(scope="module")
def fitted(bits: np.ndarray) -> DARNDensity:
    return clone(TINY).fit(bits)


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where networks are tried, it is one that takes a moment."""
    monkeypatch.setattr("darn.train.density_choice._NETWORK_WORK", 1e9)
    monkeypatch.setattr("darn.train.density_choice._ORDERS_WORK", 0.0)


def darn_of(density: DARNDensity) -> DARN:
    assert isinstance(density.model_, DARN)
    return density.model_


def test_it_is_a_density_in_nats(fitted: DARNDensity, bits: np.ndarray) -> None:
    log_p = fitted.score_samples(every_row(N_X))
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-5)
    assert fitted.score(bits) == pytest.approx(fitted.score_samples(bits).mean())
    means = bits.mean(axis=0).clip(0.01, 0.99)
    independent = np.where(bits, np.log(means), np.log(1 - means)).sum(axis=1).mean()
    assert fitted.score(bits) > independent


def test_log_p_by_column_sums_to_log_p_of_a_darn(fitted: DARNDensity, bits: np.ndarray) -> None:
    """With stochastic units, and without."""
    by_column = fitted.score_samples(bits, by_column=True)
    np.testing.assert_allclose(by_column.sum(axis=1), fitted.score_samples(bits), atol=1e-5)
    plain = DARNDensity(hidden=(), learning_rate=0.01, weight_decay=0.0, max_steps=300).fit(bits)
    by_column = plain.score_samples(bits, by_column=True)
    np.testing.assert_allclose(by_column.sum(axis=1), plain.score_samples(bits), atol=1e-5)


def test_the_value_to_blame_is_the_one_that_was_changed() -> None:
    """In a table of pairs and triples of attributes that follow one another, one value of a row is another one."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 3000)
    follows = [np.where(rng.uniform(size=3000) < 0.97, value, rng.integers(0, 4, 3000)) for value in (a, 3 - a, a ^ 1)]
    values = np.stack([a, *follows], axis=1)
    x = np.eye(4)[values].reshape(3000, 16)
    groups = [tuple(range(4 * i, 4 * i + 4)) for i in range(4)]
    density = DARNDensity(architecture="chain", categories=groups).fit(x)
    odd = values[:300].copy()
    columns = rng.integers(0, 4, 300)
    odd[np.arange(300), columns] = (odd[np.arange(300), columns] + rng.integers(1, 4, 300)) % 4
    gains = density.blame(np.eye(4)[odd].reshape(300, 16))
    assert (gains.argmax(axis=1) // 4 == columns).mean() >= 0.9
    assert (gains.max(axis=1) > 0).mean() >= 0.9
    # By its definition, of bits.
    bits = x[:5, :3]
    plain = DARNDensity(architecture="chain").fit(x[:200, :3])
    flipped = np.where(np.arange(3) == 1, 1 - bits, bits)
    expected = plain.score_samples(flipped) - plain.score_samples(bits)
    np.testing.assert_allclose(plain.blame(bits)[:, 1], expected)


def test_samples_have_the_frequencies_of_the_density(fitted: DARNDensity) -> None:
    """A frequency of 4,000 draws is beyond five standard errors in 6e-7 of all cases; 32 rows are looked at."""
    drawn, rows = fitted.sample(4000), every_row(N_X)
    assert drawn.shape == (4000, N_X)
    p = np.exp(fitted.score_samples(rows))
    found = (drawn[:, None] == rows[None]).all(axis=2).mean(axis=0)
    assert np.all(np.abs(found - p) < 5 * np.sqrt(p / 4000) + 1e-3)
    np.testing.assert_array_equal(fitted.sample(7), fitted.sample(7))
    assert not np.array_equal(fitted.sample(50), fitted.sample(50, random_state=1))


def test_the_code_is_the_more_probable_value_of_each_unit(fitted: DARNDensity) -> None:
    rows = every_row(N_X)
    h = fitted.transform(rows)
    assert h.shape == (32, 3)
    x = tf.constant(rows, tf.float32)
    (logits,) = darn_of(fitted).encoder_logits(x, (tf.constant(h),))
    np.testing.assert_array_equal(h, (logits > 0).numpy())


def test_the_same_seed_is_the_same_model(fitted: DARNDensity, bits: np.ndarray) -> None:
    again = clone(TINY).fit(bits)
    np.testing.assert_array_equal(again.score_samples(bits), fitted.score_samples(bits))


def test_the_architecture_is_chosen_if_not_given(bits: np.ndarray) -> None:
    search = darn.SearchConfig(candidates=1)
    density = DARNDensity(units=4, weight_decay=0.0, learning_rate=0.01, search=search, max_steps=25).fit(bits)
    assert density.choice_ is not None
    assert darn_of(density).config.hidden == density.choice_.model.hidden
    assert darn_of(density).config.visible_conditional == "linear"


@pytest.mark.parametrize("given", [("hidden", 3), ("units", 4), ("learning_rate", 0.01), ("weight_decay", 0.1)])
def test_what_is_given_stays_and_the_rest_is_chosen(
    bits: np.ndarray, monkeypatch: pytest.MonkeyPatch, given: tuple[str, Any]
) -> None:
    asked: list[dict[str, Any]] = []

    def chosen(x: np.ndarray, valid: np.ndarray, **how: Any) -> Any:
        asked.append({**how["model"], **how["training"]})
        return SimpleNamespace(model=DARNConfig(N_X, (2,), (2,)), training=TrainingConfig())

    monkeypatch.setattr("darn.train.density.choose", chosen)
    DARNDensity(**{given[0]: given[1], "max_steps": 25}).fit(bits)
    sizes = {name: asked[0][name] for name in ("hidden", "units", "learning_rate", "weight_decay")}
    assert sizes == {**dict.fromkeys(sizes), given[0]: (given[1],) if given[0] in ("hidden", "units") else given[1]}
    assert clone(TINY).fit(bits).choice_ is None
    assert len(asked) == 1


def test_a_made_and_its_orders(bits: np.ndarray) -> None:
    fields = {"visible_conditional": "made", "conditional_units": 6, "orders": 2}
    made = clone(TINY).set_params(hidden=(), units=None, model=fields)
    density = made.fit(bits)
    config = density.model_.config
    assert (config.hidden, config.units, config.visible_conditional) == ((), (), "made")
    assert (config.conditional_units, config.orders) == (6, 2)
    assert np.exp(density.score_samples(every_row(N_X))).sum() == pytest.approx(1.0, abs=1e-5)
    assert density.choice_ is None
    with pytest.raises(ValueError, match="orders=2 is for the conditionals eonade, made"):
        clone(TINY).set_params(model={"orders": 2}).fit(bits)


def test_missing_bits_are_those_of_the_mask_or_nan(fitted: DARNDensity, bits: np.ndarray) -> None:
    x, mask = bits[:20], np.random.default_rng(1).uniform(size=(20, N_X)) < 0.4
    found = fitted.complete(x, mask)
    expected = darn.complete(darn_of(fitted), x, mask)
    np.testing.assert_array_equal(found, expected)
    holes = np.where(mask, np.nan, x)
    np.testing.assert_array_equal(fitted.complete(holes), found)
    np.testing.assert_array_equal(fitted.complete(holes, mask), found)
    frame = pd.DataFrame(holes, columns=list("abcde"))
    named = clone(TINY).fit(pd.DataFrame(bits, columns=list("abcde")))
    np.testing.assert_array_equal(named.complete(frame), found)
    np.testing.assert_array_equal(named.complete(frame.astype("Int64")), found)
    for wrong in (
        lambda: named.complete(frame[list("edcba")]),
        lambda: named.complete(frame, frame.isna()[list("edcba")]),
    ):
        with pytest.raises(ValueError, match="feature names should match"):
            wrong()
    for wrong_mask in (mask.astype(int), mask[0], np.ones((20, 1), bool)):
        with pytest.raises(ValueError, match=r"mask must be booleans of the shape of X, \(20, 5\), True where .* got"):
            fitted.complete(x, wrong_mask)
    with pytest.raises(ValueError, match=r"got nan in row .* say by the mask that it is missing"):
        fitted.complete(holes, mask & False)
    with pytest.raises(ValueError, match="4 features"):
        fitted.complete(x[:, 1:], mask[:, 1:])


@pytest.mark.parametrize("name", ["max_steps", "batch_size", "num_samples"])
def test_numbers_are_checked_before_training(bits: np.ndarray, name: str) -> None:
    for wrong in (0, 2.5, None):
        with pytest.raises(ValueError, match=f"{name} must be a whole number, at least 1, got {wrong}"):
            clone(TINY).set_params(**{name: wrong}).fit(bits)


def test_few_samples_that_count_are_one_warning(bits: np.ndarray) -> None:
    density = clone(TINY).set_params(hidden=20, num_samples=200, max_steps=25).fit(bits)
    density.model_.encoders[0].conditional.bias.assign(tf.fill([20], 4.0))
    x = np.repeat(bits, 6, axis=0)
    for score in (density.score_samples, density.score):
        with pytest.warns(
            UserWarning, match=r"of the 200 importance samples of a row only .* \(num_samples\)"
        ) as found:
            score(x)
        assert [warning.filename for warning in found] == [__file__]  # it points to the user's line


def test_what_is_wrong_is_said(fitted: DARNDensity, bits: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"X must be 0 or 1 everywhere, got 0.5 in row 0, column 0; give threshold"):
        clone(TINY).fit(bits + 0.5)
    with pytest.raises(NotFittedError):
        clone(TINY).sample()
    for wrong in (0, 2.5):
        with pytest.raises(ValueError, match="n_samples must be at least 1"):
            fitted.sample(wrong)  # type: ignore[arg-type]
    for categories in ((0, 1), 5, "ab", [(0.5, 1)]):
        with pytest.raises(ValueError, match="categories must be the columns of each, as"):
            DARNDensity(architecture="chain", categories=categories).fit(bits)  # type: ignore[arg-type]
    for threshold in ("0.5", np.nan):
        with pytest.raises(ValueError, match="threshold must be a number"):
            DARNDensity(architecture="chain", threshold=threshold).fit(bits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"validation_fraction must be in \(0, 1\), got 1"):
        darn.SearchConfig(validation_fraction=1)


@pytest.mark.slow
@pytest.mark.ci
def test_scikit_learn_checks_it(global_generator: None) -> None:
    """All of its checks, of bits that are numbers above a threshold."""
    estimator = DARNDensity(2, 3, learning_rate=1e-3, weight_decay=0.0, max_steps=25, threshold=0.0, model=DOUBLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, expected_failed_checks=UNEQUAL)


def test_chains_and_a_darn_are_tried_and_the_best_is_taken(bits: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = SimpleNamespace(valid_nats=0.0)
    chosen: Any = SimpleNamespace(model=DARNConfig(N_X, (2,), (2,)), training=TrainingConfig(), trials=[trial])
    monkeypatch.setattr("darn.train.density.choose", lambda *rows, **how: chosen)
    density = DARNDensity(max_steps=25).fit(bits)
    choice = density.density_choice_
    assert choice is not None
    assert density.choice_ is chosen
    assert density.n_steps_ == 25
    names = [trial.name for trial in choice.trials]
    assert {name.split(",")[0] for name in names} >= {"tree of Chow and Liu", "L1 chain", "DARN"}
    values = [trial.valid_nats for trial in choice.trials]
    assert values == sorted(values)
    assert density.valid_nats_ == values[0]
    assert np.exp(density.score_samples(every_row(N_X))).sum() == pytest.approx(1.0, abs=1e-5)
    again = DARNDensity(max_steps=25).fit(bits)
    np.testing.assert_array_equal(again.score_samples(bits), density.score_samples(bits))
    chain = DARNDensity(architecture="chain").fit(bits)
    assert chain.density_choice_ is not None
    assert {trial.name for trial in chain.density_choice_.trials} < set(names)
    assert density.valid_nats_ <= chain.valid_nats_
    alone = DARNDensity(architecture="darn", max_steps=25).fit(bits)
    assert alone.density_choice_ is None
    assert isinstance(alone.model_, darn.DARN)
    # DARNs that are far behind after their search are not trained.
    trial.valid_nats = 1.1 * chain.valid_nats_
    without = DARNDensity(max_steps=25).fit(bits)
    assert without.density_choice_ is not None
    assert not any("DARN" in trial.name for trial in without.density_choice_.trials)
    assert without.n_steps_ == 0


def test_of_few_rows_no_darn_is_tried_beside_others(bits: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("darn.train.density.choose")
    density = DARNDensity().fit(bits[:12])
    assert density.choice_ is None
    assert density.density_choice_ is not None
    assert density.n_steps_ == 0


def test_a_mean_of_a_chain_and_a_darn_does_all_that_they_do(bits: np.ndarray, fitted: DARNDensity) -> None:
    density = DARNDensity(architecture="chain").fit(bits)
    darn_model = fitted.model_
    assert isinstance(darn_model, darn.DARN)
    chain = fit_chain(bits, 1.0)
    density.model_ = darn.Mixture((chain, darn_model), np.log([0.5, 0.5]))
    rows = every_row(N_X)
    log_p = density.score_samples(rows)
    np.testing.assert_allclose(np.exp(log_p), (np.exp(chain.log_prob(rows)) + np.exp(fitted.score_samples(rows))) / 2)
    assert density.sample(9).shape == (9, N_X)
    np.testing.assert_array_equal(density.transform(rows), fitted.transform(rows))
    mask = np.arange(N_X) < 2 + 0 * rows
    found = density.complete(rows, mask)
    p = np.exp(log_p).reshape(4, 8)  # the first two bits, and the others
    np.testing.assert_allclose(found[:8, 0], p[2:].sum(axis=0) / p.sum(axis=0), rtol=1e-5)
    by_column = density.score_samples(rows, by_column=True)
    np.testing.assert_allclose(by_column.sum(axis=1), log_p, atol=1e-6)


def test_categories_are_variables_of_a_chain(rng: np.random.Generator) -> None:
    """No sample of 100,000 is an impossible row, and the value that is to blame for an odd row is known."""
    first = rng.integers(0, 3, 500)
    second = np.where(rng.uniform(size=500) < 0.95, first, rng.integers(0, 3, 500))
    x = np.concatenate([np.eye(3)[first], np.eye(3)[second], rng.integers(0, 2, (500, 2))], axis=1)
    density = DARNDensity(architecture="chain", categories=[(0, 1, 2), (3, 4, 5)]).fit(x)
    drawn = density.sample(100_000)
    np.testing.assert_array_equal(drawn[:, :3].sum(axis=1), 1)
    np.testing.assert_array_equal(drawn[:, 3:6].sum(axis=1), 1)
    assert density.score_samples(np.ones([1, 8]))[0] == -np.inf
    found = density.complete(x, np.arange(8) < 3 + 0 * x.astype(int))
    np.testing.assert_allclose(found[:, :3].sum(axis=1), 1.0, atol=1e-12)
    assert density.transform(x).shape == (500, 0)
    density.model_ = fit_chain(x.astype(int), 10.0, categories=as_categories([(0, 1, 2), (3, 4, 5)], x))
    odd = np.array([[1, 0, 0, 0, 0, 1, 0, 0]])
    by_column = density.score_samples(odd, by_column=True)
    np.testing.assert_allclose(by_column.sum(axis=1), density.score_samples(odd))
    assert by_column[0].argmin() in (3, 4, 5)


@pytest.fixture(scope="module")
def shop() -> pd.DataFrame:
    """Levels, truth values, whole numbers and amounts; the price says much of the size."""
    rng = np.random.default_rng(5)
    size = rng.choice(["S", "M", "L"], 500)
    price = np.round(pd.Series(size).map({"S": 3.0, "M": 20.0, "L": 90.0}).to_numpy() * rng.uniform(0.8, 1.2, 500), 2)
    return pd.DataFrame({"size": size, "price": price, "kids": rng.integers(0, 4, 500), "new": rng.random(500) < 0.3})


def test_a_frame_is_taken_as_it_is(shop: pd.DataFrame) -> None:
    """Levels are one variable, numbers ordered bins; rows come back as the frame has them."""
    density = DARNDensity(architecture="chain").fit(shop)
    drawn = density.sample(2000)
    assert list(drawn.columns) == list(shop.columns)
    assert {*drawn["size"]} == {"S", "M", "L"}
    assert {*drawn["kids"]} <= {0, 1, 2, 3}
    assert {*drawn["price"]} <= {*shop["price"]}
    assert drawn["new"].dtype == bool
    assert (drawn["price"] < 30).to_numpy()[drawn["size"] == "S"].mean() > 0.95
    by_column = density.score_samples(shop, by_column=True)
    assert by_column.shape == shop.shape
    np.testing.assert_allclose(by_column.sum(axis=1), density.score_samples(shop))
    odd = shop.iloc[:100].copy()
    odd["new"] = True
    odd["size"] = odd["size"].map({"S": "L", "M": "L", "L": "S"})
    assert np.isin(density.blame(odd).argmax(axis=1), (0, 1)).mean() >= 0.9
    # Columns in another order, a price that no row had, and gaps.
    assert density.score_samples(odd[["new", "kids", "price", "size"]]) == pytest.approx(density.score_samples(odd))
    # Numbers beyond those of the training rows are odd, the more the further they are.
    beyond = pd.concat([shop[shop["size"] == "L"].iloc[:1]] * 3)
    beyond["price"] = [shop["price"].max(), 2e2, 1e6]
    at_most, above, far_above = density.score_samples(beyond)
    assert at_most - 3.0 > above > far_above > -np.inf
    assert density.blame(beyond)[1:].argmax(axis=1).tolist() == [1, 1]
    np.testing.assert_allclose(density.score_samples(beyond, by_column=True).sum(axis=1), [at_most, above, far_above])
    odd.loc[:2, "price"] = [-1.0, 1e6, np.nan]
    assert np.isfinite(density.score_samples(odd)).all()
    odd["size"] = None
    found = density.complete(odd)
    levels = [name for name in found.columns if name.startswith("size=")]
    np.testing.assert_allclose(found[levels].sum(axis=1), 1.0)
    mask = np.zeros(shop.shape, bool)
    mask[:, 0] = True
    filled = density.complete(shop, mask)[levels].to_numpy()
    assert (filled[np.arange(500), [levels.index(f"size={size}") for size in shop["size"]]] > 0.5).mean() > 0.95


def test_dates_and_times_come_back_as_such() -> None:
    """A date is one variable, whatever its weekday and day of the year."""
    rng = np.random.default_rng(6)
    moments = pd.Timestamp("2024-03-05") + pd.to_timedelta(rng.integers(0, 1000 * 86400, 60), unit="s")
    frame = pd.DataFrame({"sold": moments, "text": moments.strftime("%d.%m.%Y"), "zone": moments.tz_localize("UTC")})
    frame["one_day"] = pd.Timestamp("2024-03-05") + (moments - moments.normalize())
    frame["at"] = moments.strftime("%H:%M")
    density = DARNDensity(architecture="chain", bins=3).fit(frame)
    drawn = density.sample(100)
    assert drawn["sold"].isin(frame["sold"]).all()
    assert drawn["zone"].isin(frame["zone"]).all()
    assert drawn["one_day"].isin(frame["one_day"]).all()
    assert drawn["text"].dt.strftime("%d.%m.%Y").isin(frame["text"]).all()
    assert drawn["at"].isin(pd.to_timedelta(frame["at"] + ":00")).all()
    assert np.isfinite(density.score_samples(drawn)).all()
    assert density.score_samples(frame, by_column=True).shape == frame.shape


def test_numbers_of_an_array_need_bins(shop: pd.DataFrame) -> None:
    numbers = shop[["price", "kids"]].to_numpy()
    density = DARNDensity(architecture="chain", bins=5).fit(numbers)
    assert density.variables_ is not None
    assert [len(group) for group in density.variables_.groups] == [5, 4]
    assert density.variables_.names[5:] == ("x1=0", "x1=1", "x1=2", "x1=3")
    assert density.score_samples(numbers).shape == (500,)
    framed = DARNDensity(architecture="chain", bins=5).fit(shop[["price", "kids"]])
    np.testing.assert_array_equal(framed.score_samples(shop[["price", "kids"]]), density.score_samples(numbers))
    # Whole numbers that int64 does not hold come back as they are.
    huge = DARNDensity(architecture="chain", bins=2).fit([[1e300], [-2e300]] * 9).sample(9)
    assert set(huge.to_numpy().ravel()) == {1e300, -2e300}


def test_categories_of_a_darn(shop: pd.DataFrame) -> None:
    """One variable there, too: no draw is an impossible row, and its file says so."""
    density = clone(TINY).fit(shop[["size", "new"]])
    model = density.model_
    assert isinstance(model, DARN)
    assert model.config.categories == (((0, 1, 2), True),)
    rows = model.sample(100_000, seed=1).x.numpy()
    np.testing.assert_array_equal(rows[:, :3].sum(axis=1), 1)
    every = np.array([[*level, new] for level in np.eye(3) for new in (0, 1)])
    log_p = model.log_prob(every).numpy()
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-5)
    assert density.score_samples(shop[["size", "new"]].assign(size="XL"))[0] == -np.inf
    assert DARNConfig.from_json(model.config.to_json()) == model.config
    np.testing.assert_array_equal(darn.decode(model, darn.encode(model, every)), every)


def gapped(bits: np.ndarray, share: float) -> np.ndarray:
    return np.where(np.random.default_rng(3).uniform(size=bits.shape) < share, np.nan, bits)


@pytest.mark.parametrize("architecture", ["chain", "made"])
def test_rows_with_gaps_are_learnt_from_and_scored_by_their_known_values(bits: np.ndarray, architecture: str) -> None:
    density = DARNDensity(architecture=architecture)
    holes = gapped(bits, 0.3)
    density.fit(holes)
    whole = clone(density).fit(bits)
    means = bits.mean(axis=0)
    independent = np.where(bits, np.log(means), np.log(1 - means)).sum(axis=1).mean()
    # Nearer to a fit without gaps than to columns that do not depend on one another.
    assert density.score(bits) > (whole.score(bits) + independent) / 2
    # log p of the known values is that of all rows that have them, summed.
    rows = every_row(N_X)
    p = np.exp(density.score_samples(rows))
    for row, found in zip(holes[:20], density.score_samples(holes[:20]), strict=True):
        fitting = ((rows == row) | np.isnan(row)).all(axis=1)
        assert found == pytest.approx(np.log(p[fitting].sum()), abs=1e-9)
    frame = pd.DataFrame(holes).astype("Int64")
    np.testing.assert_allclose(
        density.score_samples(frame.to_numpy(float, na_value=np.nan)), density.score_samples(holes)
    )
    np.testing.assert_allclose(density.score_samples(np.ma.masked_invalid(holes)), density.score_samples(holes))
    with pytest.raises(ValueError, match="by_column is for rows without missing values"):
        density.score_samples(holes, by_column=True)
    masked = clone(density).fit(np.ma.masked_invalid(holes))
    np.testing.assert_array_equal(masked.score_samples(rows), density.score_samples(rows))


def test_gaps_of_categories_are_filled_by_levels(rng: np.random.Generator) -> None:
    x = np.eye(3)[rng.integers(0, 3, 200)].repeat(2, axis=1)[:, [0, 2, 4, 1, 3, 5]]
    x[rng.uniform(size=200) < 0.3, 3:] = np.nan
    density = DARNDensity(architecture="chain", categories=[(0, 1, 2), (3, 4, 5)]).fit(x)
    drawn = density.sample(1000)
    np.testing.assert_array_equal(drawn.reshape(1000, 2, 3).sum(axis=2), 1)
    assert (drawn[:, :3] == drawn[:, 3:]).all(axis=1).mean() > 0.95


def test_a_row_of_weight_two_counts_as_two(bits: np.ndarray) -> None:
    """Rows of the first pattern alone count; other weights than one a row are refused."""
    weights = np.where((bits == bits[0]).sum(axis=1) >= N_X - 1, 50.0, 0.02)
    for density in (DARNDensity(architecture="chain"), DARNDensity(architecture="made"), clone(TINY)):
        weighted = clone(density).fit(bits, sample_weight=weights)
        assert weighted.score_samples(bits[:1])[0] > density.fit(bits).score_samples(bits[:1])[0] + 0.2
    with pytest.raises(ValueError, match="sample_weight"):
        clone(TINY).fit(bits, sample_weight=weights[1:])
    with pytest.raises(ValueError, match=r"at least one non-zero number|must be positive of two rows or more, got 0"):
        clone(TINY).fit(bits, sample_weight=np.zeros(len(bits)))
    with pytest.raises(ValueError, match="must be positive of two rows or more, got 1 such"):
        clone(TINY).fit(bits, sample_weight=np.eye(len(bits))[3])
    with pytest.raises(ValueError, match=r"sample_weight must not be negative, got -1 of row 3\."):
        clone(TINY).fit(bits, sample_weight=np.where(np.arange(len(bits)) == 3, -1.0, 1.0))


def test_a_row_of_weight_zero_is_as_if_it_were_not_there(bits: np.ndarray) -> None:
    """Where a few rows alone count, too, whichever rows the seed draws for validation."""
    for is_counted in (np.arange(len(bits)) % 3 > 0, np.arange(len(bits)) < 2):
        weighted = DARNDensity(architecture="chain").fit(bits, sample_weight=is_counted)
        fewer = DARNDensity(architecture="chain").fit(bits[is_counted], sample_weight=np.ones(is_counted.sum()))
        np.testing.assert_array_equal(weighted.score_samples(bits), fewer.score_samples(bits))


def test_kinds_that_do_not_fit_are_refused(bits: np.ndarray) -> None:
    for settings, message in (
        ({"architecture": "tree"}, "architecture must be 'auto', 'chain', 'made' or 'darn', got 'tree'"),
        ({"architecture": "chain", "hidden": 3}, "hidden is for a DARN, got architecture='chain'"),
        ({"architecture": "darn", "categories": [(0, 1)]}, r"the columns \(0, 1\) must be one category"),
        ({"bins": 1}, "bins must be a whole number, at least 2, got 1"),
        ({"model": {"hidden": 3}}, "DARNConfig but visible, categories, hidden and units, got 'hidden'"),
        ({"model": "made"}, "model must be a dictionary of fields of DARNConfig, or None, got 'made'"),
        ({"search": {"candidates": 2}}, "search must be a SearchConfig, or None, got {'candidates': 2}"),
        ({"categories": [(0, 1)]}, r"the columns \(0, 1\) must be one category"),
    ):
        with pytest.raises(ValueError, match=message):
            DARNDensity(**settings).fit(bits)


@pytest.mark.slow
@pytest.mark.ci
def test_a_chain_is_a_citizen_too(global_generator: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(DARNDensity(architecture="chain", threshold=0.0, model=DOUBLE), expected_failed_checks=UNEQUAL)


def test_it_follows_an_encoder_of_categories_without_a_detour(rng: np.random.Generator) -> None:
    """OneHotEncoder gives sparse matrices; they are the same rows as dense ones."""
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue", "green"], 60), "size": rng.choice(["S", "L"], 60)})
    pipeline = make_pipeline(OneHotEncoder(), clone(TINY)).fit(frame)
    bits = OneHotEncoder(sparse_output=False).fit_transform(frame)
    dense = clone(TINY).fit(bits)
    np.testing.assert_array_equal(pipeline.score_samples(frame), dense.score_samples(bits))
    sparse = csr_matrix(bits)
    np.testing.assert_array_equal(dense.transform(sparse), dense.transform(bits))
    sparse.data[3] = 2.0
    with pytest.raises(ValueError, match=r"X must be 0 or 1 everywhere, got 2\.0"):
        dense.score_samples(sparse)
    with pytest.raises(ValueError, match="threshold must not be negative for a sparse X, got -1"):
        clone(TINY).set_params(threshold=-1).fit(sparse)


def test_masked_cells_are_missing_or_refused(fitted: DARNDensity, bits: np.ndarray) -> None:
    x = np.ma.array(bits[:6], mask=np.zeros([6, N_X], bool))
    np.testing.assert_array_equal(fitted.score_samples(x), fitted.score_samples(bits[:6]))
    x[1, 2] = np.ma.masked
    x[4] = np.ma.masked
    np.testing.assert_array_equal(fitted.complete(x), fitted.complete(bits[:6], x.mask))
    whole = np.where(x.mask, fitted.complete(x) > 0.5, x.data)
    np.testing.assert_array_equal(fitted.transform(x), fitted.transform(whole))
    np.testing.assert_allclose(fitted.score_samples(x)[4], 0.0, atol=1e-5)
    for call in (lambda: darn.encode(darn_of(fitted), x), lambda: darn_of(fitted).log_prob(x)):
        with pytest.raises(ValueError, match=f"must have no masked cells, got {1 + N_X}"):
            call()
    with pytest.raises(ValueError, match=r"images must be a dense array, got a sparse .*; give images.toarray\(\)"):
        darn.encode(darn_of(fitted), csr_matrix(bits))


def test_the_columns_of_the_code_have_names(fitted: DARNDensity, bits: np.ndarray) -> None:
    assert list(fitted.get_feature_names_out()) == ["darndensity0", "darndensity1", "darndensity2"]
    framed = clone(TINY).fit(bits).set_output(transform="pandas").transform(bits)
    assert list(framed.columns) == ["darndensity0", "darndensity1", "darndensity2"]


def test_what_is_tried_and_chosen_is_said_where_it_is_asked_for(
    bits: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the search of DARNs, before it begins."""
    DARNDensity(architecture="chain").fit(bits)
    assert capsys.readouterr().out == ""
    density = DARNDensity(architecture="chain", verbose=1).fit(bits)
    said = capsys.readouterr().out
    assert said.startswith("trying trees, mixtures and chains on 180 rows\n")
    assert density.density_choice_ is not None
    assert said.endswith(f"{density.density_choice_.table()}\n")
    quick: dict[str, Any] = {
        "search": darn.SearchConfig(candidates=2, search_total_steps=100),
        "max_steps": 50,
        "units": 4,
        "learning_rate": 0.01,
    }
    DARNDensity(architecture="darn", weight_decay=0.0, verbose=2, **quick).fit(bits)
    first, *rounds = capsys.readouterr().out.splitlines()
    assert first == "trying DARNs, which may take minutes; architecture='chain' takes seconds"
    assert rounds
