"""`gpflow_deep_base.runtime.threads`: fits of small matrices take one thread of BLAS and give the others back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpflow_deep import ModelConfig
from gpflow_deep.train.choosing import selection
from gpflow_deep.train.choosing.choice import FREE
from gpflow_deep_base.runtime.threads import one_blas_thread
from rbm_tracking import TrackedRBM


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_one_thread_within_and_the_others_after_it() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {2}


def fit_deep_gp(rng: np.random.Generator) -> None:
    X = rng.normal(size=(12, 3))
    selection.fit_chosen(ModelConfig(preset="modern"), FREE, X, np.sin(X[:, :2]) + 0.1 * rng.normal(size=(12, 2)))


def fit_rbm(rng: np.random.Generator) -> None:
    X = rng.integers(0, 2, [20, 4]).astype(float)
    TrackedRBM(n_components=2, l2=0.001, max_updates=3, random_state=0).fit(X)


@pytest.mark.parametrize(
    ("owner", "name", "fit"), [(selection, "search_exact", fit_deep_gp), (TrackedRBM, "_train", fit_rbm)]
)
def test_a_fit_takes_one_and_gives_the_others_back(
    owner: Any,
    name: str,
    fit: Callable[[np.random.Generator], None],
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[int]] = []
    original = getattr(owner, name)

    def watched(*args: Any, **options: Any) -> Any:
        seen.append(threads())
        return original(*args, **options)

    monkeypatch.setattr(owner, name, watched)
    with threadpool_limits(2, user_api="blas"):
        fit(rng)
        assert threads() == {2}
    assert seen == [{1}]
