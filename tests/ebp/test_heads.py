import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, special, stats

from ebp.network.heads import RegressionHead, SignHead, SoftmaxHead, check_labels, encode_labels


def test_output_delta_as_printed() -> None:
    """Eq. (4.3): y N(0 | mu, sigma2) / Phi(y mu / sigma), where nothing underflows."""
    mu, sigma2, y = np.array([[0.3, -2.0, 1.0]]), np.array([[0.5, 1.0, 2.0]]), np.array([[1.0, 1.0, -1.0]])
    exact = y * stats.norm.pdf(0, mu, np.sqrt(sigma2)) / stats.norm.cdf(y * mu / np.sqrt(sigma2))
    np.testing.assert_allclose(SignHead().delta(*map(tf.constant, (y, mu, sigma2))), exact, rtol=1e-12)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_output_delta_tends_to_the_asymptote_of_footnote_4_without_its_root(y: float) -> None:
    """-mu / sigma2 where y mu < 0, with relative error (sigma / mu)^2; the printed 1 / sqrt(K) is not part of it."""
    mu, sigma2 = tf.constant([[-y * 50.0, -y * 500.0]], tf.float32), tf.constant([[0.25, 0.25]], tf.float32)
    delta = SignHead().delta(tf.fill([1, 2], y), mu, sigma2)
    np.testing.assert_allclose(delta, -mu / sigma2, rtol=2e-4)
    assert np.all(np.sign(delta) == y)


def test_sign_head_probabilities() -> None:
    mu, sigma2 = tf.constant([[0.3, -2.0]], tf.float64), tf.constant([[0.5, 1.0]], tf.float64)
    y = tf.constant([[1.0, -1.0]], tf.float64)
    p = stats.norm.cdf(y * mu / np.sqrt(sigma2))
    np.testing.assert_allclose(SignHead().log_prob(y, mu, sigma2), np.log(p).sum(axis=1), rtol=1e-13)
    np.testing.assert_allclose(SignHead().mean(mu, sigma2), y * (2 * p - 1), rtol=1e-12)


def test_softmax_head_sums_to_one_and_approximates_the_integral() -> None:
    """Two classes: P(1) is the mean of a logistic under N(mu_1 - mu_2, sum of sigma2); MacKay's error is below 0.03."""
    mu, sigma2 = tf.constant([[0.8, -0.4]], tf.float64), tf.constant([[0.6, 0.6]], tf.float64)
    p = SoftmaxHead().mean(mu, sigma2).numpy()[0]
    assert p.sum() == pytest.approx(1.0, rel=1e-14)
    exact, _ = integrate.quad(lambda a: special.expit(a) * stats.norm.pdf(a, 1.2, np.sqrt(1.2)), -12, 14)
    assert p[0] == pytest.approx(exact, abs=0.03)
    y = tf.constant([[-1.0, 1.0]], tf.float64)
    np.testing.assert_allclose(SoftmaxHead().log_prob(y, mu, sigma2), np.log(p[1]), rtol=1e-12)


def test_regression_head_is_a_gaussian() -> None:
    y, mu, sigma2 = np.array([[0.3, 1.0]]), np.array([[0.1, -1.0]]), np.array([[0.5, 2.0]])
    exact = stats.norm.logpdf(y, mu, np.sqrt(sigma2 + 0.2)).sum(axis=1)
    np.testing.assert_allclose(RegressionHead(0.2).log_prob(*map(tf.constant, (y, mu, sigma2))), exact, rtol=1e-12)


def test_outputs_of_one_network() -> None:
    u = tf.constant([[0.2, -1.0, 0.5]])
    np.testing.assert_array_equal(SignHead().output(u[:, :1]), [[1.0]])
    np.testing.assert_array_equal(SignHead().output(u), [[-1.0, -1.0, 1.0]])
    np.testing.assert_array_equal(SoftmaxHead().output(u), [[-1.0, -1.0, 1.0]])
    np.testing.assert_array_equal(RegressionHead().output(u), u)


def test_decisions() -> None:
    scores = np.array([[-0.1], [0.0], [2.0]])
    np.testing.assert_array_equal(SignHead().decide(scores), [-1, 1, 1])
    np.testing.assert_array_equal(SignHead().decide(np.array([[-0.3, -0.2], [0.5, 0.1]])), [1, 0])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 1], r"labels must be -1 and \+1, got 0, 1; map 0 to -1 with 2 \* Y - 1"),
        ([1, 2, 3], r"got 1, 2, 3; code them with Y, classes = ebp.encode_labels"),
        (["ham", "spam"], r"got 'ham', 'spam'; code them"),
        ([True, False], "got 'False', 'True'; code them"),
        ([1.0, np.nan], "NaN or infinity in 1 rows, first in row 1"),
    ],
)
def test_other_labels_are_refused_with_the_mapping(labels: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_labels(np.array(labels), 1)


def test_wrong_shapes_of_targets() -> None:
    with pytest.raises(ValueError, match=r"shape \[N, 3\], one column for each output, got \[4\]"):
        check_labels(np.ones(4), 3)
    with pytest.raises(ValueError, match=r"exactly one \+1 in each row .* got 2 in row 1"):
        SoftmaxHead().check_targets(np.array([[1, -1], [1, 1]]), 2)
    with pytest.raises(ValueError, match="at least two outputs"):
        SoftmaxHead().check_targets(np.array([[1], [1]]), 1)
    with pytest.raises(ValueError, match="noise_variance must be finite"):
        RegressionHead(-0.1)


def test_encode_two_classes() -> None:
    Y, classes = encode_labels(np.array(["b", "a", "b"]))
    np.testing.assert_array_equal(Y, [[1], [-1], [1]])
    assert classes.tolist() == ["a", "b"]


def test_encode_many_classes_in_a_given_order() -> None:
    Y, classes = encode_labels(np.array([2, 7, 5]), np.array([7, 5, 2]))
    np.testing.assert_array_equal(Y, [[-1, -1, 1], [1, -1, -1], [-1, 1, -1]])
    assert classes.tolist() == [7, 5, 2]


def test_encode_refuses_unseen_and_single_classes() -> None:
    with pytest.raises(ValueError, match=r"among the classes \[0, 1\], got \[3\]"):
        encode_labels(np.array([0, 3]), np.array([0, 1]))
    with pytest.raises(ValueError, match="at least two classes, got 1 class"):
        encode_labels(np.array([1, 1]))
    with pytest.raises(ValueError, match=r"classes must be .* each named once, got"):
        encode_labels(np.array(["a", "b"]), ["a", "a", "b"])
    with pytest.raises(ValueError, match="labels must not be NaN, got 1 of these"):
        encode_labels(np.array([0.0, np.nan, 1.0]))
    with pytest.raises(ValueError, match=r"shape \[N\], got \[2, 1\]"):
        encode_labels(np.array([[1], [2]]))
