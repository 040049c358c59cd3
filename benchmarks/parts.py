"""Parts of a `natkal bench` as JSON, one line each, where only jax and numpy are installed (a bare GPU machine).

PYTHONPATH=src python benchmarks/parts.py dense step growth
"""

import json
import sys
import time
from importlib import import_module

from natkal.bench import BENCHMARKS

name, *parts = sys.argv[1:]
module = import_module(BENCHMARKS[name])
for part in parts or module.PARTS:
    started = time.perf_counter()
    result = module.run_part(part, lambda note: print(note, file=sys.stderr, flush=True))
    print(json.dumps({"name": name, "part": part, "took_s": time.perf_counter() - started, **result}), flush=True)
