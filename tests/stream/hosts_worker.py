"""Run by `test_hosts.py` in processes of their own: a learner whose covariance is spread over all of them.

Arguments: processes, this process's number, the port of the first one, a folder, the rows to save after (0: load what
the folder has instead), and the curvature. Prints one JSON object: the parameters as text, to the last bit.
"""

import functools
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import sync_global_devices

processes, rank, port, folder, save_after, kind = (int(a) if a.isdigit() else a for a in sys.argv[1:])
jax.config.update("jax_enable_x64", True)
if processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=processes, process_id=rank)
    sync_global_devices("all are here")  # connects all while they are close in time: gloo waits 30 s

import natkal as nk  # noqa: E402  (after the processes have found each other)

SIZE, ROWS, HALF, GAUSSIAN = 37, 90, 50, nk.families.Gaussian(1.0)
rng = np.random.default_rng(0)
inputs, targets = rng.normal(size=(ROWS, SIZE)), rng.normal(size=ROWS)
mesh = jax.make_mesh((jax.device_count(),), ("hosts",))
if kind == "dense":
    model = nk.static_model(lambda w, u: w @ u, np.zeros(SIZE), GAUSSIAN)
else:
    shapes = [(SIZE, 3), (3, 2), (2, 4), (4, 1)]
    weights = [rng.normal(size=shape) / np.sqrt(shape[0]) for shape in shapes]
    model = nk.static_model(lambda ws, u: functools.reduce(lambda u, w: jnp.tanh(u @ w), ws, u)[0], weights, GAUSSIAN)
curvature = {"dense": nk.dense, "blocks": nk.blocks, "kronecker": nk.kronecker}[str(kind)](mesh=mesh)
learner = nk.online(model, prior_cov=1.0, rates=nk.fading(0.01), curvature=curvature)
path = Path(str(folder))
if save_after:
    state, _ = nk.run(learner, learner.init(), inputs[:HALF], targets[:HALF], keep="nothing")
    nk.save(path, learner, state)
else:
    state = nk.load(path, learner)
state, info = nk.run(learner, state, inputs[HALF:], targets[HALF:], keep="log_prob")
params = np.concatenate([np.ravel(leaf.addressable_data(0)) for leaf in jax.tree.leaves(state.params)])
print(json.dumps({"devices": jax.device_count(), "params": [float(x).hex() for x in params]}))
