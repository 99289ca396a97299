"""gpflow_deep.train.choosing.stored_choice: a folder that holds something else."""

from pathlib import Path

import pytest

from gpflow_deep import ModelConfig, TrainingConfig
from gpflow_deep.train.choosing.stored_choice import stored_choice


def refuse() -> None:
    raise AssertionError("there is a choice")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"choice": {"candidates": [], "chosen": {}}}', "does not say 'num_layers', as another version wrote it"),
        ("{}", "does not say 'choice'"),
        ("[1]", "holds no choice of a model"),
        ("{", "holds no choice of a model"),
        pytest.param("[" * 100_000, "holds no choice of a model", id="deep"),
    ],
)
def test_what_another_version_wrote_is_refused_in_words(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "choice.json").write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        stored_choice(tmp_path, refuse, ModelConfig(), TrainingConfig())  # type: ignore[arg-type]
    assert "KeyError" not in str(caught.value)
    assert "--run_dir" in str(caught.value)
