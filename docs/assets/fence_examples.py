"""Docstrings as the site shows them: Markdown would take a `>>>` example for a quotation; it is a block of code."""

import griffe


class FenceExamples(griffe.Extension):
    """Puts a fence around every run of lines that starts with `>>>`, up to the next blank line."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of each module, class and function once it is loaded."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its examples in fences."""
    lines, inside = [], False
    for line in [*text.splitlines(), ""]:
        starts = line.lstrip().startswith(">>>") and not inside
        if starts:
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines).rstrip()
