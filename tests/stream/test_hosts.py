"""One covariance over several processes: saved by each its own rows, read by any number of processes."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.storage.file import StorageError, read_file, write_file
from natkal.storage.sharded import MANIFEST, is_spread, load_spread, save_spread
from natkal.storage.states import state_arrays

WORKER = Path(__file__).with_name("hosts_worker.py")
pytestmark = pytest.mark.float64


def run(processes: int, folder: Path, save_after: int, curvature: str) -> np.ndarray:
    """The parameters at the end, the same in every process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1 --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, str(WORKER), str(processes)]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(port), str(folder), str(save_after), curvature],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    told = []
    for worker in workers:
        out, errors = worker.communicate(timeout=300)
        assert worker.returncode == 0, errors[-2000:]
        told.append(json.loads(out.splitlines()[-1])["params"])
    assert all(one == told[0] for one in told)
    return np.array([float.fromhex(text) for text in told[0]])


@pytest.mark.slow
@pytest.mark.parametrize(("curvature", "processes"), [("dense", 2), ("blocks", 4), ("kronecker", 4)])
def test_a_run_goes_on_after_a_restart_on_any_number_of_processes(
    curvature: str, processes: int, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    straight = run(processes, folder, 1, curvature)
    np.testing.assert_array_equal(run(processes, folder, 0, curvature), straight)  # bit for bit within a layout
    np.testing.assert_allclose(run(processes // 2, folder, 0, curvature), straight, rtol=1e-12, atol=1e-12)


def test_rows_written_by_several_processes_are_read_as_one_matrix(tmp_path: Path) -> None:
    mesh = jax.make_mesh((1,), ("hosts",), devices=jax.devices()[:1])
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(5), nk.families.Gaussian(1.0))
    learner = nk.online(model, curvature=nk.dense(mesh=mesh))
    state, _ = nk.run(learner, learner.init(), np.eye(5), np.ones(5), keep="nothing")
    assert not is_spread(state)
    path = save_spread(tmp_path / "state", learner, state)
    header, arrays = read_file(path / MANIFEST)
    # as three processes would have left it: runs of two rows each, the last one filled up with zeros
    name = next(name for name, array in arrays.items() if array.shape == (5, 5))
    base = np.concatenate([arrays[name], np.zeros((1, 5))])
    pieces = []
    for rank in range(3):
        part = base[2 * rank : 2 * rank + 2]
        np.save(path / f"rows-2-0-of-{rank}.npy", part)
        digest = hashlib.sha256(np.ascontiguousarray(part)).hexdigest()
        pieces.append([name, 2 * rank, 2 * rank + 2, f"rows-2-0-of-{rank}.npy", digest, [6, 5], "float64"])
    rest = {key: array for key, array in arrays.items() if key != name}
    write_file(path / MANIFEST, {**header, "pieces": pieces}, rest)
    loaded = load_spread(path, learner)
    wanted = state_arrays(state)
    for key, array in state_arrays(loaded).items():
        np.testing.assert_array_equal(array, wanted[key])
    write_file(path / MANIFEST, {**header, "pieces": pieces[:2]}, rest)
    with pytest.raises(StorageError, match="not all there"):
        load_spread(path, learner)
    (path / "rows-2-0-of-1.npy").write_bytes((path / "rows-2-0-of-0.npy").read_bytes())
    write_file(path / MANIFEST, {**header, "pieces": pieces}, rest)
    with pytest.raises(StorageError, match="SHA-256"):
        load_spread(path, learner)
