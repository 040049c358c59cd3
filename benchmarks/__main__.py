"""`python -m benchmarks NAME [PART ...] [--json]`, from a checkout: figures of the documents, measured here and now."""

import argparse
import json
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks import BENCHMARKS, SMALL
from benchmarks.every import every
from benchmarks.size import VARIABLE


def main() -> None:
    """Run a benchmark. Rivals get their best setting in hindsight; rows where natkal loses are kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=main.__doc__)
    parser.add_argument("name", choices=[*sorted(BENCHMARKS), "all"])
    parser.add_argument("part", nargs="*", help="only these parts of it (default: all)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON line for each part, no table")
    parser.add_argument("--minutes", type=float, default=None, help="stop, with exit code 1, after so many minutes")
    parser.add_argument("--smoke", action="store_true", help=f"at a tiny size, to see that it runs: {', '.join(SMALL)}")
    if "--smoke" in sys.argv[1:]:
        os.environ[VARIABLE] = "1"  # sizes are decided when a benchmark is imported
    name = next((word for word in sys.argv[1:] if word in BENCHMARKS), None)
    if name is None and "all" in sys.argv[1:]:
        whole(parser.parse_args(), parser)
    if name is None:
        parser.parse_args()  # says what is wrong, or helps
        return
    try:
        module = import_module(BENCHMARKS[name])
    except ModuleNotFoundError as error:
        parser.error(f"{name} needs {error.name!r}: pip install 'natkal[bench]'")
    parser.epilog = f"parts of {name}: {', '.join(module.PARTS)}"
    options = getattr(module, "OPTIONS", {})
    for option, (default, words) in options.items():
        parser.add_argument(f"--{option}", type=type(default), default=default, help=f"{words} (default: {default!r})")
    given = parser.parse_args()
    for part in given.part:
        if part not in module.PARTS:
            parser.error(f"{given.name} has no part {part!r}; it has: {', '.join(module.PARTS)}")
    if given.smoke and given.name not in SMALL:
        parser.error(f"--smoke: {given.name} has no small size; these have: {', '.join(SMALL)}")
    chosen = {option: getattr(given, option) for option in options}
    if given.minutes is not None:
        stop_after(given.minutes)
    results: dict[str, Any] = {}
    for part in given.part or module.PARTS:
        started = time.perf_counter()
        results[part] = module.run_part(part, lambda note: print(note, file=sys.stderr, flush=True), **chosen)
        if given.as_json:
            line = {"name": given.name, "part": part, "took_s": time.perf_counter() - started, **results[part]}
            print(json.dumps(line), flush=True)
    if not given.as_json:
        for title, rows, columns in module.tables(results):
            print_table(title, rows, columns)
    sys.exit(any(result.get("passed") is False for result in results.values()))


def whole(given: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Every benchmark that has a small size, at that size."""
    if not given.smoke or given.part:
        parser.error("all: is for --smoke, and takes no parts")
    rows = every()
    print_table("every part at a tiny size", rows, ("name", "part", "seconds", "wrong"))
    print(f"\nno small size yet: {', '.join(name for name in BENCHMARKS if name not in SMALL)}")
    sys.exit(any(row["wrong"] for row in rows))


def stop_after(minutes: float) -> None:
    """End this process in so many minutes, and with it what the benchmark has started."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(f"stopped after {minutes:g} minutes, before the end")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)


def print_table(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """Plain columns, so that a machine with only jax and numpy can print them."""
    cells = [[name.replace("_", " ") for name in columns]]
    cells += [
        [f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in columns] for row in rows
    ]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


main()
