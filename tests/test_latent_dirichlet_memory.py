"""Tests of the memory that fits of topics take."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from cases_latent_dirichlet import ROOT, draw_corpus, small


def test_nothing_of_the_size_of_the_corpus_stays(rng):
    X = draw_corpus(rng, n_documents=2000, n_words=30, length=5)
    for params in (
        {},
        {"annealing": "deterministic"},
        {"annealing": "stochastic"},
        {"annealing": "local_tempering"},
        {"annealing": "svi_plus"},
        {"learning_method": "online"},
    ):
        lda = small(4, max_iter=2, **params)
        if params.get("annealing"):
            lda.set_params(annealing__n_passes=2)
        size = len(pickle.dumps(lda.fit(X)))
        # γ alone would be 64 kB, one number per document 16 kB.
        assert size < 14_000, f"{params}: {size} bytes"


MEASURE = """
import json, sys, threading, warnings
import numpy as np
from scipy.sparse import csr_matrix
from benchmarks.common.memory import Sampler, anonymous_megabytes
from sklearn_anneal import AnnealedLatentDirichletAllocation as LDA

warnings.simplefilter("ignore")

def measured(options):
    n, v, k = options["documents"], options["words"], options["topics"]
    # Every document has one word of each of some parts of the vocabulary.
    rng, m = np.random.default_rng(0), options["length"]
    words = np.arange(m) * (v // m) + rng.integers(v // m, size=(n, m))
    counts = rng.integers(1, 4, size=words.size).astype(options["dtype"])
    X = csr_matrix((counts, words.astype(np.int32).ravel(), np.arange(0, m * n + 1, m)), (n, v))
    del words, counts
    params = {"annealing": options["annealing"], "max_iter": 2}
    params |= {"max_doc_update_iter": 3, "batch_size": 1000}
    if options["annealing"] != "none":
        params["annealing"] = LDA(annealing=options["annealing"]).set_params(
            annealing__n_passes=2
        ).annealing
    if options["annealing"] == "deterministic":
        params["effort"] = 1  # as many as are needed for what a reheat keeps to be in memory
    # Kernels and what libraries load when first used are not the fit's.
    LDA(2, **params).fit(X[:200, :50])
    lda = LDA(k, **params)
    before = anonymous_megabytes()
    with Sampler() as sampler:
        if options["stream"]:
            for begin in range(0, n, 1000):
                lda.partial_fit(X[begin : begin + 1000])
        else:
            lda.fit(X)
    sizes = [X.data.nbytes + X.indices.nbytes + X.indptr.nbytes, 8 * v * k, 8 * n * k]
    return [sampler.peak - before, *(size / 1e6 for size in sizes)]

print(json.dumps([measured(options) for options in json.loads(sys.argv[1])]))
"""


def growth(*tasks):
    """Growth of the anonymous memory of fits in another process, once the X of each is there.

    Each is followed by the sizes of X, of one (V, K) and of one (D, K) float64 array, all in MB.
    """
    if not (ROOT / "benchmarks").exists():
        pytest.skip("the benchmarks are in the repository only")
    status = Path("/proc/self/status")
    if not status.exists() or "RssAnon" not in status.read_text():
        pytest.skip("the system does not tell the anonymous memory of a process")
    defaults = {"documents": 10_000, "length": 10, "words": 10_000, "topics": 40, "stream": False}
    defaults |= {"annealing": "none", "dtype": "float64"}
    options = json.dumps([defaults | task for task in tasks])
    # glibc's allocator decides from the history of the process whether it returns a large array to
    # the system at once. Here it always does.
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, options],
        cwd=ROOT,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_small(found, topics, proportions):
    """Besides X, one (V, K) and one (D, K) float64 array and 40 MB; one of tokens × K has 32."""
    assert found < topics + proportions + 40, (
        f"the fit took {found:.0f} MB besides X; one (V, K) array has {topics:.0f} MB, one (D, K) "
        f"array {proportions:.0f} MB"
    )


@pytest.mark.slow
def test_memory_of_a_batch_fit_and_of_a_stream():
    """The batch fit has reheats; the stream has no array of all documents."""
    stream = {"stream": True, "documents": 32_000, "length": 3, "words": 2_000, "topics": 120}
    (found, _, topics, proportions), of_stream = growth({"annealing": "deterministic"}, stream)
    assert_small(found, topics, proportions)
    found, _, topics, proportions = of_stream
    assert proportions > 30
    assert found < topics + 24, (found, topics)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("annealing", "dtype"),
    [
        ("stochastic", "float32"),
        *product(("none", "local_tempering"), ("float64", "float32")),
    ],
)
def test_memory_of_a_batch_fit(annealing, dtype):
    ((found, _, topics, proportions),) = growth({"annealing": annealing, "dtype": dtype})
    assert_small(found, topics, proportions)


@pytest.mark.exhaustive
def test_memory_of_a_batch_fit_of_many_topics():
    """λ, its table of exponentials, a sum of statistics and a part of it are alive at once."""
    ((found, _, topics, proportions),) = growth({"topics": 200})
    assert found < 4 * topics + proportions + 40, (found, topics, proportions)
