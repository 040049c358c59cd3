"""The frame of every report: one HTML document with its style inside, tiles, settings."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import natkal


def document(title: str, body: str) -> str:
    """The whole document around its body."""
    style = (files("natkal.report") / "style.css").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: natkal report</title>"
        '<link rel="icon" href="data:,">'
        f"<style>\n{style}</style></head>\n<body><main>\n{body}"
        f'<p class="muted">natkal {natkal.__version__}</p>\n</main></body></html>\n'
    )


def tiles(entries: Sequence[tuple[str, str, str]]) -> str:
    """A number, what it is, and something to compare it with, for each tile."""
    cells = "".join(
        f'<div class="tile"><b>{value}</b><span>{escape(name)}</span><span>{escape(beside)}</span></div>'
        for value, name, beside in entries
    )
    return f'<div class="tiles">{cells}</div>\n'


def settings_table(rows: Sequence[tuple[str, str]], settings: Any) -> str:
    """Some rows, then the fields of the settings that say something."""
    own = [(name.replace("_", " "), _plain(value)) for name, value in vars(settings).items()]
    known = {name for name, _ in rows}
    shown = [*rows, *(row for row in own if row[0] not in known)]
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in shown if value)
    return f"<h2>Settings</h2><figure class=wide><table>{body}</table></figure>\n"


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
