"""Architecture and learning rate by validation rows: what is tried, what is kept, and that it is the best of these."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darn import Choice, SearchConfig, choose
from darn.model.model import DARN, DARNConfig
from darn.train.optimization import TrainingConfig
from darn.train.rivals import (
    HIDDEN,
    RATES,
    Candidate,
    draw_candidates,
    extended,
    is_beyond,
    neighbours,
    value_spaces,
)
from darn.train.selection import few_steps, stored_choice
from darn.train.training import Course, Trainer, evaluation_interval, minibatch_rows, some_rows

N_X = 8
SMALL = SearchConfig(candidates=3, search_steps=100, search_patience=2, neighbours=False, falling=False)
FIXED: dict[str, Any] = {"hidden": (3,), "units": (4,)}


@pytest.fixture
def rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two patterns with noise, to train on and to validate."""
    patterns = rng.integers(0, 2, (2, N_X))[rng.integers(0, 2, 260)] ^ (rng.uniform(size=(260, N_X)) < 0.1)
    return patterns[:200].astype(np.uint8), patterns[200:].astype(np.uint8)


def test_candidates_are_different_and_values_equally_frequent() -> None:
    drawn = draw_candidates(14, 0)
    assert len(set(drawn)) == 14
    assert drawn == draw_candidates(14, 0) != draw_candidates(14, 1)
    counts = [sum(candidate.hidden == value for candidate in drawn) for value in HIDDEN]
    assert counts == [2] * len(HIDDEN)
    spaces = value_spaces({"hidden": (5, 2), "units": None}, {"learning_rate": 0.1, "weight_decay": 0.0})
    few = draw_candidates(50, 0, spaces)
    assert len(few) == 5  # as many as there are
    assert {candidate.hidden for candidate in few} == {(5, 2)}
    assert {candidate.learning_rate for candidate in few} == {0.1}


def test_neighbours_differ_in_one_value() -> None:
    of = Candidate(8, 200, RATES[1], 0.0)
    found = neighbours(of, value_spaces())
    assert {(c.hidden, c.units, c.learning_rate, c.weight_decay) for c in found} == {
        (12, 200, RATES[1], 0.0),
        (8, 100, RATES[1], 0.0),
        (8, 300, RATES[1], 0.0),
        (8, 200, RATES[0], 0.0),
        (8, 200, RATES[2], 0.0),
        (8, 200, RATES[1], 0.1),
        (5, 200, RATES[1], 0.0),
    }


def test_the_interval_is_about_an_epoch() -> None:
    assert [evaluation_interval(n, 100) for n in (1, 2_500, 2_501, 5_000, 50_000, 10**7)] == [25, 25, 50, 50, 500, 1000]


def test_minibatches_are_epochs_and_functions_of_the_step() -> None:
    rows = minibatch_rows(10, 3, 7, 0, 6)
    assert rows.shape == (6, 3)
    for epoch in (rows[:3], rows[3:]):
        assert len(set(epoch.ravel())) == 9
    np.testing.assert_array_equal(minibatch_rows(10, 3, 7, 2, 3), rows[2:5])
    assert not np.array_equal(minibatch_rows(10, 3, 8, 0, 6), rows)
    assert sorted(minibatch_rows(4, 100, 0, 5, 1)[0]) == [0, 1, 2, 3]


def test_a_course_keeps_the_best_and_stops(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    trainer = Trainer(DARN(DARNConfig(N_X, **FIXED), data=x), TrainingConfig(learning_rate=0.1), num_data=len(x))
    course = Course(trainer, x, valid, seed=0)
    course.advance(3000, patience=2)
    assert course.step < 3000
    assert course.step == course.best_step + 50
    assert course.best_value == min(value for _, value in course.values) == dict(course.values)[course.best_step]
    for wrong in ({"batch_size": 0}, {"interval": 0}):
        with pytest.raises(ValueError, match="batch_size and interval must be at least 1"):
            Course(trainer, x, valid, seed=0, **wrong)
    again = Course(Trainer(course.best(), TrainingConfig(), num_data=len(x)), x, valid, seed=0)
    again._evaluate()
    assert again.best_value == pytest.approx(course.best_value)


def test_the_best_candidate_is_chosen(rows: tuple[np.ndarray, np.ndarray]) -> None:
    """One of the learning rates is far too small to get anywhere in so many steps."""
    x, valid = rows
    lines: list[str] = []
    choice = choose(x, valid, search=SMALL, model=FIXED, training={"weight_decay": 0.0}, report=lines.append)
    values = [trial.valid_nats for trial in choice.trials]
    assert values == sorted(values)
    assert choice.trials[0].candidate.learning_rate == max(trial.candidate.learning_rate for trial in choice.trials)
    assert (choice.model.hidden, choice.model.units, choice.model.visible_conditional) == ((3,), (4,), "linear")
    assert choice.training.optimizer == "rmsprop"
    assert choice.training.learning_rate == choice.trials[0].candidate.learning_rate
    assert choice.alone.candidate.hidden == 0
    assert choice.alone.kl_nats == 0.0
    assert all(trial.is_done for trial in choice.trials[:1])
    assert len(lines) == 1
    assert lines[0].startswith("round 1: 3 candidates")
    assert Choice.from_json(json.loads(json.dumps(choice.to_json()))) == choice
    assert len(choice.to_json()["rejected"]) == 2
    assert f"{values[0]:.3f} nats" in choice.notes()[0]
    with pytest.raises(ValueError, match="no choice of a model"):
        Choice.from_json({})


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({"prior": "made", "conditional_units": 5}, {}),
        ({"encoder": "nade", "conditional_units": 5}, {}),
        ({"prior": "eonade", "conditional_units": 5, "orders": 2}, {}),
        ({"activation": "relu", "encoder": "linear"}, {"entropy": "exact"}),
        ({}, {"estimator": "disarm"}),
        ({}, {"estimator": "simpson"}),
        ({}, {"estimator": "rloo", "num_samples": 3, "sparsity": 0.1}),
    ],
)
def test_the_rival_without_stochastic_units_has_only_what_it_uses(
    rows: tuple[np.ndarray, np.ndarray], model: dict[str, Any], training: dict[str, Any]
) -> None:
    x, valid = rows
    search = SearchConfig(candidates=1, search_steps=25, search_patience=1, neighbours=False, falling=False)
    how = {"learning_rate": 0.01, "weight_decay": 0.0, **training}
    choice = choose(x, valid, search=search, model={**FIXED, **model}, training=how)
    assert choice.alone.steps == 25
    assert math.isfinite(choice.alone.valid_nats)
    for name, value in model.items():
        assert getattr(choice.model, name) == value


def test_what_the_rival_cannot_be_is_said_before_the_search(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    lines: list[str] = []
    with pytest.raises(ValueError, match="conditional_units=5 is for the conditionals"):
        choose(x, valid, model={"conditional_units": 5}, report=lines.append)
    with pytest.raises(ValueError, match="needs one stochastic layer"):
        choose(x, valid, model={"hidden": [4, 3]}, training={"estimator": "disarm"}, report=lines.append)
    with pytest.raises(ValueError, match="hidden must be whole numbers"):
        choose(x, valid, model={"hidden": 2.5}, report=lines.append)
    assert lines == []


def test_layers_may_be_given_as_a_list(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    how: dict[str, Any] = {"search": SMALL, "training": {"learning_rate": 0.01, "weight_decay": 0.0}}
    choice = choose(x, valid, model={"hidden": [4, 3], "units": np.array([2])}, **how)
    assert (choice.model.hidden, choice.model.units) == ((4, 3), (2,))
    assert Choice.from_json(json.loads(json.dumps(choice.to_json()))) == choice


def test_the_rate_of_the_best_falls_as_long_as_that_helps(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    search = SearchConfig(candidates=2, search_steps=200, search_patience=2, neighbours=False)
    lines: list[str] = []
    how: dict[str, Any] = {"search": search, "model": FIXED, "report": lines.append}
    choice = choose(x, valid, training={"learning_rate": 0.02, "weight_decay": None}, **how)
    falling = [trial for trial in choice.trials if trial.candidate.cosine]
    before = min((t for t in choice.trials if not t.candidate.cosine), key=lambda t: t.valid_nats)
    first = 2 * before.best_step
    decays = value_spaces()["weight_decay"]
    near = decays[decays.index(before.candidate.weight_decay) :][:2]
    assert {t.candidate.weight_decay for t in falling if t.candidate.cosine == first} == set(near)
    assert {t.candidate.cosine for t in falling} <= {first, 2 * first, 4 * first, 400}
    assert all(t.steps == t.candidate.cosine for t in falling)  # none is stopped before its rate is 0
    assert choice.training.cosine == choice.trials[0].candidate.cosine
    assert choice.trials[0].valid_nats == min(t.valid_nats for t in choice.trials)
    assert sum("falling to 0" in line for line in lines) == len({t.candidate.cosine for t in falling})
    assert Choice.from_json(json.loads(json.dumps(choice.to_json()))) == choice
    if choice.training.cosine is not None:
        assert choice.alone.steps == choice.training.cosine
        assert f"falling to 0 at step {choice.training.cosine}" in choice.notes()[0]
    given = choose(x, valid, training={"learning_rate": 0.02, "half_life": 50.0}, **how)
    assert not any(trial.candidate.cosine for trial in given.trials)


@pytest.mark.slow
@pytest.mark.ci
def test_many_models_are_no_reason_for_a_warning(
    rows: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    x, valid = rows
    search = SearchConfig(candidates=5, search_steps=25, search_patience=1, neighbours=False, falling=False)
    choose(x, valid, search=search, model={"units": (2,)}, training={"learning_rate": 0.01})
    assert "retracing" not in caplog.text


def test_divergence_is_the_worst_and_not_the_end(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    with pytest.raises(FloatingPointError, match="diverged for all"):
        choose(x, valid, search=SMALL, model=FIXED, training={"weight_decay": 0.0, "learning_rate": 1e38})


def test_bad_input_is_refused(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    with pytest.raises(ValueError, match="x must be 0 or 1"):
        choose(x + 0.5, valid)
    with pytest.raises(ValueError, match=f"valid must have {N_X} columns"):
        choose(x, valid[:, 1:])
    with pytest.raises(ValueError, match="candidates must be at least 1"):
        SearchConfig(candidates=0)
    with pytest.raises(ValueError, match="search_steps must be a number, got '9'"):
        SearchConfig(search_steps="9")  # type: ignore[arg-type]
    assert math.isfinite(SearchConfig().first_steps(10**6, 100))


def test_a_search_without_steps_takes_the_first(rows: tuple[np.ndarray, np.ndarray]) -> None:
    x, valid = rows
    lines: list[str] = []
    choice = choose(x, valid, search=SearchConfig(search_total_steps=1), model=FIXED, report=lines.append)
    assert choice.is_cut
    assert [trial.steps for trial in choice.trials] == [25]
    assert choice.alone.steps == 25
    assert not any(trial.is_done for trial in (*choice.trials, choice.alone))
    assert "25 steps are spent (search_total_steps)" in lines[-1]
    assert any("--search_total_steps" in line for line in choice.notes())
    assert choice.to_json()["ended_by_search_total_steps"]
    assert Choice.from_json(json.loads(json.dumps(choice.to_json()))) == choice
    with pytest.raises(ValueError, match="search_total_steps must not be negative, got -1; 0 is no limit"):
        SearchConfig(search_total_steps=-1)


def test_values_beyond_the_ends_of_a_space() -> None:
    assert extended((0.0, 1.0, 3.0), 3.0) == [0.0, 1.0, 3.0, 9.0]
    assert extended((0.0, 1.0, 3.0), 9.0) == [0.0, 1.0, 3.0, 9.0, 27.0]
    assert extended((8, 12), 12) == [5, 8, 12, 18]
    assert extended((1, 2), 2) == [1, 2, 4]
    assert extended((0.1,), 0.1) == [0.1]
    spaces = value_spaces({"hidden": (3,)}, {"learning_rate": 0.1})
    edge = Candidate((3,), 500, 0.1, 3.0)
    assert not is_beyond(edge, spaces)
    near = neighbours(edge, spaces)
    assert {(c.units, c.weight_decay) for c in near} == {(400, 3.0), (625, 3.0), (500, 1.0), (500, 9.0)}
    assert [is_beyond(c, spaces) for c in near] == [c.units == 625 or c.weight_decay == 9.0 for c in near]


def test_a_best_value_at_the_end_of_its_space_is_no_end(
    rows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rates among which to choose are far too small: larger ones are tried as long as they are better."""
    x, valid = rows
    monkeypatch.setattr("darn.train.rivals.RATES", (1e-5, 2e-5))
    search = SearchConfig(candidates=2, search_steps=25, search_patience=1, falling=False)
    choice = choose(x, valid, search=search, model=FIXED, training={"weight_decay": 0.0})
    rates = sorted(trial.candidate.learning_rate for trial in choice.trials)
    best = choice.training.learning_rate
    assert best > 8e-5 * (1 - 1e-9)
    assert max(rates) > best * 1.5 or not math.isfinite(choice.trials[-1].valid_nats)  # and one more, which was worse


def test_validation_rows_are_drawn_and_not_the_first(rng: np.random.Generator) -> None:
    rows = rng.permutation(50)[:, None]
    drawn = some_rows(rows, 20, 3)
    assert len(np.unique(drawn)) == 20
    np.testing.assert_array_equal(drawn, some_rows(rows, 20, 3))
    assert not np.array_equal(drawn, some_rows(rows, 20, 4))
    assert not np.array_equal(drawn, rows[:20])
    assert some_rows(rows, 50, 3) is rows


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("limit", [250, 650, 0])
def test_a_search_whose_steps_are_spent_keeps_the_best_and_can_be_interrupted(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The first round takes 12 blocks of 25 steps, the second one 24 at most."""
    x, valid = rows
    search = SearchConfig(candidates=3, search_steps=300, search_patience=12, falling=False, search_total_steps=limit)
    how: dict[str, Any] = {"search": search, "model": FIXED, "training": {"learning_rate": 0.02}}
    monkeypatch.setattr(SearchConfig, "first_steps", lambda self, *_: 100)
    made, advance = [0], Trainer.advance

    def counted(self: Trainer, *arguments: Any) -> Any:
        made[0] += 1
        return advance(self, *arguments)

    monkeypatch.setattr(Trainer, "advance", counted)
    whole = choose(x, valid, **how)
    assert whole.is_cut == (limit > 0)
    assert whole.trials[0].valid_nats == min(trial.valid_nats for trial in whole.trials)
    if limit:
        assert 25 * made[0] == limit
        assert sum(trial.steps for trial in whole.trials) == 25 * math.ceil(0.8 * limit / 25)
    count, looked = made[0], [0]

    def look() -> None:
        looked[0] += 1
        if looked[0] % 11 == 0:
            raise Interrupted

    for _ in range(count):
        try:
            assert choose(x, valid, folder=tmp_path / "search", look=look, **how) == whole
            break
        except Interrupted:
            continue
    assert looked[0] == made[0] - count == count  # nothing was done twice
    assert choose(x, valid, folder=tmp_path / "search", **how) == whole


class Interrupted(Exception):
    """As Ctrl-C would be."""


@pytest.mark.slow
@pytest.mark.ci
def test_an_interrupted_search_goes_on_and_chooses_the_same(
    rows: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted three times, in the first round, in the next one and after it: every step is made once."""
    x, valid = rows
    search = SearchConfig(candidates=4, search_steps=800, search_patience=3, neighbours=False, falling=False)
    how: dict[str, Any] = {"search": search, "model": FIXED, "training": {"learning_rate": 0.02}}
    monkeypatch.setattr(SearchConfig, "first_steps", lambda self, *_: 100)
    whole, made, stop_at = choose(x, valid, **how), [0], [0]
    advance = Trainer.advance

    def counted(self: Trainer, *arguments: Any) -> Any:
        if made[0] == stop_at[0]:
            stop_at[0] = -1
            raise Interrupted
        made[0] += 1
        return advance(self, *arguments)

    monkeypatch.setattr(Trainer, "advance", counted)
    for stop_at[0] in (10, 20, 25):  # calls, of 25 steps each: a candidate has 4 in the first round
        with pytest.raises(Interrupted):
            choose(x, valid, folder=tmp_path / "search", **how)
    lines: list[str] = []
    assert choose(x, valid, folder=tmp_path / "search", report=lines.append, **how) == whole
    assert lines[0].startswith("continuing the search")
    lost = made[0] - (sum(trial.steps for trial in (*whole.trials, whole.alone)) // 25)
    assert 0 < lost < 3 * 9  # of the candidates that were being trained
    before = made[0]
    assert choose(x, valid, folder=tmp_path / "search", **how) == whole
    assert made[0] == before
    with pytest.raises(ValueError, match="belongs to a search with other rows or settings"):
        choose(x[1:], valid, folder=tmp_path / "search", **how)
    path = tmp_path / "choice.json"
    assert stored_choice(path, lambda folder: choose(x, valid, folder=folder, **how)) == whole
    assert [file.name for file in tmp_path.iterdir() if file != tmp_path / "search"] == ["choice.json"]
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"choice\.json holds no choice of a model .* delete it to choose anew"):
            stored_choice(path, lambda folder: whole)


def test_a_search_beside_others_is_shorter_in_wide_tables() -> None:
    assert [few_steps(width) for width in (1, 250, 500, 784)] == [4000, 4000, 3000, 2000]
    assert SearchConfig().beside_others(500).search_total_steps == 3000
    assert SearchConfig(search_total_steps=7).beside_others(500).search_total_steps == 7
