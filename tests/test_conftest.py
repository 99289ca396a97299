"""The checks and options of conftest.py, tried on small test files of their own."""

from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf  # loaded here, because pytester unloads what its tests load and TensorFlow cannot load twice

from tests.tiers import load, measured

pytest_plugins = ["pytester"]

MARKERS = "[pytest]\nmarkers =\n    slow\n    gpu\n"


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini(MARKERS)
    return pytester


def test_a_draw_from_the_global_generator_fails_the_test(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import numpy as np
        def test_draws(): np.random.normal()
        def test_seeds(): np.random.seed(0)
        def test_does_not(rng): rng.normal()
    """)
    before = np.random.get_state()  # noqa: NPY002
    result = inner.runpytest()
    np.random.set_state(before)  # noqa: NPY002 (the inner tests run in this process)
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*the test moved NumPy's global generator; draw from the fixture rng instead*"])


def test_gpflow_config_is_put_back(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import gpflow, numpy as np
        def test_changes(): gpflow.config.set_default_float(np.float32)
        def test_sees_nothing(): assert gpflow.config.default_float() is np.float64
    """)
    inner.runpytest().assert_outcomes(passed=2)
    assert gpflow.config.default_jitter() == 1e-6


def test_a_second_trace_fails_the_test(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import pytest, tensorflow as tf
        @pytest.mark.parametrize("shapes", [[1, 1], [1, 2], []])
        def test_traces(traced_once, shapes):
            function = traced_once(tf.function(lambda x: x + 1))
            for shape in shapes:
                function(tf.zeros([shape]))
    """)
    result = inner.runpytest()
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(["*was traced 2 times, not once*", "*was traced 0 times, not once*"])


def test_slow_tests_run_on_request_and_gpu_tests_with_a_gpu(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import pytest
        @pytest.mark.slow
        def test_slow(): pass
        @pytest.mark.gpu
        def test_gpu(): pass
        def test_fast(): pass
    """)
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    inner.runpytest().assert_outcomes(passed=1 + has_gpu, skipped=2 - has_gpu)
    inner.runpytest("--runslow").assert_outcomes(passed=2 + has_gpu, skipped=1 - has_gpu)


def test_seeds_repeat_and_differ_between_tests_and_base_seeds(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import pytest
        @pytest.mark.parametrize("number", [1, 2])
        def test_draws(rng, seed, number): print(f"drew {rng.integers(2**62)} {seed.numpy().tolist()}")
    """)

    def draws(*arguments: str) -> list[str]:
        result = inner.runpytest("-s", *arguments)
        result.assert_outcomes(passed=2)
        return [line[line.index("drew") :] for line in result.outlines if "drew" in line]

    first, second = draws()
    assert first != second
    assert draws() == draws("--base-seed=0") == [first, second]
    assert not {*draws("--base-seed=1")} & {first, second}
    assert not {*draws("--vary-seed")} & {first, second}  # 1 in 2**31 draws the base seed 0


def test_tests_that_were_measured_as_slow_exist() -> None:
    """A line of `slow.txt` of a test that was renamed would make `make test` slow again without a word."""
    wrong = []
    for test, tier in load().items():
        file, _, name = test.partition("::")
        path = Path(__file__).parent.parent / file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        is_there = f"def {name.split('[')[0].split('::')[-1]}(" in text if name else bool(text)
        if tier not in ("ci", "nightly") or not is_there:
            wrong.append(test)
    assert not wrong


def test_a_report_of_pytest_says_which_tests_are_slow(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = '<testcase classname="tests.a.test_b" name="{}" time="{}"/>'
    report.write_text(
        f"<s>{cases.format('test_c[1]', 1.0)}{cases.format('test_c[2]', 0.7)}{cases.format('x', 0)}</s>".replace(
            "test_b", "test_b.TestD", 1
        )
    )
    assert measured(report) == {
        "tests/a/test_b.py::TestD::test_c": 1.0,
        "tests/a/test_b.py::test_c": 0.7,
        "tests/a/test_b.py::x": 0.0,
    }
