"""Modules that the measurements of several models share."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository, from which commands are run."""

RESULTS = ROOT / "doc" / "results"
"""The folder to which pages are written."""
