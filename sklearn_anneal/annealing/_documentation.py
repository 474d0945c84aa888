"""Links from the HTML representation of estimators and methods to their documentation."""

from __future__ import annotations


class LinkedDocumentation:
    """Mixin of public classes: scikit-learn's HTML representation shows a link to their page."""

    _doc_link_module = "sklearn_anneal"
    _doc_link_template = "https://sklearn-anneal.github.io/sklearn-anneal/generated/{page}.html"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        cls = type(self)
        room = "annealing." if cls.__module__.startswith("sklearn_anneal.annealing") else ""
        return {"page": f"sklearn_anneal.{room}{cls.__name__}"}
