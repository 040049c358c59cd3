"""Every option; no JAX."""
