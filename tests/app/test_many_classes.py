"""Targets with many classes: a run ends, and one row costs no more than classes squared."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from natkal.compiling.policy import primitives
from natkal.tables.learner.choose import MANY_CLASSES


def classes_csv(path: Path, classes: int, rows: int) -> Path:
    """One centre for each class; the last tenth of the classes first appears in the last rows."""
    rng = np.random.default_rng(0)
    late = classes - classes // 10
    targets = np.concatenate([np.arange(late), rng.integers(0, late, rows), np.arange(late, classes)])
    inputs = rng.normal(size=(classes, 3))[targets] + 0.3 * rng.normal(size=(len(targets), 3))
    lines = [f"{a:.4f},{b:.4f},{c:.4f},class {y}" for (a, b, c), y in zip(inputs, targets, strict=True)]
    path.write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    return path


def infinite_parquet(path: Path) -> Path:
    """300 rows of two columns, the first target infinite."""
    rng = np.random.default_rng(0)
    targets = rng.normal(size=300)
    targets[0] = np.inf
    pq.write_table(pa.table({"a": rng.normal(size=300), "y": targets}), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["120 classes", "1000 classes", "an infinite target"])
def test_a_run_ends(kind: str, tmp_path: Path) -> None:
    """In a process of its own with two threads, where batched LAPACK calls used to wait for each other for ever."""
    if kind == "an infinite target":
        data, rows = infinite_parquet(tmp_path / "d.parquet"), 300
    else:
        classes = int(kind.split()[0])
        data = classes_csv(tmp_path / "d.csv", classes, 60)
        rows = classes + 60
    environment = {name: value for name, value in os.environ.items() if name not in ("NPROC", "XLA_FLAGS")}
    command = [sys.executable, "-m", "natkal", "learn", str(data), "--target", "y", "--run", str(tmp_path / "run")]
    # the types are found out before the late classes come
    command += ["--no-report", "--json", "--sample", "60"]
    command += [] if kind == "an infinite target" else ["--task", "multiclass"]  # every one of the first rows differs
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=environment)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["rows"]
    assert counts["read"] == rows
    assert counts["rejected"] == (kind == "an infinite target")


def test_no_matrix_of_classes_by_classes_is_multiplied_by_another() -> None:
    """The products of one row: with K classes none costs K^3, so the cost of a row does not grow with it."""
    import jax

    from natkal.settings.options import Options
    from natkal.tables.table import TableLearner, TargetShape

    classes = 2 * MANY_CLASSES
    learner = TableLearner(
        Options(learner="single", model="mlp:4"), [True], [TargetShape("multiclass", classes, classes)]
    )
    row = learner.rows(np.zeros((1, 1)), np.zeros((1, 1)))
    with jax.enable_x64(True):
        one = jax.tree.map(lambda leaf: leaf[0], learner.loop.arranged(row))
        jaxpr = jax.make_jaxpr(lambda state: learner.loop._learn(state, one))(learner.state).jaxpr
    assert "dot_general" in set(primitives(jaxpr))
    assert max(products(jaxpr)) < classes**3 / 4


def products(jaxpr):
    """Multiplications of each matrix product of a program, also of those inside others."""
    import jax

    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            left = equation.invars[0].aval.shape
            (contracted, _), _ = equation.params["dimension_numbers"]
            yield int(np.prod(equation.outvars[0].aval.shape) * np.prod([left[axis] for axis in contracted]))
        for value in jax.tree.leaves(tuple(equation.params.values())):
            inner = getattr(value, "jaxpr", value if hasattr(value, "eqns") else None)
            if inner is not None:
                yield from products(inner)
