"""Run the code blocks of pages and notebooks: `python tests/docs/run_pages.py README.md docs` (rules: README here)."""

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[^>]+) -->\n+)?"
    r"^(?P<indent> *)```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One fenced block: what it is, the module it needs, and where it starts."""

    kind: str
    code: str
    needs: str | None
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The blocks that run, in order; of a notebook, its code."""
    text, found = page.read_text(), []
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        return [Block("python", "".join(cell["source"]), None, number) for number, cell in enumerate(cells, 1)]
    for match in BLOCK.finditer(text):
        if match["kind"] in ("python", "sh"):
            code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.M)
            found.append(Block(match["kind"], code, match["needs"], text.count("\n", 0, match.start("code")) + 1))
    return found


def found_in(folder: Path) -> list[Path]:
    """The pages and notebooks of a folder."""
    return sorted(page for page in folder.rglob("*") if page.suffix in (".md", ".ipynb"))


def run_page(page: Path) -> None:
    """All blocks of one page; the first that fails raises."""
    namespace: dict = {"__name__": "__page__"}
    page = page.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in blocks_of(page):
            where = f"{page.name}, line {block.line}"
            absent = [name for name in (block.needs or "").split() if not _importable(name)]
            if absent:
                print(f"     skipped {where}: needs {', '.join(absent)}")
            elif block.kind == "sh":
                subprocess.run(["bash", "-euo", "pipefail", "-c", block.code], check=True, stdout=subprocess.DEVNULL)
            elif ">>>" in block.code:
                _doctest(block.code, namespace, where, block.line)
            else:
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
        os.chdir("/")


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _doctest(code: str, namespace: dict, where: str, line: int) -> None:
    test = doctest.DocTestParser().get_doctest(code, namespace, where, where, line - 1)
    test.globs = namespace  # one namespace for the page, not a copy
    failed, _ = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    if failed:
        raise SystemExit(f"{where}: {failed} examples gave another answer")


def _in_own_process(page: Path) -> bool:
    """Run one page as a reader would; says how it went."""
    paths = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    started = time.perf_counter()
    command = [sys.executable, __file__, "--one", str(page)]
    run = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True)
    print(f"{'ok  ' if run.returncode == 0 else 'FAIL'} {page}  {time.perf_counter() - started:.0f} s", flush=True)
    print(run.stdout + (run.stderr if run.returncode else ""), end="", flush=True)
    return run.returncode == 0


def main(arguments: list[str]) -> int:
    """Pages and folders of pages, two at a time."""
    if arguments[:1] == ["--one"]:
        run_page(Path(arguments[1]))
        return 0
    named = [Path(argument) for argument in arguments]
    pages = [page for path in named for page in (found_in(path) if path.is_dir() else [path])]
    pages = [page for page in pages if blocks_of(page)]
    with ThreadPoolExecutor(int(os.environ.get("WORKERS", "2"))) as pool:
        good = list(pool.map(_in_own_process, pages))
    print(f"{sum(good)} of {len(good)} pages run")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
