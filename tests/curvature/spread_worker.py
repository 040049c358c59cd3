"""Run by `test_spread.py` in a process of its own with four devices: layers on 2 and on 4 of them, and all on one.

Arguments: a folder, and "kept" for structures with a kept prior instead. Prints one JSON object.
"""

import itertools
import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import natkal as nk  # noqa: E402  (after the kind of numbers is known)
from natkal.curvature import Prior, Response  # noqa: E402
from natkal.rows import FactoredRows, Outer  # noqa: E402
from natkal.storage.file import StorageError  # noqa: E402
from natkal.storage.sharded import is_spread  # noqa: E402

WIDTHS, ROWS = (3, 5, 4, 4, 2), 4
LAYOUT = tuple((f"[{layer}]['w']", (above, below)) for layer, (above, below) in enumerate(itertools.pairwise(WIDTHS)))
SIZE = sum(above * below for _, (above, below) in LAYOUT)


def mesh(devices: int):
    return jax.make_mesh((devices,), ("devices",), devices=jax.devices()[:devices])


def difference(one, other) -> float:
    one, other = np.asarray(one), np.asarray(other)
    return float(np.abs(one - other).max() / np.abs(other).max())


def collectives(compiled: str) -> list[int]:
    """How many numbers each collective of a compiled module produces."""
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
    found = re.findall(rf"= (.*?) (?:{kinds})(?:-start)?\(", compiled)
    return [
        sum(
            int(np.prod([int(side) for side in sides.split(",") if side])) for sides in re.findall(r"\[([\d,]*)\]", one)
        )
        for one in found
    ]


def by_curvature(curvature, *, kept: bool):
    """The step and the covariance after some observations; of a kept prior, from rows that are any matrices."""
    rng = np.random.default_rng(0)
    variances = jnp.asarray(rng.uniform(0.5, 2.0, SIZE))
    state = jax.jit(lambda cov: curvature.init(Prior(cov=cov, kept=cov if kept else None, layout=LAYOUT)))(variances)

    @jax.jit
    def update(state, rows, factor, offset):
        said = Response(factor, jnp.ones(len(rows)))
        prior = (jnp.asarray(0.1), offset) if kept else (None, None)
        learned = curvature.update(state, rows, lambda gram: said, jnp.asarray(0.9), *prior)
        return learned.state, (learned.step, learned.gram)

    told = None
    for _ in range(ROWS):
        rows, factor, offset = rng.normal(size=(3, SIZE)), rng.normal(size=(3, 2)), rng.normal(size=SIZE)
        if not kept:
            outer = [Outer(rng.normal(size=above), rng.normal(size=(3, below)), 1) for _, (above, below) in LAYOUT]
            rows = FactoredRows(leaves=tuple(outer), biases=())
        state, told = update(state, rows, factor, offset)
    solved = jax.jit(curvature.solve)(state, jnp.arange(1.0, SIZE + 1))
    return np.concatenate([np.ravel(one) for one in (*told, solved)])


def network(params, inputs):
    for layer in params[:-1]:
        inputs = jnp.tanh(inputs @ layer["w"] + layer["b"])
    return inputs @ params[-1]["w"] + params[-1]["b"]


def by_learner(curvature):
    """A learner, its state after some rows, and the compiled step."""
    rng = np.random.default_rng(1)
    params = [{"w": rng.normal(size=shape), "b": np.zeros(shape[1])} for _, shape in LAYOUT]
    model = nk.static_model(network, params, nk.families.Gaussian(np.eye(WIDTHS[-1])))
    learner = nk.online(model, prior_cov=0.3, rates=nk.fading(0.01), curvature=curvature)
    state = learner.init()
    step = jax.jit(lambda state, u, y: learner.step(state, u, y)[0])
    rows = rng.normal(size=(ROWS, WIDTHS[0])), rng.normal(size=(ROWS, WIDTHS[-1]))
    compiled = step.lower(state, rows[0][0], rows[1][0]).compile().as_text()
    for u, y in zip(*rows, strict=True):
        state = step(state, u, y)
    return learner, state, compiled


def known(learner, state):
    rows = np.random.default_rng(2).normal(size=(2, learner.model.size))
    return np.concatenate(
        [*map(np.ravel, jax.tree.leaves(state.params)), np.ravel(learner.curvature.quadratic(state.curvature, rows))]
    )


kept = sys.argv[2:] == ["kept"]
found = {}
for name, build in {"kronecker": nk.kronecker, "blocks": nk.blocks}.items():
    if name == "kronecker" or kept:
        alone = by_curvature(build(), kept=kept)
        for devices in (2, 4):
            own = by_curvature(build(mesh=mesh(devices)), kept=kept)
            found[f"{name}, {devices} devices"] = difference(own, alone)
if kept:
    print(json.dumps({"differences": found}))
    sys.exit()

alone_learner, alone_state, _ = by_learner(nk.blocks())
wanted = known(alone_learner, alone_state)
learner, state, compiled = by_learner(nk.blocks(mesh=mesh(4)))
found["blocks, 4 devices"] = difference(known(learner, state), wanted)
numbers = state.curvature.packed.numbers
shares = [shard.data.shape for shard in numbers.addressable_shards]
whole = sum(leaf.size for leaf in alone_state.curvature.covs)
assert is_spread(state)
folder = nk.save(Path(sys.argv[1]) / "state", learner, state)
same = nk.load(folder, learner)
other = nk.online(learner.model, prior_cov=0.3, rates=nk.fading(0.01), curvature=nk.blocks(mesh=mesh(2)))
loaded = nk.load(folder, other)
found["blocks, loaded on 2 devices"] = difference(known(other, loaded), wanted)

messages = {}
for name, build in {
    "devices": lambda: by_curvature(nk.blocks(by=lambda path: "[0]" in path, mesh=mesh(4)), kept=False),
    "matrix": lambda: nk.kronecker(mesh=mesh(2)).init(Prior(cov=jnp.eye(SIZE), kept=None, layout=LAYOUT)),
    "load": lambda: nk.load(
        folder, nk.online(learner.model, prior_cov=0.3, rates=nk.fading(0.01), curvature=nk.kronecker(mesh=mesh(2)))
    ),
}.items():
    try:
        build()
    except (ValueError, StorageError) as error:
        messages[name] = str(error)
print(
    json.dumps(
        {
            "differences": found,
            "messages": messages,
            "same_bits": bool(np.array_equal(same.curvature.packed.numbers, numbers)),
            "share": max(share[0] * share[1] for share in shares) / whole,
            "collectives": sorted(collectives(compiled)),
            "parameters": learner.model.size,
        }
    )
)
