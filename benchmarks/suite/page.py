"""Reads a page of the suite, from which later pages and the picture of README are made."""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """A table of a page, as the texts of its cells."""

    header: list[str]
    rows: list[list[str]]


def tables(page: str) -> dict[str, list[Table]]:
    """Return the tables of a page in Markdown, by the heading that they stand below."""
    found: dict[str, list[Table]] = {}
    heading, inside = "", False
    for line in page.splitlines():
        begins, inside = not inside, line.startswith("|")
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not inside or line.startswith("|--"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if begins:
            found.setdefault(heading, []).append(Table(cells, []))
        else:
            found[heading][-1].rows.append(cells)
    return found


def rows_of(page: dict[str, list[Table]], heading: str, column: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading that has a column, by their first cells."""
    return {
        row[0]: row
        for table in page.get(heading, [])
        if table.header[0] == "instance" and column in table.header
        for row in table.rows
    }
