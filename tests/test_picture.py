"""The pictures of the README and of RESULTS.md can be drawn from what is stored."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "docs" / "picture.py"


def test_pictures_are_drawn_from_the_stored_results(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("picture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    picture.main(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "compression_bytes.png",
        "compression_tables.png",
        "coverage.png",
        "darn_bits.png",
        "deep_gp_layers.png",
        "depth.png",
        "ebp_errors.png",
        "ebp_flash.png",
        "emulator.png",
        "five_systems.png",
        "optimisation.png",
        "rbm_accuracy.png",
        "turned_images.png",
    }
