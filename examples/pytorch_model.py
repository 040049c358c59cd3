"""A PyTorch network learned online by natkal: PyTorch differentiates, natkal filters, arrays are shared by DLPack.

    pip install torch 'natkal[optax]'
    python examples/pytorch_model.py

PyTorch gives the raw output and its Jacobian (`functional_call`, `jacrev`); the family of natkal gives score and noise
of the observation; `natkal.optax.natural_gradient` makes the step. Nothing of the network is rewritten in JAX.
"""

import sys

import jax
import jax.numpy as jnp

import natkal as nk
from natkal.optax import natural_gradient

try:
    import torch
    from torch.func import functional_call, jacrev
except ModuleNotFoundError:
    print("torch is not installed: nothing to show (pip install torch)")
    sys.exit(0)


def to_jax(tensor: "torch.Tensor") -> jax.Array:
    """The same memory, seen by JAX."""
    return jnp.from_dlpack(tensor.detach().contiguous())


def to_torch(array: jax.Array) -> "torch.Tensor":
    """The same numbers in PyTorch, in memory of their own."""
    return torch.from_dlpack(array).clone()


def main() -> None:
    """Learn which side of a parabola a point lies on, one point at a time."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    weights = {name: tensor.detach() for name, tensor in network.named_parameters()}

    def output(weights: dict, point: "torch.Tensor") -> "torch.Tensor":
        return functional_call(network, weights, (point,))

    family = nk.families.Bernoulli()
    optimizer = natural_gradient(prior_cov=1.0, rates=nk.fading(1e-3))
    state = optimizer.init(jax.tree.map(to_jax, weights))

    @jax.jit
    def step(state, raw, jacobian, label):
        """One observation: score and noise from the family, the step from the filter."""
        observed = family.observe(raw, label)
        gradients = jax.tree.map(lambda rows: -jnp.tensordot(observed.score, rows, axes=1), jacobian)
        updates, state = optimizer.update(gradients, state, jacobian=jacobian, noise_root=observed.root)
        return updates, state, observed.log_prob

    losses = []
    for _ in range(600):
        point = 2 * torch.rand(2) - 1
        label = int(point[1] > point[0] ** 2)
        raw, jacobian = output(weights, point), jacrev(output)(weights, point)
        updates, state, log_prob = step(state, to_jax(raw), jax.tree.map(to_jax, jacobian), label)
        weights = {name: tensor + to_torch(updates[name]) for name, tensor in weights.items()}
        losses.append(-float(log_prob))
    first, last = sum(losses[:100]) / 100, sum(losses[-100:]) / 100
    print(f"log loss before learning each point: {first:.3f} over the first 100, {last:.3f} over the last 100")
    assert last < first


if __name__ == "__main__":
    main()
