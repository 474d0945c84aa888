"""The comparisons on real data measure what they say, and their texts follow from their figures."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from peer_priors import PEER_OF_MIXTURES, PEER_OF_TOPICS
from scipy.sparse import csr_matrix
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.mixture import BayesianGaussianMixture

from sklearn_anneal import (
    AnnealedBayesianGaussianMixture,
    AnnealedBayesianMixture,
    AnnealedGammaProcessNMF,
    AnnealedHMM,
    AnnealedLatentDirichletAllocation,
)
from sklearn_anneal.annealing import ANNEALING

matplotlib = pytest.importorskip("matplotlib")
ROOT = Path(__file__).resolve().parents[1]


def load_comparison(model):
    """Import the comparison of a model, and close its figures in the end."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT), *sys.path])
        yield import_module(f"benchmarks.{model}.comparison")
    pyplot.close("all")


@pytest.fixture(scope="module")
def digits():
    yield from load_comparison("gaussian_mixture")


@pytest.fixture(scope="module")
def topics():
    yield from load_comparison("latent_dirichlet")


@pytest.fixture(scope="module")
def segmentation():
    yield from load_comparison("hidden_markov")


@pytest.fixture(scope="module")
def classes():
    yield from load_comparison("mixture")


@pytest.fixture(scope="module")
def stars():
    yield from load_comparison("matrix_factorization")


@pytest.fixture(scope="module")
def parts():
    yield from load_comparison("factorial_mixture")


@pytest.fixture(scope="module")
def counted():
    yield from load_comparison("gamma_process_nmf")


@pytest.fixture(scope="module")
def compared(digits):
    data = digits.load_data()
    few = {name: data[name] for name in ("digit 0", "digit 5")}
    return dict(digits.compare(few, n_seeds=2, n_components=3))


def test_data_are_every_digit_and_all_of_them(digits):
    data = digits.load_data()
    assert len(data) == 11
    sizes = {name: len(train) + len(test) for name, (train, test) in data.items()}
    assert sizes.pop("all digits") == sum(sizes.values()) == 1797
    assert all(train.shape[1] == test.shape[1] == 15 for train, test in data.values())


def test_every_annealing_method_competes(digits):
    default = AnnealedBayesianGaussianMixture().annealing
    assert {*digits.METHODS, "none", default} == set(ANNEALING)
    both = digits.contestants(10, 3, 0), digits.contestants(10, 3, 0, digits.METHODS)
    assert [set(names) for names in both] == [
        {digits.DEFAULT, digits.SKLEARN, digits.SINGLE},
        {digits.DEFAULT, digits.SKLEARN, digits.SINGLE, *digits.METHODS},
    ]
    assert both[0][digits.DEFAULT].annealing == default


@pytest.mark.parametrize("n_components", [1, 3])
def test_the_peer_is_measured_as_this_package_measures_itself(digits, n_components):
    train, test = digits.load_data()["digit 1"]
    # The same optimum of both classes; regularisation is no part of the bound.
    params = {
        "n_components": n_components,
        "max_iter": 5000,
        "tol": 1e-11,
        "reg_covar": 1e-12,
        "random_state": 0,
        "mean_precision_prior": 0.7,
        "weight_concentration_prior": 0.3,
        # The priors that both derive from the data, whatever the defaults are.
        "mean_prior": None,
        "degrees_of_freedom_prior": None,
        "covariance_prior": None,
    }
    peer = BayesianGaussianMixture(**params).fit(train)
    ours = AnnealedBayesianGaussianMixture(annealing="none", **PEER_OF_MIXTURES | params).fit(train)
    assert digits.complete_bound(peer, len(train)) == pytest.approx(ours.lower_bound_, abs=1e-6)
    assert digits.predictive_score(peer, test) == pytest.approx(ours.score(test), abs=1e-6)


def test_measures_have_one_row_per_seed(digits, compared):
    assert list(compared) == ["digit 0", "digit 5"]
    for data_name, rows in compared.items():
        assert list(rows) == [digits.DEFAULT, digits.SKLEARN, digits.SINGLE]
        assert all(values.shape == (2, 3) for values in rows.values())
        assert all(np.isfinite(values).all() for values in rows.values())
        train, test = digits.load_data()[data_name]
        fit = digits.contestants(len(train), 3, 1)[digits.DEFAULT]
        bound, density, _ = digits.measure(fit, train, test)
        np.testing.assert_allclose(rows[digits.DEFAULT][1, :2], [bound, density])
        assert bound == fit.lower_bound_ / len(train)
        assert density == fit.score(test)


def test_the_default_fit_names_no_parameter(digits):
    given = digits.contestants(10, 3, 7)[digits.DEFAULT].get_params()
    default = AnnealedBayesianGaussianMixture(n_components=3, random_state=7).get_params()
    assert given == default


def test_the_table_has_the_medians_line_by_line(digits, compared, capsys):
    lines = []

    def results():
        for item in compared.items():
            lines.append(len(capsys.readouterr().out.splitlines()))
            yield item

    kept = digits.print_table(results())
    assert kept == compared
    printed = capsys.readouterr().out
    assert lines[1] == 1, "the line of the first data set is printed before the second is fitted"
    digits.print_table(compared.items())
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines())
    for rows in compared.values():
        for values in rows.values():
            bound, density, seconds = np.median(values, axis=0)
            assert all(text in printed for text in (f"{bound:.2f}", f"{density:.2f}"))
            assert f"{seconds:.3f}" in printed


def test_the_conclusions_follow_from_the_results(digits, compared):
    # One made-up winner in everything, at half the time; all others tie with ten starts.
    flat = {
        data_name: {method: np.array([[0.0, 0.0, 1.0]]) for method in rows}
        for data_name, rows in compared.items()
    }
    for rows in flat.values():
        rows["tempering"] = np.array([[1.0, 1.0, 0.5]])
    head, *text = digits.conclusions(flat)
    assert "on 2 data sets" in head
    assert all(len(line) <= 80 for line in text)
    (won,) = (line for line in text if line.startswith("  tempering"))
    assert re.search("bound better on 2, density better on 2, in 0.50 x", won)
    (tied,) = (line for line in text if line.startswith(f"  {digits.DEFAULT}"))
    assert re.search("bound better on 0, density better on 0, in 1.00 x", tied)


def test_the_figure_is_written_where_it_says(digits, compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = digits.draw(compared)
    assert path == tmp_path.resolve() / "gaussian_mixture_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def documents(topics):
    return topics.load_documents()


@pytest.fixture(scope="module")
def corpus(topics, documents):
    """Counts of the words in some of the documentation strings, small enough to be quick."""
    return topics.count_words(documents[::6])


@pytest.fixture(scope="module")
def topic_fits(topics, corpus):
    train, test, _ = corpus
    return topics.compare(train, test, n_seeds=2, n_components=4)


def test_every_python_has_enough_text(topics, documents):
    assert len(documents) == len(set(documents)) > 1000
    assert not any(">>>" in text for text in documents)
    train, test, words = topics.count_words(documents)
    assert train.shape[1] == test.shape[1] == len(words) > 500
    assert all(word.isalpha() and len(word) > 2 for word in words)


def test_documents_are_the_long_documentation_strings(topics, tmp_path, monkeypatch):
    long = " ".join(["word"] * 30)
    files = {
        "json/a.py": f'''"""module {long}"""
class C:
    """class {long}

    >>> example
    """
    async def f(self):
        """async {long}"""
    def g(self):
        """{long[:-5]}"""
raise RuntimeError("this is not to be run")''',
        "json/same.py": f'"""module {long}"""',
        "json/broken.py": f'"""broken {long}""" (',
        "json/test/b.py": f'"""test {long}"""',
        "idlelib/c.py": f'"""idle {long}"""',
        "not_of_the_library/d.py": f'"""other {long}"""',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = topics.load_documents(tmp_path)
    assert [text.split()[0] for text in found] == ["module", "class", "async"]
    assert not any("example" in text for text in found)
    with pytest.raises(RuntimeError, match="no documented source files"):
        topics.load_documents(tmp_path / "not_of_the_library")


def test_the_other_topic_model_is_measured_as_this_package_measures_itself(topics, corpus):
    train, test, _ = corpus
    exact = {"mean_change_tol": 1e-9, "max_doc_update_iter": 2000}
    peer = LatentDirichletAllocation(3, random_state=0, **exact)
    bound, score, coherence, _ = topics.measure(peer, train, test)
    start = peer.components_  # so that both have the same topics
    ours = AnnealedLatentDirichletAllocation(
        3,
        annealing="none",
        init_components=start,
        max_iter=0,
        **PEER_OF_TOPICS,
        **exact,
    )
    bound_, score_, coherence_, _ = topics.measure(ours, train, test)
    assert bound == pytest.approx(bound_, abs=1e-4)
    assert score == pytest.approx(score_, abs=1e-4)
    assert coherence == coherence_


def test_topics_are_measured_once_per_seed(topics, corpus, topic_fits):
    results, fits = topic_fits
    train, test, _ = corpus
    assert set(results) == set(fits) == set(topics.contestants(4, 0))
    for method, values in results.items():
        assert values.shape == (2, 4)
        assert np.isfinite(values).all()
        if method != topics.SKLEARN:
            assert values[0, 0] == fits[method].lower_bound_ / train.sum()
            assert values[0, 1] == fits[method].score(test)
    assert (results[topics.RESTARTS][:, 0] >= results[topics.SINGLE][:, 0]).all()


def test_a_line_is_printed_for_every_fit(topics, segmentation, stars, capsys):
    """A log without a terminal has them too, so that a comparison does not seem to hang."""
    words = np.random.default_rng(0).poisson(1.0, (30, 8))
    frames = [line[:, None] for line in np.random.default_rng(0).normal(size=(8, 20))]
    ratings = stars.split_ratings(*stars.draw_ratings(n_users=20, n_items=30, most=20)[:2])
    for comparison, data in (
        (topics, (csr_matrix(words[:20]), csr_matrix(words[20:]))),
        (segmentation, (frames[:6], frames[6:])),
        (stars, ratings),
    ):
        results, _ = comparison.compare(*data, 2, 2)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(": ")[1].rsplit(maxsplit=2)[0] for line in lines] == 2 * list(results)
        assert [line.split(": ")[0] for line in lines[:: len(results)]] == [
            "seed 1 of 2",
            "seed 2 of 2",
        ]


def test_what_is_printed_of_topics(topics, corpus, topic_fits, capsys):
    results, fits = topic_fits
    train, _, words = corpus
    topics.print_table(results)
    table = capsys.readouterr().out
    for values in results.values():
        for column in range(3):
            assert f"{np.median(values[:, column]):.3f}" in table
    topics.print_topics(fits, words, train, n=3)
    listed = capsys.readouterr().out
    for method in (topics.SINGLE, "deterministic"):
        tops = [" ".join(top) for top in fits[method].top_words(words, 6)]
        assert sum(top[:40] in listed for top in tops) >= 3
    printed = [*table.splitlines(), *listed.splitlines(), *topics.conclusions(results)]
    assert all(len(line) <= 80 for line in printed)


def test_the_conclusions_on_topics_follow_from_the_results(topics, topic_fits):
    results, _ = topic_fits
    # One made-up winner in bound and likelihood, at half the time; all others tie.
    flat = {method: np.array([[-7.0, -6.0, 0.1, 1.0]]) for method in results}
    flat["stochastic"] = np.array([[-6.5, -5.75, 0.0, 0.5]])
    text = list(topics.conclusions(flat))
    (at,) = (i for i, line in enumerate(text) if line.startswith("  stochastic"))
    assert "bound +0.500, held-out +0.250, coherence -0.100" in text[at]
    assert "0.50 x" in text[at + 1]
    assert text[-3:-1] == ["Best bound: stochastic.", "Best held-out likelihood: stochastic."]


def test_the_figure_of_topics_is_written_where_it_says(
    topics, corpus, topic_fits, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = topics.draw(topic_fits[1], corpus[2])
    assert path == tmp_path.resolve() / "latent_dirichlet_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def photograph(segmentation):
    """Lines of larger squares, few enough to be quick."""
    return segmentation.load_lines(size=20)


@pytest.fixture(scope="module")
def segmented(segmentation, photograph):
    train, test = segmentation.split_lines(photograph)
    return segmentation.compare(train, test, n_seeds=2, n_components=3)


def test_lines_are_those_of_the_photograph(segmentation, photograph):
    whole = segmentation.load_lines(size=1)
    assert whole.shape == (427, 640, 3)
    assert photograph.shape == (21, 32, 3)
    assert 0 <= whole.min() < whole.max() <= 1
    np.testing.assert_allclose(photograph[2, 5], whole[40:60, 100:120].mean(axis=(0, 1)))
    train, test = segmentation.split_lines(photograph)
    assert (len(train), len(test)) == (16, 5)
    np.testing.assert_array_equal(test[1], photograph[6])
    both = np.stack([*train, *test])
    assert {line.tobytes() for line in both} == {line.tobytes() for line in photograph}


def test_segmentations_are_measured_once_per_seed(segmentation, photograph, segmented):
    results, fits = segmented
    train, test = segmentation.split_lines(photograph)
    assert set(results) == set(fits) == set(segmentation.contestants(3, 0))
    assert AnnealedHMM().annealing in results
    for method, values in results.items():
        assert values.shape == (2, 3)
        assert np.isfinite(values).all()
        assert values[0, 0] == fits[method].lower_bound_ / (16 * 32)
        assert values[0, 1] == fits[method].score(test)
    restarts, single = results[segmentation.RESTARTS], results[segmentation.SINGLE]
    assert (restarts[:, 0] >= single[:, 0]).all()
    assert len(fits[segmentation.RESTARTS].restart_lower_bounds_) == 10


def test_what_is_printed_of_segmentations(segmentation, segmented, capsys):
    results, _ = segmented
    segmentation.print_table(results)
    table = capsys.readouterr().out
    for values in results.values():
        assert f"{np.median(values[:, 0]):.3f}" in table
        assert f"{np.median(values[:, 1]):.3f}" in table
    printed = [*table.splitlines(), *segmentation.conclusions(results)]
    assert all(len(line) <= 80 for line in printed)
    # One made-up winner, at half the time; all others tie.
    flat = {method: np.array([[5.0, 6.0, 1.0]]) for method in results}
    flat["stochastic"] = np.array([[5.5, 5.75, 0.5]])
    (won,) = (t for t in segmentation.conclusions(flat) if t.startswith("  stochastic"))
    assert "bound +0.500, held-out -0.250, in 0.50 x" in won


def test_the_painted_states_are_those_of_each_line(segmentation, photograph, segmented):
    fit = segmented[1]["deterministic"]
    painted = segmentation.paint(fit, photograph)
    assert painted.shape == photograph.shape
    for line, drawn in zip(photograph, painted, strict=True):
        np.testing.assert_array_equal(drawn, fit.means_.clip(0, 1)[fit.predict(line)])


def test_the_figure_of_states_is_written_where_it_says(
    segmentation, photograph, segmented, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = segmentation.draw(segmented[1], photograph, line=9)
    assert path == tmp_path.resolve() / "hidden_markov_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def images(classes):
    """Few images, enough to be fitted."""
    train, test, complete = classes.load_images()
    return train[:200], test[:60], complete[:60]


@pytest.fixture(scope="module")
def classified(classes, images):
    return classes.compare(*images, n_seeds=2, n_components=4)


def test_images_are_black_and_white_with_holes(classes):
    train, test, complete = classes.load_images()
    assert len(train) + len(test) == 1797
    both = np.vstack([train, test])
    assert np.isnan(both).sum() == round(0.1 * both.size)
    assert set(np.unique(both[~np.isnan(both)])) == {0.0, 1.0} == set(np.unique(complete))
    known = ~np.isnan(test)
    np.testing.assert_array_equal(test[known], complete[known])


def test_latent_classes_are_measured_once_per_seed(classes, images, classified, capsys):
    results, fits = classified
    train, test, complete = images
    assert set(results) == set(fits) == set(classes.contestants(4, 0))
    assert fits[classes.DEFAULT].get_params() == {
        **AnnealedBayesianMixture(4).get_params(),
        "random_state": 0,
    }
    missing = np.isnan(test)
    for name, values in results.items():
        assert values.shape == (2, 4)
        assert values[0, 0] == fits[name].lower_bound_ / len(train)
        assert values[0, 1] == fits[name].score(test)
        wrong = fits[name].impute(test)[missing] != complete[missing]
        assert values[0, 2] == wrong.mean()
    restarts, single = results[classes.RESTARTS], results[classes.SINGLE]
    assert (restarts[:, 0] >= single[:, 0]).all()
    assert (results[classes.REHEATING][:, 0] >= single[:, 0]).all()
    capsys.readouterr()
    classes.compare(*images, 1, 2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1].rsplit(maxsplit=2)[0] for line in lines] == list(results)


def test_what_is_printed_of_latent_classes(classes, images, classified, capsys):
    results, _ = classified
    imputed = classes.impute(*images)
    assert set(imputed) == set(classes.IMPUTERS)
    assert all(0 < wrong < 0.5 for wrong in imputed.values())
    capsys.readouterr()
    classes.print_table(results, imputed)
    table = capsys.readouterr().out
    for values in results.values():
        for column in range(3):
            assert f"{np.median(values[:, column]):.3f}" in table
    printed = [*table.splitlines(), *classes.conclusions(results, imputed)]
    assert all(len(line) <= 80 for line in printed)
    # One made-up winner in bound, at half the time, and another in pixels; all others tie.
    flat = {name: np.array([[-9.0, -8.0, 0.2, 1.0]]) for name in results}
    flat[classes.DEFAULT] = np.array([[-8.5, -8.25, 0.2, 0.5]])
    text = list(classes.conclusions(flat, dict.fromkeys(imputed, 0.3) | {"KNNImputer": 0.1}))
    (won,) = (line for line in text if line.startswith(f"  {classes.DEFAULT}"))
    assert "bound +0.500, held-out -0.250, in 0.50 x" in won
    assert text[-1] == "Fewest pixels wrong: KNNImputer."


def test_wines_and_the_figure_of_latent_classes(classes, images, classified, tmp_path, monkeypatch):
    X, blocks, names, cultivars = classes.load_wines()
    assert X.shape == (178, 13) == (len(cultivars), len(names))
    assert sorted(np.concatenate([columns for _, _, columns in blocks])) == list(range(13))
    wines = classes.fit_wines(X, blocks)
    assert list(wines.blocks_["levels"].n_categories_) == 7 * [3]
    monkeypatch.chdir(tmp_path)
    path = classes.draw(classified[1][classes.DEFAULT], images[1], wines, names, n_images=4)
    assert path == tmp_path.resolve() / "mixture_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def drawn_ratings(stars):
    """Few ratings, with their truth."""
    return stars.draw_ratings(n_users=200, n_items=50, most=40)


@pytest.fixture(scope="module")
def rated(stars, drawn_ratings):
    train, test = stars.split_ratings(*drawn_ratings[:2])
    return stars.compare(train, test, n_seeds=2), train, test


def test_ratings_are_drawn_from_the_truth(stars):
    X, y, truth = stars.draw_ratings()
    assert len(np.unique(X, axis=0)) == len(X)
    counts = np.bincount(X[:, 0])
    assert (counts.min(), counts.max()) == (3, 100)
    means = 3.5 + truth["user_biases"][X[:, 0]] + truth["item_biases"][X[:, 1]]
    means += np.einsum("nk,nk->n", truth["users"][X[:, 0]], truth["items"][X[:, 1]])
    assert np.std(y - means) == pytest.approx(stars.NOISE, rel=0.02)
    train, test = stars.split_ratings(X, y)
    assert len(train[1]) + len(test[1]) == len(y)
    assert len(test[1]) == pytest.approx(0.1 * len(y), rel=0.1)
    both = {tuple(pair) for part in (train, test) for pair in part[0]}
    assert len(both) == len(X)


def test_ratings_are_measured_once_per_seed(stars, rated):
    (results, fits), train, test = rated
    assert set(results) == set(fits) == set(stars.contestants(2, 0))
    for method, values in results.items():
        assert values.shape == (2, 6)
        assert np.isfinite(values).all()
        assert values[0, 0] == fits[method].lower_bound_ / len(train[1])
        assert values[0, 1] == fits[method].score(*test)
        error = fits[method].predict(test[0]) - test[1]
        assert values[0, 2] == pytest.approx(np.sqrt(np.mean(error**2)))
        assert values[0, 4] == fits[method].n_iter_
        assert fits[method].biases != method.endswith(stars.NO_BIASES)


def test_what_is_printed_of_ratings(stars, rated, capsys):
    results = rated[0][0]
    stars.print_table(results)
    table = capsys.readouterr().out
    for values in results.values():
        for column in range(3):
            assert f"{np.median(values[:, column]):.4f}" in table
    printed = [*table.splitlines(), *stars.conclusions(results)]
    assert all(len(line) <= 80 for line in printed)
    # One made-up winner in half the passes; all others tie.
    flat = {method: np.array([[-1.0, -1.0, 1.0, 90.0, 100.0, 1.0]]) for method in results}
    flat["stochastic"] = np.array([[-0.5, -1.0, 0.75, 90.0, 50.0, 1.0]])
    (won,) = (t for t in stars.conclusions(flat) if t.startswith("  stochastic "))
    assert "bound +0.5000, RMSE -0.2500, in 0.50 x" in won
    stars.print_table(flat)
    rows = capsys.readouterr().out.splitlines()
    starred = [line.split()[0] for line in rows if line.count("*") == 3]
    assert starred == ["stochastic", "plain", "deterministic,", "stochastic,", "svi_plus,"]


def test_estimated_factors_are_aligned_with_the_truth(stars, drawn_ratings, rated):
    truth = drawn_ratings[2]
    pmf = rated[0][1]["deterministic"]
    aligned = stars.aligned(pmf, truth)
    true = truth["items"][: len(aligned)]
    assert np.linalg.norm(aligned - true) < 0.8 * np.linalg.norm(true)
    # A turn of the truth turns the estimate with it.
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    turned = stars.aligned(pmf, {**truth, "items": truth["items"] @ turn})
    np.testing.assert_allclose(turned, aligned @ turn, atol=1e-10)


def test_users_with_more_ratings_are_better_known(stars, drawn_ratings, rated):
    (_, fits), train, _ = rated
    numbers, deviations, errors = stars.by_number_of_ratings(
        fits["deterministic"], train, drawn_ratings[2], n_groups=3
    ).T
    assert (np.diff(numbers) > 0).all()
    assert deviations[0] > deviations[-1]
    assert errors[0] > errors[-1]


def test_the_figure_of_ratings_is_written_where_it_says(
    stars, drawn_ratings, rated, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (_, fits), train, _ = rated
    path = stars.draw(fits, train, drawn_ratings[2])
    assert path == tmp_path.resolve() / "matrix_factorization_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def taken_apart(parts):
    train, test = parts.load_data()
    few = train[:200], test[:50]
    return *parts.compare(*few, n_seeds=2, n_components=5), *few


def test_parts_are_measured_once_per_seed(parts, taken_apart):
    results, fits, train, test = taken_apart
    assert len(train) == 200
    assert set(results) == set(fits) == set(parts.contestants(5, 0))
    for name, values in results.items():
        assert values.shape == (2, 4)
        assert np.isfinite(values[:, [0, 2, 3]]).all()
        made = parts.reconstruct(fits[name], test)
        assert values[0, 0] == np.mean((made - test) ** 2)
        assert values[0, 0] < np.mean((train.mean(axis=0) - test) ** 2)
        if name != parts.CLUSTERS:
            assert values[0, 1] == fits[name].score(test)
    # Bits: there are no more pictures than combinations of parts.
    assert len(np.unique(np.round(fits[parts.ANNEALED].transform(train)), axis=0)) <= 2**5


def test_what_is_printed_of_parts(parts, taken_apart, capsys):
    results = taken_apart[0]
    parts.print_table(results)
    table = capsys.readouterr().out
    for values in results.values():
        assert f"{np.median(values[:, 0]):.4f}" in table
    flat = {name: np.array([[0.04, 10.0, 8.0, 1.0]]) for name in results}
    flat[parts.ANNEALED] = np.array([[0.02, 12.5, 16.0, 2.0]])
    found = list(parts.conclusions(flat))
    assert all("is 0.50 x that of" in text for text in found[:2])
    assert "+2.50 nats" in found[2]
    assert "uses 16 parts, plain VI 8." in found[2]


def test_the_figure_of_parts_is_written_where_it_says(parts, taken_apart, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = parts.draw(taken_apart[1], taken_apart[3])
    assert path == tmp_path.resolve() / "factorial_mixture_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def divided(counted):
    """Fits of few images and few parts."""
    train, test = counted.load_data()
    train, test = train[:150], test[:50]
    return train, test, *counted.compare(train, test, n_components=6, sizes=(2, 4))


def test_counts_are_divided_once_per_contestant(counted, divided):
    train, test, results, fits = divided
    assert set(results) == set(fits) == set(counted.contestants(6, (2, 4)))
    assert fits[counted.DEFAULT].get_params() == {
        **AnnealedGammaProcessNMF(6).get_params(),
        "max_iter": 300,
        "random_state": 0,
    }
    for name, (n_parts, bound, predicted, error, _) in results.items():
        assert error == fits[name].reconstruction_err_
        if name.startswith("NMF"):
            assert n_parts == int(name.split()[1]) and np.isnan(bound)
        else:
            assert n_parts == fits[name].n_effective_components_
            assert bound == fits[name].lower_bound_ / len(train)
            assert predicted == fits[name].score(test)


def test_nmf_is_measured_as_the_gamma_process_measures_itself(counted, divided):
    """Given the same activations of one half, both have the same score."""
    train, test, _, fits = divided
    ours = fits[counted.PLAIN]
    halves = []

    class Peer:
        components_ = ours.components_

        def transform(self, X):
            halves.append(X)
            # Rates of one half of the counts, as `score` infers them.
            return 0.5 * ours.transform(2 * X)

    found = counted.score(Peer(), test)
    (observed,) = halves
    assert ((observed >= 0) & (observed <= test)).all()
    assert found == pytest.approx(ours.score(test), rel=0.05)


def test_what_is_printed_of_counts(counted, divided, capsys):
    *_, results, fits = divided
    counted.print_table(results)
    table = capsys.readouterr().out
    for n_parts, _, predicted, *_ in results.values():
        assert f" {n_parts} " in table and f"{predicted:.3f}" in table
    text = list(counted.conclusions(results))
    printed = [*table.splitlines(), *"\n".join(text).splitlines()]
    assert all(len(line) <= 80 for line in printed)
    made_up = {
        counted.PLAIN: (5, -9.0, -1.5, 1.0, 1.0),
        counted.REHEATED: (4, -8.0, -1.0, 1.0, 1.0),
        counted.DEFAULT: (3, -7.5, -1.25, 1.0, 1.0),
        "NMF, 2 parts": (2, np.nan, -1.75, 1.0, 1.0),
        "NMF, 4 parts": (4, np.nan, -2.0, 1.0, 1.0),
    }
    text = " ".join(" ".join(counted.conclusions(made_up)).split())
    assert "(default) uses 3 parts, and scores +0.500 nats per pixel against NMF, 2" in text
    assert "by +1.00 nats per image, and the learned priors change it by +0.50 on" in text


def test_the_figure_of_counts_is_written_where_it_says(counted, divided, tmp_path, monkeypatch):
    train, _, results, fits = divided
    assert counted.shares(fits[counted.DEFAULT], train).sum() == pytest.approx(1.0)
    monkeypatch.chdir(tmp_path)
    path = counted.draw(results, fits, train, n_shown=4)
    assert path == tmp_path.resolve() / "gamma_process_nmf_comparison.png"
    assert path.read_bytes().startswith(b"\x89PNG")
