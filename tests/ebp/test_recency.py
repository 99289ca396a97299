import numpy as np

from ebp.estimators.streams.recency import Recency


def test_a_class_is_absent_when_chance_does_not_explain_it() -> None:
    """Half of the labels are 1: that 9 others follow has probability 2^-9 > 0.001, that 10 do 2^-10 < 0.001."""
    start, absent = Recency.start(3).after(np.resize([0, 1], 100))
    assert absent.tolist() == [False, False, False]  # class 2 never occurred: there is nothing to unlearn
    for size, expected in ((9, False), (10, True)):
        state, absent = start.after(np.zeros(size, int))
        assert absent.tolist() == [False, expected, False]
        assert state.gaps.tolist()[:2] == [0, size]
    after, absent = state.after(np.array([1, 0]))
    assert absent.tolist() == [False, False, False]
    assert after.gaps.tolist()[:2] == [0, 1]


def test_chunks_of_any_size_give_the_same_state(rng: np.random.Generator) -> None:
    labels = rng.integers(0, 4, 60)
    whole, _ = Recency.start(5).after(labels)
    parts = Recency.start(5)
    for start in range(0, 60, 7):
        parts, _ = parts.after(labels[start : start + 7])
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one[:4], other[:4])


def test_streams_of_mixed_labels_have_no_absent_classes(rng: np.random.Generator) -> None:
    """Row by row: with ten equally frequent classes a gap of 66 rows has probability 0.001."""
    state, count = Recency.start(10), 0
    for label in rng.integers(0, 10, 2000):
        state, absent = state.after(np.array([label]))
        count += int(absent.sum())
    assert count < 200  # 20 expected in 20,000, in runs of about 10
