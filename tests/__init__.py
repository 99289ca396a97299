"""Tests. `tests/<package>/test_<module>.py` tests `<package>/<module>.py`."""
