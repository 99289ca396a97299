"""gpflow_deep_base.seeds: pure functions of (seed, name), the same in every process."""

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_base.seeds import Seeds, as_seed, named_seed, numpy_rng, seed_words


def test_named_seed_is_the_documented_int32_pair() -> None:
    seed = named_seed(0, "train")
    assert seed.dtype == tf.int32
    assert seed.shape == [2]
    assert tf.random.fold_in(seed, 3).dtype == tf.int32  # fold_in of other dtypes would break XLA


def test_values_are_the_same_in_every_process_and_version() -> None:
    """Golden values, printed once by these very calls: hash() of a string would differ between processes, and if they
    changed, no stored run could be resumed or repeated."""
    assert named_seed(7, "train").numpy().tolist() == [172475578, -1689557749]
    assert int(numpy_rng(7, "train").integers(2**62)) == 174207525370989582


def test_streams_of_other_seeds_and_names_differ() -> None:
    keys = [(seed, name) for seed in (*range(50), 2**40, 2**61) for name in ("train", "init", "init/1", "eval")]
    assert len({tuple(named_seed(*key).numpy()) for key in keys}) == len(keys)
    assert len({numpy_rng(*key).integers(2**62) for key in keys}) == len(keys)


def test_integers_of_any_type_are_equal() -> None:
    for other in (np.int64(3), np.uint8(3), np.array(3)):
        np.testing.assert_array_equal(named_seed(3, "a"), named_seed(other, "a"))  # type: ignore[arg-type]


def test_bits_are_balanced() -> None:
    """Each of the 64 bits is a fair coin over 4000 seeds: 5 standard errors are 5 * 0.5 / sqrt(4000) = 0.04."""
    pairs = np.stack([named_seed(seed, "train").numpy() for seed in range(4000)]).view(np.uint8)
    frequencies = np.unpackbits(pairs, axis=1).mean(axis=0)
    assert frequencies.shape == (64,)
    np.testing.assert_allclose(frequencies, 0.5, atol=0.04)


def test_numpy_rng_leaves_the_global_generator_alone_and_repeats() -> None:
    np.testing.assert_array_equal(numpy_rng(1, "a").normal(size=5), numpy_rng(1, "a").normal(size=5))


@pytest.mark.parametrize("function", [named_seed, numpy_rng])
def test_bad_arguments(function: object) -> None:
    assert callable(function)
    for seed in (1.5, "1", None, True, np.array([1, 2]), tf.constant([1, 2]), np.array(True)):
        with pytest.raises(ValueError, match="seed must be an integer"):
            function(seed, "train")
    for name in ("", None, 3):
        with pytest.raises(ValueError, match="non-empty string"):
            function(1, name)


def test_seeds_of_a_run_are_the_named_streams() -> None:
    seeds = Seeds(7)
    assert seeds.seed == 7
    np.testing.assert_array_equal(seeds("train"), named_seed(7, "train"))
    assert seeds.rng("order").integers(2**62) == numpy_rng(7, "order").integers(2**62)
    with pytest.raises(ValueError, match="seed must be an integer"):
        Seeds(1.5)("train")  # type: ignore[arg-type]


@pytest.mark.parametrize(("seed", "words"), [(0, [0, 0]), (5, [0, 5]), (2**31, [1, 0]), (2**62 - 1, [2**31 - 1] * 2)])
def test_an_integer_is_its_high_and_low_bits(seed: int, words: list[int]) -> None:
    assert as_seed(seed).dtype == tf.int32
    assert as_seed(seed).numpy().tolist() == seed_words(seed).tolist() == words
    np.testing.assert_array_equal(as_seed(as_seed(seed)), words)
    np.testing.assert_array_equal(as_seed(np.int64(seed)), words)
    np.testing.assert_array_equal(as_seed(np.array(seed)), words)


@pytest.mark.parametrize("seed", [-1, 2**62, 2**62 + 5, np.uint64(2**63)])
def test_integers_that_would_be_the_stream_of_another_are_refused(seed: int) -> None:
    for function in (as_seed, lambda seed: Seeds(seed)("train"), lambda seed: numpy_rng(seed, "a")):
        with pytest.raises(ValueError, match=r"from 0 to 2\*\*62 - 1"):
            function(seed)


@pytest.mark.parametrize(
    "seed",
    [
        1.5,
        "1",
        None,
        True,
        [1, 2, 3],
        tf.constant(3),
        tf.constant([1.0, 2.0]),
        [2**31, 1],
        tf.constant([2**40, 1], tf.int64),
    ],
)
def test_what_is_no_seed(seed: object) -> None:
    with pytest.raises(ValueError, match="seed must be an integer"):
        as_seed(seed)  # type: ignore[arg-type]


def test_seeds_work_inside_a_graph() -> None:
    compiled = tf.function(lambda seed: as_seed(seed) + 1)
    np.testing.assert_array_equal(compiled(tf.constant([3, 4])), [4, 5])
