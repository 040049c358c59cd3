"""Benchmarks by name: one line each, imported when run.

A benchmark is a module with `PARTS` (names of what it measures), `run_part(part, report, **options) -> dict`, where
`report(note)` tells the person watching, and `tables(results) -> [(title, rows, columns)]`, the rows being
dictionaries. `OPTIONS`, where it has any, maps an option to its default and a sentence. A part whose dictionary has
`passed` False makes the command exit with 1.
"""

BENCHMARKS = {
    "adapt": "benchmarks.adapt",
    "classes": "benchmarks.classes",
    "bandits": "benchmarks.bandits",
    "curvature": "benchmarks.curvature",
    "dead": "benchmarks.dead",
    "dense": "benchmarks.dense",
    "figures": "benchmarks.figures",
    "fleet": "benchmarks.fleet",
    "forecasts": "benchmarks.forecasts",
    "frontends": "benchmarks.frontends",
    "gpu": "benchmarks.gpu",
    "hostile": "benchmarks.hostile",
    "hosts": "benchmarks.hosts",
    "kafka": "benchmarks.kafka",
    "kills": "benchmarks.kills",
    "latency": "benchmarks.latency",
    "learning": "benchmarks.learning",
    "pooling": "benchmarks.pooling",
    "questions": "benchmarks.questions",
    "rate": "benchmarks.rate",
    "ray": "benchmarks.ray_fleets",
    "recurrent": "benchmarks.recurrent",
    "same": "benchmarks.same",
    "serve": "benchmarks.serve",
    "soak": "benchmarks.soak",
    "step-control": "benchmarks.step_control",
    "streams": "benchmarks.streams",
}

SMALL = ("dead", "fleet", "gpu", "pooling", "soak", "step-control")
"""Those that have a small size, for `--smoke`."""

__all__ = ["BENCHMARKS", "SMALL"]
