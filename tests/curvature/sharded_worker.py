"""Run by `test_sharded.py` in processes of their own: a learner whose matrix is spread over a mesh, and the same alone.

Arguments: processes, this process's number, the port of the first one. Prints one JSON object.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

processes, rank, port = map(int, sys.argv[1:])
jax.config.update("jax_enable_x64", True)
if processes > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=processes, process_id=rank)

from natkal.curvature import Prior, Response, dense  # noqa: E402  (after the processes have found each other)

SIZE, ROWS, STEPS = 45, 3, 25


def moved_bytes(compiled: str) -> int:
    """Bytes that collectives of a compiled module produce; any kind of collective counts."""
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
    total = 0
    for shape in re.findall(rf"= (.*?) (?:{kinds})(?:-start)?\(", compiled):
        for kind, sides in re.findall(r"([a-z]\d+)\[([\d,]*)\]", shape):
            total += int(kind[1:]) // 8 * int(np.prod([int(side) for side in sides.split(",") if side]))
    return total


def learn(curvature, rng):
    """The covariance after some observations, and the compiled step."""
    state = curvature.init(Prior(cov=jnp.ones(SIZE), kept=None, layout=(("w", (SIZE,)),)))

    @jax.jit
    def step(state, rows, factor):
        said = Response(factor, jnp.ones(ROWS))
        update = curvature.update(state, rows, lambda gram: said, jnp.asarray(0.9))
        return update.state, update.step

    compiled = ""
    for _ in range(STEPS):
        rows, factor = rng.normal(size=(ROWS, SIZE)), rng.normal(size=(ROWS, ROWS))
        compiled = compiled or step.lower(state, rows, factor).compile().as_text()
        state, moved = step(state, rows, factor)
    dense_cov = jax.jit(curvature.to_dense, out_shardings=replicated)(state) if curvature.mesh else state.cov
    return np.asarray(dense_cov.addressable_data(0)), np.asarray(moved.addressable_data(0)), compiled, state


mesh = jax.make_mesh((jax.device_count(),), ("devices",))
replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
cov, moved, compiled, state = learn(dense(mesh=mesh), np.random.default_rng(0))
if processes == 1:
    alone_cov, alone_moved, _, _ = learn(dense(kernel="immediate"), np.random.default_rng(0))
else:  # arrays of one process do not mix with those of all: the reference is NumPy's
    alone_cov, rng = np.eye(SIZE), np.random.default_rng(0)
    for _ in range(STEPS):
        rows, factor = rng.normal(size=(ROWS, SIZE)), rng.normal(size=(ROWS, ROWS))
        root = rows.T @ factor
        alone_cov = np.linalg.inv(0.9 * np.linalg.inv(alone_cov) + root @ root.T)
        alone_moved = alone_cov @ rows.T @ np.ones(ROWS)
shard = state.cov.base.addressable_shards[0].data.shape
print(
    json.dumps(
        {
            "devices": jax.device_count(),
            "shard": shard,
            "cov": float(np.abs(cov - alone_cov).max() / np.abs(alone_cov).max()),
            "step": float(np.abs(moved - alone_moved).max() / np.abs(alone_moved).max()),
            "moved_bytes": moved_bytes(compiled),
            "needed_bytes": 8 * (ROWS + 1) * shard[0] * jax.device_count(),  # the rows, and the bound on the variances
        }
    )
)
