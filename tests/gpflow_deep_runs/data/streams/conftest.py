from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.gpflow_deep_runs.data.streams.tables import frame

ROWS = (900, 30, 415)


@pytest.fixture
def whole(rng: np.random.Generator, tmp_path: Path) -> pd.DataFrame:
    """Rows of three files in `tmp_path`, with row groups of 50 rows."""
    frames = [frame(rng, rows, sum(ROWS[:i])) for i, rows in enumerate(ROWS)]
    for i, part in enumerate(frames):
        part.to_parquet(tmp_path / f"part{i}.parquet", row_group_size=50)
    return pd.concat(frames, ignore_index=True)
