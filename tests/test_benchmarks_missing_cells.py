"""The page on missing cells has every section, and methods that impute what is missing."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("benchmarks_importable")


def test_a_quick_run_writes_every_section(no_data, tmp_path):
    from benchmarks import missing_cells

    page = tmp_path / "page.md"
    missing_cells.main(["--quick", "--write", "--output", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in ("Errors of imputed cells", "Standard deviations", "Time of a pass", "A quick run"):
        assert part in text
    assert not re.search(r"\bnan\b", text)


def test_every_method_keeps_what_is_observed(rng):
    from benchmarks import missing_cells

    X = rng.normal(size=(40, 3))
    Y = missing_cells.deleted(X, 0.3, seed=1)
    missing = np.isnan(Y)
    assert 0.2 < missing.mean() < 0.4
    for impute in missing_cells.imputers(quick=True).values():
        found = impute(Y)
        np.testing.assert_array_equal(found[~missing], X[~missing])
        assert 0.3 < missing_cells.error(found, X, missing) < 2.0
