"""`python -m benchmarks ray`: a learner for each key on actors of Ray; their rate, their loss and their memory.

`rate`: rows a second of `nk.ray_fleet` on two actors, as a share of two separate processes with an `nk.fleet` each, on
the same rows at the same time. `kills`: an actor is killed every few seconds; every log probability must be that of an
undisturbed fleet. `memory`: the largest resident memory of one keyed fleet with many keys.
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PARTS = ("rate", "kills", "memory")
OPTIONS = {
    "keys": (1_000_000, "keys of `rate`"),
    "passes": (3, "rows of each key of `rate`"),
    "seconds": (10.0, "seconds between kills"),
    "blocks": (200, "blocks of 2,000 rows of `kills`"),
    "many": (10_000_000, "keys of `memory`"),
    "hot": (131_072, "keys in memory in each fleet"),
}
PARAMETERS, BLOCK = 20, 32_768
Report = Callable[[str], None]


def make_learner() -> Any:
    """A linear regression with 20 weights, float32."""
    import jax.numpy as jnp

    import natkal as nk

    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(PARAMETERS, jnp.float32), nk.families.Gaussian(1.0))
    return nk.online(model, prior_cov=1.0, rates=nk.fading(1e-3))


def rows_of(block: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(block)
    return rng.normal(size=(count, PARAMETERS)).astype(np.float32), rng.normal(size=count).astype(np.float32)


def separate(keys: int, passes: int, shard: int, start: Any, answers: Any) -> None:
    """One process: a fleet of its half of the keys, all in memory, block after block."""
    import jax

    import natkal as nk

    own = np.arange(shard, keys, 2)
    fleet = nk.fleet(make_learner(), len(own))
    state = fleet.init()
    inputs, targets = rows_of(0, BLOCK)

    def everything(state: Any) -> Any:
        for first in range(0, len(own), BLOCK):
            slots = np.arange(first, min(first + BLOCK, len(own)))
            state, _ = fleet.update_unchecked(state, slots, inputs[: len(slots)], targets[: len(slots)])
        return jax.block_until_ready(state)

    state = everything(state)  # compiles
    start.wait()
    began = time.perf_counter()
    for _ in range(passes):
        state = everything(state)
    answers.put(len(own) * passes / (time.perf_counter() - began))


def rate(report: Report, keys: int, passes: int, hot: int) -> dict[str, Any]:
    """Rows a second, one after the other: two processes, then two actors."""
    from natkal.keyed.ray_workers import connect

    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=separate, args=(keys, passes, at, start, answers), daemon=True) for at in range(2)
    ]
    for process in processes:
        process.start()
    alone = sum(answers.get() for _ in processes)
    for process in processes:
        process.join()
    report(f"ray: two separate fleets {alone:,.0f} rows/s")
    import natkal as nk

    found = []
    ray = connect("local", "this benchmark", cpus=2)
    for name, in_memory in (("all keys in memory", keys * 52 // 100), ("hot keys in memory", hot)):
        with tempfile.TemporaryDirectory() as folder:
            fleet = nk.ray_fleet(make_learner(), shards=2, folder=folder, hot=in_memory, checkpoint_rows=1 << 40)
            inputs, targets = rows_of(0, 2 * BLOCK)
            seconds = 0.0
            for turn in range(passes + 1):  # the first compiles
                began = time.perf_counter()
                for first in range(0, keys, 2 * BLOCK):
                    ids = np.arange(first, min(first + 2 * BLOCK, keys))
                    told = fleet.learn(ids, inputs[: len(ids)], targets[: len(ids)])
                told.log_prob  # noqa: B018  (waits)
                len(fleet)
                seconds += time.perf_counter() - began if turn else 0.0
            fleet.close()
        own = keys * passes / seconds
        found.append({"fleet": name, "keys": keys, "rows_per_s": own, "share_of_separate": own / alone})
    ray.shutdown()
    return {"rows": found, "passed": found[0]["share_of_separate"] >= 0.6}


def kills(report: Report, blocks: int, seconds: float) -> dict[str, Any]:
    """Every block's log probabilities against an undisturbed fleet's."""
    import natkal as nk
    from natkal.keyed.keyed_fleet import KeyedFleet
    from natkal.keyed.ray_workers import connect

    ray = connect("local", "this benchmark", cpus=2)
    killed, wrong, rng = 0, 0, np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        alone = KeyedFleet(make_learner(), Path(folder) / "alone", hot=8192)
        fleet = nk.ray_fleet(make_learner(), shards=2, folder=Path(folder) / "fleet", hot=4096, checkpoint_rows=20_000)
        last = time.monotonic()
        for block in range(blocks):
            ids = rng.permutation(10_000)[:2_000]
            inputs, targets = rows_of(block, len(ids))
            told = fleet.learn(ids, inputs, targets)
            if time.monotonic() - last >= seconds:
                fleet.workers.executor.kill(killed % 2)
                killed, last = killed + 1, time.monotonic()
            wrong += int((told.log_prob != alone.learn(ids, inputs, targets)).sum())
        restarts = fleet.workers.restarts
        fleet.close()
    ray.shutdown()
    report(f"ray: {killed} kills, {restarts} restarts")
    row = {"rows": 2_000 * blocks, "kills": killed, "restarts": restarts, "rows_that_differ": wrong}
    return {"rows": [row], "passed": wrong == 0 and killed > 0}


def fill(keys: int, hot: int, folder: str, answers: Any) -> None:
    """One process: a row for each key, then a row of some keys again."""
    from natkal.keyed.keyed_fleet import KeyedFleet

    fleet = KeyedFleet(make_learner(), folder, hot=hot)
    inputs, targets = rows_of(0, BLOCK)
    began = time.perf_counter()
    for first in range(0, keys, BLOCK):
        ids = np.arange(first, min(first + BLOCK, keys))
        fleet.learn(ids, inputs[: len(ids)], targets[: len(ids)])
    cold = np.random.default_rng(1).permutation(keys)[:BLOCK]
    first_rate = keys / (time.perf_counter() - began)
    began = time.perf_counter()
    fleet.learn(cold, inputs[: len(cold)], targets[: len(cold)])
    answers.put(
        {
            "keys": len(fleet),
            "hot": fleet.fleet.size,
            "largest_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
            "new_keys_per_s": first_rate,
            "cold_keys_per_s": len(cold) / (time.perf_counter() - began),
        }
    )


def memory(report: Report, keys: int, hot: int) -> dict[str, Any]:
    """In a process of its own."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        process = context.Process(target=fill, args=(keys, hot, folder, answers), daemon=True)
        process.start()
        found = answers.get()
        process.join()
    report(f"ray: {found}")
    return {"rows": [found], "passed": found["largest_memory_gb"] < 2.0}


def run_part(part: str, report: Report, **options: Any) -> dict[str, Any]:
    """One part's numbers."""
    if part == "rate":
        return rate(report, options["keys"], options["passes"], options["hot"])
    if part == "kills":
        return kills(report, options["blocks"], options["seconds"])
    return memory(report, options["many"], options["hot"])


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    titles = {"rate": "Rows a second on two actors", "kills": "Actors killed", "memory": "Keys on disk"}
    return [(titles[part], found["rows"], tuple(found["rows"][0])) for part, found in results.items()]
