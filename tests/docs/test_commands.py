"""Every command that a document names exists, with its parts and its options."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from benchmarks import BENCHMARKS
from natkal.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("src/**/*.md"),
    )
    if path.name != "CHANGELOG.md"
)
COMMANDS = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
OWN_OPTIONS = {
    name: {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    for name, command in COMMANDS.items()
}
GENERAL = {"--json", "--minutes", "--help", "--smoke"}
"""Of every benchmark."""


def commands(text: str, program: str) -> list[list[str]]:
    """The words behind each call of a program: in a line of a code block, or in code within a sentence."""
    blocks = "\n".join(re.findall(r"```.*?\n(.*?)```", text, re.S)).replace("\\\n", " ").splitlines()
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))]
    found = []
    for line in (*blocks, *spans):
        for call in re.findall(rf"(?:^|[|;&] |[A-Z]+=\S+ ){re.escape(program)} +(.*)", line.strip()):
            found.append(re.split(r"\s{2,}| #|[|;&<>…]", call)[0].split())
    return [words for words in found if words]


def is_name(word: str) -> bool:
    """Whether a word is meant as it stands, and not as a place for one."""
    return re.fullmatch(r"[a-z][a-z0-9_-]*", word) is not None


def words_of(program: str) -> list[pytest.param]:  # pyright: ignore[reportInvalidTypeForm]
    return [
        pytest.param(words, id=f"{path.relative_to(ROOT)}: {' '.join(words)}")
        for path in PAGES
        for words in commands(path.read_text(), program)
    ]


def test_there_are_commands_to_look_at():
    assert len(words_of("python -m benchmarks")) > 60
    assert len(words_of("natkal")) > 30


@pytest.mark.parametrize("words", words_of("python -m benchmarks"))
def test_of_a_benchmark(words):
    name, *rest = words
    if not is_name(name):
        return
    assert name == "all" or name in BENCHMARKS
    if name == "all":
        return
    module = import_module(BENCHMARKS[name])
    options = {f"--{option}" for option in getattr(module, "OPTIONS", {})} | GENERAL
    values = False
    for word in rest:
        if word.startswith("--"):
            assert word.partition("=")[0] in options
        elif is_name(word) and not values:
            assert word in module.PARTS
        values = word.startswith("--")


@pytest.mark.parametrize("words", words_of("natkal"))
def test_of_natkal(words):
    name, *rest = words
    if not is_name(name):
        return
    assert name in COMMANDS
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= OWN_OPTIONS[name]


@pytest.mark.parametrize("words", words_of("make"))
def test_of_make(words):
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M)
    assert set(filter(is_name, words)) <= set(targets)
