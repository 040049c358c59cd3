"""A chart or a table with its title, key and note."""

from collections.abc import Sequence
from html import escape


def figure(title: str, chart: str, key: Sequence[tuple[str, str]], note: str) -> str:
    """A chart, with what its lines are and what it says."""
    marks = "".join(f'<span><i class="{kind}"></i>{escape(text)}</span>' for kind, text in key)
    legend = f'<div class="key">{marks}</div>' if marks else ""
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    return f"<figure><h3>{escape(title)}</h3>{legend}{chart}{caption}</figure>"


def figures_table(title: str, table: str, note: str) -> str:
    """A table that scrolls sideways where it is too wide."""
    return f'<figure class="wide"><h3>{escape(title)}</h3>{table}<figcaption>{escape(note)}</figcaption></figure>'
