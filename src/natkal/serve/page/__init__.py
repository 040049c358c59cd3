"""The live page: one HTML document with its style and its script inside, which needs nothing else."""

import functools
from importlib.resources import files


@functools.cache
def page() -> str:
    """The document. Its style begins with that of the report."""
    style = (files("natkal.report") / "style.css").read_text()
    own = files("natkal.serve.page")
    text = (own / "page.html").read_text(encoding="utf-8")
    return text.replace("/*style*/", style + (own / "page.css").read_text()).replace(
        "/*script*/", (own / "page.js").read_text(encoding="utf-8")
    )
