"""Benchmarks by name: one line each, imported when run.

A benchmark is a module with `PARTS` (names of what it measures), `run_part(part, report) -> dict`, where `report(note)`
tells the person watching, and `tables(results) -> [(title, rows, columns)]`, the rows being dictionaries.
"""

BENCHMARKS = {
    "dense": "benchmarks.dense",
    "fleet": "benchmarks.fleet",
    "gpu": "benchmarks.gpu",
    "hostile": "benchmarks.hostile",
    "latency": "benchmarks.latency",
    "curvature": "benchmarks.curvature",
    "frontends": "benchmarks.frontends",
    "learning": "benchmarks.learning",
    "questions": "benchmarks.questions",
    "recurrent": "benchmarks.recurrent",
    "streams": "benchmarks.streams",
}

__all__ = ["BENCHMARKS"]
