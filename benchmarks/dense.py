"""`python -m benchmarks dense`: a step of the dense filter against one read of its matrix, the textbook and peers.

One step is the Jacobian of a tanh network, the update of its parameters and of P. All times of a row are from one run,
interleaved. The textbook is `P - K S K'` in a `lax.scan`, as peers and tutorials write it.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks import peers
from benchmarks.timing import Held, floor, interleaved, one_read
from natkal.compiling.policy import compile_loop
from natkal.models import ravel

PARTS = ("step", "growth", "peers", "large")
Report = Callable[[str], None]

INPUTS = 10
# (hidden units, outputs, dtype): about 200, 1,000, 3,000 and 6,000 parameters.
CASES = (
    (17, 1, "float32"),
    (83, 1, "float64"),
    (48, 10, "float64"),
    (48, 10, "float32"),
    (143, 10, "float32"),
    (500, 1, "float32"),
    (286, 10, "float32"),
)
CURVATURES = (nk.dense(), nk.dense(kernel="jax"), nk.square_root())
"""What nk.dense() takes by itself, the best without a compiler, and the square root, which has two reads to do."""


def make_model(hidden: int, outputs: int, dtype: str) -> Any:
    """A network with one hidden layer: a regression for one output, a classifier for more."""
    family = nk.families.Gaussian(1.0) if outputs == 1 else nk.families.Categorical(outputs, minimal=False)
    params = nk.mlp_params(jax.random.key(0), (INPUTS, hidden, outputs))
    return nk.static_model(nk.mlp_apply, jax.tree.map(lambda leaf: leaf.astype(dtype), params), family)


def rows_for(model: Any, steps: int, dtype: str) -> tuple[jax.Array, jax.Array]:
    """Random inputs, and a target of zero."""
    inputs = jax.random.normal(jax.random.key(1), (steps, INPUTS), dtype)
    return inputs, jnp.zeros(steps, dtype if model.outputs.raw_dim == 1 else int)


def scanned(learner: nk.Learner) -> Callable[..., Any]:
    """All rows in one scan."""
    return lambda state, inputs, targets: jax.lax.scan(
        lambda state, row: (learner.step(state, *row)[0], None), state, (inputs, targets)
    )[0]


def textbook(model: Any) -> Callable[..., Any]:
    """S = H P H' + R, K = P H' S^-1, P <- P - K S K', with H = d mean / d theta."""
    outputs = model.outputs

    def step(state: tuple[Any, Any], row: tuple[Any, Any]) -> tuple[tuple[Any, Any], None]:
        theta, P = state
        inputs, target = row

        def mean(theta: Any) -> Any:
            return model.mean(model.unravel(theta), inputs)

        H, expected = jax.jacrev(mean)(theta), mean(theta)
        R = outputs.cov(model.natural(model.unravel(theta), inputs)) + 1e-6 * jnp.eye(len(expected), dtype=P.dtype)
        S = H @ P @ H.T + R
        K = jnp.linalg.solve(S, H @ P).T
        error = outputs.sufficient_statistic(target) - expected
        return (theta + K @ error, P - K @ S @ K.T), None

    return lambda state, inputs, targets: jax.lax.scan(step, state, (inputs, targets))[0]


def measure(hidden: int, outputs: int, dtype: str, *, rounds: int = 7, seconds: float = 0.15) -> list[dict[str, Any]]:
    """One row for each kernel."""
    with jax.enable_x64(dtype == "float64"):
        model = make_model(hidden, outputs, dtype)
        size, itemsize = model.size, np.dtype(dtype).itemsize
        # Enough steps to fold several times and to outlast the clock, at roughly 10 GB/s.
        steps = max(13, min(512, int(seconds / (size**2 * itemsize / 1e10))))
        inputs, targets = rows_for(model, steps, dtype)
        runs: dict[str, Held] = {}
        for curvature in CURVATURES:
            learner = nk.online(model, prior_cov=0.1, rates=nk.fading(1e-3), curvature=curvature)
            label = "square root" if curvature is CURVATURES[-1] else curvature.kernel_for(size).name
            if label not in runs:
                runs[label] = Held(scanned(learner), _own(learner.init(model.params)), inputs, targets)
        start = (ravel(model.params), 0.1 * jnp.eye(size, dtype=dtype))
        few = max(3, steps // 16) if size > 2_000 else steps
        runs["textbook"] = Held(textbook(model), start, inputs[:few], targets[:few])
        matrix = jnp.ones((size, size), dtype)
        times = interleaved({**one_read(matrix), **runs}, rounds)
        per_step = {name: times[name] / (few if name == "textbook" else steps) for name in runs}
        return [
            {
                "parameters": size,
                "outputs": outputs,
                "dtype": dtype,
                "kernel": name,
                "step_us": 1e6 * per_step[name],
                "floor_us": 1e6 * floor(times),
                "ratio_to_floor": per_step[name] / floor(times),
                "textbook_ratio": per_step["textbook"] / per_step[name],
                "compile_s": runs[name].compiled_in,
                "state_of_P": _bytes(runs[name].state) / (size**2 * itemsize),
                "temporary_of_P": runs[name].temporary_bytes() / (size**2 * itemsize),
            }
            for name in runs
            if name != "textbook"
        ]


def growth(report: Report, sizes: tuple[int, ...] = (17, 40, 83, 166, 333, 500)) -> dict[str, Any]:
    """Time per step of the default kernel against p, one output, float32; and the exponent above the cache."""
    rows = []
    for hidden in sizes:
        report(f"growth: {hidden} hidden units")
        rows.append(measure(hidden, 1, "float32", rounds=5)[0])
    large = [row for row in rows if row["parameters"] >= 1_900]
    logs = np.log([[row["parameters"], row["step_us"]] for row in large])
    return {"rows": rows, "exponent": float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])}


def compare(report: Report, hidden: tuple[int, ...] = (17, 83, 250, 500)) -> dict[str, Any]:
    """Peers that are installed on the same network and rows, one output, float32; and on a linear regression."""
    rows = []
    for units in hidden:
        model = make_model(units, 1, "float32")
        # Peers take seconds for a row of a large network; natkal needs many rows to outlast the clock and to fold.
        # At least two: of a single row the compiler leaves out the covariance, which nothing reads afterwards.
        inputs, targets = map(np.asarray, rows_for(model, max(2, min(50, 5_000 // model.size)), "float32"))
        makers = {name: peer.make for name, peer in peers.PEERS.items() if model.size <= peer.most}
        rivals = {}
        for name, make in makers.items():
            try:
                rivals[name] = make(model, inputs, targets)
            except ImportError as missing:
                report(f"peers: {name} is left out, {missing}")
        report(f"peers: {model.size} parameters, {', '.join(rivals)}")
        many = rows_for(model, max(128, 400_000 // model.size), "float32")
        rows += against(model, rivals, len(targets), *many, rounds=5 if model.size < 2_000 else 1)
    if hidden[0] <= 17:
        rows += compare_linear(report)
    return {"rows": rows}


def compare_linear(report: Report, size: int = 200, steps: int = 2_000) -> list[dict[str, Any]]:
    """A linear regression with many weights, for which river too keeps a full covariance."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(size), nk.families.Gaussian(1.0))
    inputs = jax.random.normal(jax.random.key(1), (steps, size))
    targets = inputs[:, 0]
    report(f"peers: linear regression with {size} weights")
    try:
        rivals = {"river": peers.river(np.asarray(inputs), np.asarray(targets))}
    except ImportError as missing:
        report(f"peers: river is left out, {missing}")
        return []
    found = against(model, rivals, steps, inputs, targets, rounds=5)
    return [{**row, "method": f"{row['method']}, linear"} for row in found]


def against(
    model: Any, rivals: dict[str, Callable[[], Any]], steps: int, inputs: jax.Array, targets: jax.Array, rounds: int
) -> list[dict[str, Any]]:
    """Time per step of each, in turn: `rivals` take `steps` rows a call, natkal all of these."""
    learner = nk.online(model, prior_cov=peers.PRIOR_VARIANCE)
    advance, held = compile_loop(scanned(learner), donate_argnums=(0,)), [_own(learner.init(model.params))]

    def ours() -> Any:
        """As `nk.run` compiles it."""
        held[0] = advance(held[0], inputs, targets)
        return held[0]

    times = interleaved({"natkal": ours, **rivals}, rounds)
    per_step = {name: seconds / (len(targets) if name == "natkal" else steps) for name, seconds in times.items()}
    return [
        {
            "parameters": model.size,
            "method": name,
            "step_us": 1e6 * seconds,
            "ratio_to_natkal": seconds / per_step["natkal"],
        }
        for name, seconds in per_step.items()
    ]


def large(report: Report, size: int = 15_000, dtype: str = "float64", steps: int = 6) -> dict[str, Any]:
    """A regression with many weights: the process's peak memory against P in full."""
    import resource

    with jax.enable_x64(dtype == "float64"):
        model = nk.static_model(lambda w, u: w @ u, jnp.zeros(size, dtype), nk.families.Gaussian(1.0))
        inputs = jax.random.normal(jax.random.key(1), (steps, size), dtype)
        learner = nk.online(model, prior_cov=0.1, rates=nk.fading(1e-3))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        report(f"large: {size:,} parameters, {dtype}")
        run = Held(scanned(learner), _own(learner.init(model.params)), inputs, jnp.ones(steps, dtype))
        times = interleaved({"step": run}, rounds=2)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        matrix = size**2 * np.dtype(dtype).itemsize
        return {
            "rows": [
                {
                    "parameters": size,
                    "dtype": dtype,
                    "kernel": learner.curvature.kernel_for(size).name,  # pyright: ignore[reportAttributeAccessIssue]
                    "step_ms": 1e3 * times["step"] / steps,
                    "P_GB": matrix / 1e9,
                    "peak_of_P": (peak - before) / matrix,
                }
            ]
        }


def run_part(part: str, report: Report) -> dict[str, Any]:
    """One part's numbers."""
    match part:
        case "growth":
            return growth(report)
        case "peers":
            return compare(report)
        case "large":
            return large(report)
        case _:
            rows = []
            for hidden, outputs, dtype in CASES:
                report(f"step: {hidden} hidden units, {outputs} outputs, {dtype}")
                rows += measure(hidden, outputs, dtype)
            return {"rows": rows}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    costs = ("parameters", "outputs", "dtype", "kernel", "step_us", "floor_us", "ratio_to_floor", "textbook_ratio")
    found = []
    if "step" in results:
        columns = (*costs, "compile_s", "state_of_P", "temporary_of_P")
        found.append(("A step against one read of P", results["step"]["rows"], columns))
    if "growth" in results:
        title = f"Growth with p; from 1,900 parameters on as p^{results['growth']['exponent']:.2f}"
        found.append((title, results["growth"]["rows"], costs))
    if "peers" in results:
        columns = ("parameters", "method", "step_us", "ratio_to_natkal")
        found.append(("Peers: the same network and rows, float32", results["peers"]["rows"], columns))
    if "large" in results:
        columns = ("parameters", "dtype", "kernel", "step_ms", "P_GB", "peak_of_P")
        found.append(("As large as memory: peak beside what was there before", results["large"]["rows"], columns))
    return found


def _own(state: Any) -> Any:
    """A copy whose memory may be given away."""
    return jax.tree.map(lambda leaf: leaf.copy(), state)


def _bytes(state: Any) -> int:
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(state)
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )
