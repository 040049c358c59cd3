"""b observations as one step, against the dense formula; sampled factors without a backward pass per output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

CLASSES, FEATURES = 3, 4


def network():
    params = nk.mlp_params(jax.random.key(0), (FEATURES, 5, CLASSES))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(CLASSES, minimal=False))
    rng = np.random.default_rng(0)
    return model, params, rng.normal(size=(20, FEATURES)), rng.integers(CLASSES, size=20)


@pytest.mark.float64
def test_a_batch_adds_its_fisher_matrices_and_moves_once() -> None:
    model, params, inputs, targets = network()
    fading = 0.01
    learner = nk.online(model, prior_cov=0.5, rates=nk.fading(fading), step_control=nk.step_control(cap=None))
    state, info = nk.run(learner, learner.init(params), inputs, targets, batch_size=8)

    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
    precision = np.eye(len(flat)) / 0.5

    @jax.jit
    def pieces(flat, u, y):
        jacobian = jax.jacobian(lambda flat: model.raw(model.unravel(flat), u))(flat)
        mean = jax.nn.softmax(model.raw(model.unravel(flat), u))
        fisher = jacobian.T @ (jnp.diag(mean) - jnp.outer(mean, mean)) @ jacobian
        return jacobian.T @ (jax.nn.one_hot(y, CLASSES) - mean), fisher, jnp.log(mean[y])

    log_probs = []
    for first in (0, 8, 16):
        batch = [pieces(flat, u, y) for u, y in zip(inputs[first : first + 8], targets[first : first + 8], strict=True)]
        gradients, fishers, logs = zip(*batch, strict=True)
        precision = (1 - fading) ** len(batch) * precision + sum(fishers)
        flat = flat + np.linalg.solve(precision, sum(gradients))
        log_probs += logs
    got = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params)])
    np.testing.assert_allclose(got, flat, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(learner.covariance(state), np.linalg.inv(precision), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(info.log_prob, log_probs, rtol=1e-9)
    assert int(state.steps) == 20
    assert info.prediction.cov.shape == (20, CLASSES, CLASSES)


def test_on_a_linear_model_the_batch_size_changes_nothing(rtol: float) -> None:
    rng = np.random.default_rng(1)
    inputs, targets = rng.normal(size=(30, 3)), rng.normal(size=30)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(0.5))
    learner = nk.online(model, rates=nk.learning_rate(lambda t: 1 / (t + 1)))
    results = []
    for size in (1, 7, 30):
        state, _ = nk.run(learner, learner.init(jnp.zeros(3)), inputs, targets, batch_size=size)
        results.append((state.params, learner.covariance(state)))
    for params, cov in results[1:]:
        np.testing.assert_allclose(params, results[0][0], rtol=100 * rtol, atol=10 * rtol)
        np.testing.assert_allclose(cov, results[0][1], rtol=100 * rtol, atol=10 * rtol)


def test_what_cannot_be_batched_is_refused() -> None:
    model, params, inputs, targets = network()
    learner = nk.online(model, step_control=nk.step_control(newton=2))
    with pytest.raises(ValueError, match="batch_size: newton"):
        nk.run(learner, learner.init(params), inputs, targets, batch_size=4)
    with pytest.raises(ValueError, match="batch_size: must be at least 1, got 0"):
        nk.run(learner, learner.init(params), inputs, targets, batch_size=0)


@pytest.mark.slow
def test_few_directions_give_the_step_of_the_full_jacobian(rtol: float) -> None:
    """Two hundred classes, one draw: two backward passes instead of two hundred, and the same step."""
    classes = 200
    params = nk.mlp_params(jax.random.key(1), (FEATURES, 2, classes))
    pulled = []
    family = nk.families.Categorical(classes, minimal=False)
    model = nk.static_model(nk.mlp_apply, params, family)

    class Counting(type(model)):
        def linearize(self, params, carry, inputs):
            around = super().linearize(params, carry, inputs)

            def counted(pull):
                return lambda rows: pulled.append(len(rows)) or pull(rows)

            return around._replace(pullback=counted(around.pullback), factored=counted(around.factored))

    counting = Counting(apply=model.apply, params=params, family=family, outputs=model.outputs)
    rng = np.random.default_rng(2)
    u, y = jnp.asarray(rng.normal(size=FEATURES)), jnp.asarray(17)
    textbook = nk.step_control(cap=None)
    learner = nk.online(counting, prior_cov=0.3, curvature=nk.diagonal(), fisher=nk.sampled(1), step_control=textbook)
    start = learner.init(params)
    state, info = learner.step(start, u, y)
    assert set(pulled) == {2}
    assert info.prediction.natural_cov is None

    raw = model.raw(params, u)
    draw_key = jax.random.split(start.key)[1]
    drawn = nk.sampled(1).factor(family, raw, family.observe(raw, y), y, draw_key)[:, 0]
    jacobian = jax.jacobian(lambda flat: model.raw(model.unravel(flat), u))(jax.flatten_util.ravel_pytree(params)[0])
    score, root = jacobian.T @ family.score(raw, y), jacobian.T @ drawn
    expected = 0.3 * score - 0.3 * root * (0.3 * (root @ score) / (1 + 0.3 * (root @ root)))
    moved = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.subtract, state.params, params))[0]
    np.testing.assert_allclose(moved, expected, rtol=1e4 * rtol, atol=10 * rtol)


@pytest.mark.parametrize(
    "fisher",
    [
        pytest.param(nk.exact(), id="exact"),
        pytest.param(nk.sampled(1), id="sampled", marks=pytest.mark.slow),
        pytest.param(nk.outer_product(), id="outer", marks=pytest.mark.slow),
    ],
)
def test_several_epochs_in_batches_lower_the_loss(fisher) -> None:
    model, params, inputs, targets = network()
    targets = (inputs[:, 0] > 0) + (inputs[:, 1] > 0).astype(int)
    learner = nk.online(model, prior_cov=1.0, curvature=nk.kronecker(), rates=nk.fading(0.01), fisher=fisher)
    state, losses = learner.init(params), []
    for _ in range(5):
        state, info = nk.run(learner, state, inputs, targets, batch_size=10)
        losses.append(-float(info.log_prob.mean()))
    assert losses[-1] < 0.6 * losses[0]
