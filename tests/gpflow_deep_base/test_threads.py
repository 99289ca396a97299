"""`gpflow_deep_base.threads`: fits of small matrices take one thread of BLAS and give the others back."""

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpflow_deep_base.threads import one_blas_thread
from rbm_tracking import TrackedRBM


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_one_thread_within_and_the_others_after_it() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_an_rbm_is_trained_by_one(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    train = TrackedRBM._train

    def watched(self: TrackedRBM, *args: Any) -> Any:
        seen.append(threads())
        return train(self, *args)

    monkeypatch.setattr(TrackedRBM, "_train", watched)
    with threadpool_limits(2, user_api="blas"):
        TrackedRBM(n_components=2, max_updates=3, random_state=0).fit(rng.integers(0, 2, [20, 4]).astype(float))
    assert set.union(*seen) == {1}
