"""Compiled programs kept on disk: the same bits without tracing; what is damaged or of another kind is compiled."""

import gc
import json
import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.compiling import policy, programs
from natkal.compiling.policy import compile_loop, compile_quickly, compile_whole
from natkal.compiling.programs import SUFFIX, default_folder, keep_programs_in
from natkal.settings.options import Options
from natkal.tables import table
from natkal.tables.learner.choose import build
from natkal.tables.table import TableLearner, TargetShape


class Theirs(NamedTuple):
    """A class that is not natkal's."""

    value: jax.Array


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NATKAL_CACHE", str(tmp_path))
    keep_programs_in(default_folder())
    yield default_folder()
    keep_programs_in(None)


def counted(traces, name=("walk", 1)):
    """A new function of this name that counts how often it is traced."""
    gc.collect()  # programs of this process are shared as long as somebody has them

    def walk(state, steps, key):
        traces.append(0)
        draw = jax.random.normal(jax.random.fold_in(key, 1), ())
        return jax.lax.scan(lambda x, row: (0.5 * x + row, (jnp.sum(x * row) + draw, None)), state, steps), key

    return compile_loop(walk, donate_argnums=(0,), name=name)


def arguments():
    return jnp.arange(3.0), np.ones((50, 3)) / 7, jax.random.key(3)


def bits(result):
    result = jax.tree.map(
        lambda leaf: jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf, result
    )
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(result)]


def test_a_kept_program_gives_the_same_bits_and_is_not_traced(folder):
    traces = []
    first = counted(traces)(*arguments())
    assert len(traces) == 1
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 1
    again = counted(traces)
    second = again(*arguments())
    assert len(traces) == 1
    assert again.is_one_function
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert bits(first) == bits(second)
    state = jnp.arange(3.0)
    again(state, *arguments()[1:])
    assert state.is_deleted()


def test_the_source_is_that_of_the_start(folder):
    """A program of the natkal that runs is not kept as one of a natkal that was installed meanwhile."""
    programs._surroundings.cache_clear()
    keep_programs_in(folder)
    assert programs._surroundings.cache_info().currsize == 1


def test_a_start_says_once_that_it_compiles(folder):
    said = []
    programs.tell_of_compiling(lambda: said.append(0))
    for name in ("one", "one", "two"):
        counted([], name)(*arguments())
    assert len(said) == 1
    programs.tell_of_compiling(lambda: said.append(0))
    counted([], "one")(*arguments())
    assert len(said) == 1
    counted([], "three")(*arguments())
    assert len(said) == 2


def test_shapes_are_known_without_tracing(folder):
    traces = []
    made = jax.eval_shape(counted(traces).traced, *arguments())
    counted(traces)(*arguments())
    traces.clear()
    assert counted(traces).shapes(*arguments()) == made
    assert not traces


@pytest.mark.parametrize("name", [("walk", 2), ("walk", 1.0), (("walk",), 1)])
def test_another_name_is_another_program(folder, name):
    traces = []
    counted(traces)(*arguments())
    counted(traces, name)(*arguments())
    assert len(traces) == 2


def test_other_shapes_dtypes_source_and_flags_are_other_programs(folder, monkeypatch):
    traces = []
    counted(traces)(*arguments())
    _, steps, key = arguments()
    counted(traces)(jnp.arange(3.0), steps[:7], key)
    counted(traces)(jnp.arange(3.0, dtype=jnp.float32), steps.astype(np.float32), key)
    with monkeypatch.context() as changed:
        changed.setenv("XLA_FLAGS", "--another=1")
        counted(traces)(*arguments())
    with monkeypatch.context() as changed:
        changed.setattr(programs, "_surroundings", lambda: ["another source"])
        counted(traces)(*arguments())
    with jax.numpy_rank_promotion("warn"):
        counted(traces)(*arguments())
    assert len(traces) == 6


@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "link", "not ours"])
def test_what_is_damaged_is_compiled_and_replaced(folder, damage):
    traces = []
    first = counted(traces)(*arguments())
    (path,) = folder.glob(f"*{SUFFIX}")
    whole = path.read_bytes()
    if damage == "link":
        other = path.rename(folder / "elsewhere")
        path.symlink_to(other)
    else:
        changed = bytearray(whole)
        changed[len(whole) // 2] ^= 1
        ours = programs.hashlib.sha256(b"{}\nnothing").hexdigest().encode()
        path.write_bytes(
            {"a bit": bytes(changed), "cut": whole[:-1], "empty": b"", "not ours": ours + b"\n{}\nnothing"}[damage]
        )
    assert bits(counted(traces)(*arguments())) == bits(first)
    assert len(traces) == 2
    counted(traces)(*arguments())
    assert len(traces) == 2
    assert not path.is_symlink()


def test_a_folder_that_others_may_write_is_not_used(folder):
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="this user alone"):
        default_folder()


def test_code_outside_of_the_program_is_not_kept(folder):
    def outside(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for compiled in (compile_loop(outside, name="a"), compile_quickly(outside, name="b"), compile_whole(outside)):
        np.testing.assert_allclose(compiled(jnp.ones(3)), np.sin(np.ones(3)), rtol=1e-6)
    assert not list(folder.glob(f"*{SUFFIX}"))


def test_trees_of_classes_that_are_not_natkals_are_not_kept(folder):
    assert float(compile_loop(lambda x: Theirs(x), name="out")(jnp.ones(())).value) == 1
    assert float(compile_loop(lambda x: x.value, name="in")(Theirs(jnp.ones(())))) == 1
    assert not list(folder.glob(f"*{SUFFIX}"))


def test_the_folder_is_bounded(folder, monkeypatch):
    for name in range(3):
        compile_whole(lambda x: x + 1, name=name)(jnp.ones(3))
    size = sum(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr(programs, "LARGEST", size - 1)
    assert 0 < sum(path.stat().st_size for path in default_folder().iterdir()) <= size // 2


def test_the_command_shows_and_clears_what_is_kept(folder):
    compile_whole(lambda x: x + 1, name="one")(jnp.ones(3))
    (path,) = folder.glob(f"*{SUFFIX}")
    said = json.loads(CliRunner().invoke(app, ["cache", "--json"]).output)
    assert said["files"] == 1
    assert said["bytes"] == path.stat().st_size
    assert CliRunner().invoke(app, ["cache", "--clear"]).exit_code == 0
    assert not path.exists()


TWICE = """
import sys
import jax.numpy as jnp
import natkal as nk
from natkal.compiling.policy import compile_loop
from natkal.compiling.programs import default_folder, keep_programs_in
nk.compilation_cache(sys.argv[2])
keep_programs_in(default_folder())
def walk(x):
    for turn in range(40):
        x = jnp.sin(x @ x.T) + jnp.sum(jnp.arange(7.0) * x[0, 0])
    return x
print(float(compile_loop(walk, name=sys.argv[1])(jnp.ones((3, 3)))[0, 0]), len(list(default_folder().iterdir())))
"""


def test_a_program_that_jaxs_own_cache_knows_is_kept_whole_too(folder, tmp_path):
    """XLA writes an executable that it has read without its kernels: say of an older natkal with the same sums."""
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "1"}
    said = [
        subprocess.run(
            [sys.executable, "-c", TWICE, name, str(tmp_path / "jax")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for name in ("a", "b", "b")
    ]
    assert len({value for value, _ in said}) == 1
    assert [int(count) for _, count in said] == [1, 2, 2]


@pytest.mark.parametrize("task", ["regression", "positive", "count", "binary", "multiclass"])
def test_every_program_of_a_table_is_kept(folder, monkeypatch, task):
    """A table made anew, as in another process, traces nothing and gives the same bits."""
    classes = {"binary": 2, "multiclass": 3}.get(task, 0)
    numbers, targets = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40.0)[:, None] % 2 + 1 - bool(classes)

    def run():
        table._loop.cache_clear()
        build.cache_clear()
        programs._here.clear()
        learner = TableLearner(
            Options(learner="single", model="linear"), [True, True], [TargetShape(task, classes, classes)]
        )
        told = learner.learn(learner.rows(numbers, targets)).wait()
        asked = learner.predict(learner.rows(numbers[:5]))
        return bits((told, asked, learner.state))

    first = run()
    kept = len(list(folder.glob(f"*{SUFFIX}")))
    assert kept == 5  # the first state, three stages, predictions
    monkeypatch.setattr(policy, "compile_ahead", None)
    assert run() == first
