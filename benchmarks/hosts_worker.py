"""One process of `python -m benchmarks hosts`: processes, rank, port, parameters, rows, folder, and what to do.

`straight`: learn all rows. `save`: learn half of them, save, learn the others. `load`: go on from what was saved.
Leaves the parameters and, of some rows, the variance of the prediction in the folder; prints seconds per row.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import sync_global_devices

OUTPUTS = 8


def main() -> None:
    processes, rank, port, size, rows = map(int, sys.argv[1:6])
    folder, task = Path(sys.argv[6]), sys.argv[7]
    jax.config.update("jax_enable_x64", True)
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=processes, process_id=rank)
        sync_global_devices("all are here")  # connects all while they are close in time: gloo waits 30 s
    import natkal as nk  # after the processes have found each other

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, size // OUTPUTS))
    targets = rng.normal(size=(rows, OUTPUTS))
    mesh = jax.make_mesh((jax.device_count(),), ("hosts",))
    model = nk.static_model(
        lambda w, u: w.reshape(OUTPUTS, -1) @ u, np.zeros(size), nk.families.Gaussian(np.eye(OUTPUTS))
    )
    learner = nk.online(model, prior_cov=1.0, rates=nk.fading(1e-3), curvature=nk.dense(mesh=mesh))
    half = rows // 2

    def learn(state: Any, part: slice) -> Any:
        return nk.run(learner, state, inputs[part], targets[part], keep="nothing")[0]

    if task == "load":
        state = learn(nk.load(folder / "state", learner), slice(half, rows))
    elif task == "save":
        state = learn(learner.init(), slice(0, half))
        nk.save(folder / "state", learner, state)
        state = learn(state, slice(half, rows))
    else:
        state = learn(learner.init(), slice(0, half))  # compiles
        jax.block_until_ready(state)
        started = time.perf_counter()
        state = learn(state, slice(half, rows))
        jax.block_until_ready(state)
    seconds = (time.perf_counter() - started) / (rows - half) if task == "straight" else float("nan")
    variance = learner.predict(state, inputs[0]).cov
    if rank == 0:
        local = [np.asarray(leaf.addressable_data(0)).ravel() for leaf in (*jax.tree.leaves(state.params), variance)]
        np.save(folder / f"{task}-{processes}.npy", np.concatenate(local))
        print(json.dumps({"seconds": seconds}))


main()
