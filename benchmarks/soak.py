"""Ten million float32 steps, and a million without excitation: `make soak`. Prints its figures; exits 1 on failure."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk

SIZE, BLOCK, BLOCKS = 10, 100_000, 100


def long_run() -> bool:
    """1e7 steps in float32, no forgetting, against the exact posterior mean in float64."""
    truth = np.linspace(-1.0, 1.0, SIZE)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE, jnp.float32), nk.families.Gaussian(1.0))
    learner = nk.online(model, prior_cov=1e4, curvature=nk.square_root())
    state = learner.init(jnp.zeros(SIZE, jnp.float32))
    precision, moment = np.eye(SIZE) / 1e4, np.zeros(SIZE)

    @jax.jit
    def learn(state, inputs, targets):
        return jax.lax.scan(lambda s, row: (learner.step_unchecked(s, *row)[0], None), state, (inputs, targets))[0]

    for block in range(BLOCKS):
        rng = np.random.default_rng(block)
        inputs = rng.normal(size=(BLOCK, SIZE)).astype(np.float32)
        targets = (inputs @ truth + rng.normal(size=BLOCK)).astype(np.float32)
        state = learn(state, inputs, targets)
        wide = inputs.astype(np.float64)
        precision, moment = precision + wide.T @ wide, moment + wide.T @ targets
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    worst = (np.abs(np.asarray(state.params) - np.linalg.solve(precision, moment)) / deviation).max()
    exact = int(state.steps) == BLOCK * BLOCKS
    print(f"float32, {int(state.steps):,} steps: worst deviation {worst:.3f} posterior sd, counter exact: {exact}")
    return bool(np.isfinite(worst) and worst < 0.5 and exact)


def starved() -> bool:
    """1e6 steps at fading 0.01 that never excite nine of ten directions, prior kept at weight 1."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE, jnp.float32), nk.families.Gaussian(1.0))
    good = True
    for curvature in (nk.dense(), nk.square_root()):
        learner = nk.online(model, rates=nk.fading(0.01), prior_weight=1.0, curvature=curvature)
        u = jnp.zeros(SIZE, jnp.float32).at[0].set(1.0)
        step = jax.jit(
            lambda s, learner=learner, u=u: jax.lax.fori_loop(
                0, 1_000_000, lambda _, s: learner.step_unchecked(s, u, jnp.float32(1.0))[0], s
            )
        )
        variances = np.diag(learner.covariance(step(learner.init(jnp.zeros(SIZE, jnp.float32)))))[1:]
        low, high = variances.min(), variances.max()
        name = type(curvature).__name__
        print(f"{name}, 1,000,000 unexcited steps at fading 0.01: variances {low:.3f} to {high:.3f} of 1")
        good &= bool(low > 0.5 and high < 2)
    return good


if __name__ == "__main__":
    sys.exit(0 if long_run() & starved() else 1)
