"""Benchmarks by name: one line each, imported when run.

A benchmark is a module with `PARTS` (names of what it measures), `run_part(part, report) -> dict`, where `report(note)`
tells the person watching, and `tables(results) -> [(title, rows, columns)]`, the rows being dictionaries.
"""

BENCHMARKS = {
    "dense": "natkal.bench.dense",
    "fleet": "natkal.bench.fleet",
    "gpu": "natkal.bench.gpu",
    "latency": "natkal.bench.latency",
    "curvature": "natkal.bench.curvature",
    "frontends": "natkal.bench.frontends",
    "learning": "natkal.bench.learning",
    "questions": "natkal.bench.questions",
    "recurrent": "natkal.bench.recurrent",
}

__all__ = ["BENCHMARKS"]
