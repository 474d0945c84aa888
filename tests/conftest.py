"""Fixtures that all tests share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng():
    """A generator of the test's own, the same in every run."""
    return np.random.default_rng(0)
