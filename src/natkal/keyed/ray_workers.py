"""Workers as actors of Ray: the `Executor` of `keyed/workers.py`."""

import importlib.util
import logging
import socket
import warnings
from collections.abc import Callable
from typing import Any

import jax

from natkal.compiling.cache import compilation_cache
from natkal.keyed.workers import WorkerLost

CONNECT_SECONDS = 10.0
"""How long the head of a cluster may take to answer; Ray itself tries for minutes."""


def check_address(address: str | None, what: str) -> None:
    """Refuse an address at which no cluster can be, before anything is started.

    `auto` is left to Ray, which looks for a cluster on this machine and answers at once.
    """
    if importlib.util.find_spec("ray") is None:
        raise ModuleNotFoundError(f"{what} needs ray: pip install 'natkal[ray]'")
    if address in (None, "local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{address!r} is no address of a Ray cluster: it is local, auto or HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nothing answers at {address}: {error.strerror or error}") from error


def connect(address: str | None, what: str, cpus: int | None = None) -> Any:
    """The module `ray`, connected: to what this process is connected to, to `address`, or to a new one here.

    A new one here has `cpus` CPUs, as many as the machine unless given. Its workers do the work of this process, so
    they have its priority and not the lower one that Ray gives workers.
    """
    check_address(address, what)
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if ray.is_initialized():
        return ray
    with warnings.catch_warnings():
        # the processes that Ray forks start other programs at once, so that JAX's threads do not matter
        warnings.filterwarnings("ignore", message=".*os.fork", category=RuntimeWarning)
        if address in (None, "local"):
            own = {"worker_niceness": 0}
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, _system_config=own, **quiet)
        elif address == "auto":
            _join_here(ray, quiet)
        else:
            ray.init(address=address, **quiet)
    return ray


def _join_here(ray: Any, quiet: dict[str, Any]) -> None:
    """Connect to the cluster of this machine."""
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError as error:
        raise ConnectionError("no Ray cluster runs on this machine; `ray start --head` starts one") from error


class RayWorkers:
    """Actors made by `make(worker)`, each with one CPU. Ray starts none of them again: `Workers` does."""

    def __init__(self, ray: Any, make: Callable[[int], Any]):
        self._ray = ray
        self._actors: dict[int, Any] = {}
        # in a list Ray leaves it packed: 64-bit arrays are unpacked once the actor has the precision of this process
        self._make = [ray.put(make)]
        self._x64 = bool(jax.config.read("jax_enable_x64"))

        class Actor:
            """Holds one worker."""

            def __init__(self, make: list[Any], worker: int, x64: bool):
                jax.config.update("jax_enable_x64", x64)
                compilation_cache()  # an actor that is started again does not compile again
                self.worker = ray.get(make[0])(worker)

            def call(self, method: str, *arguments: Any) -> Any:
                return getattr(self.worker, method)(*arguments)

        self._actor_class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)

    def start(self, worker: int) -> None:
        """A new actor."""
        self._actors[worker] = self._actor_class.remote(self._make, worker, self._x64)

    def put(self, value: Any) -> Any:
        """Arrays go into Ray's object store, once however often they are sent."""
        return self._ray.put(value)

    def submit(self, worker: int, method: str, *arguments: Any) -> Any:
        """A call of the actor, in order."""
        return self._actors[worker].call.remote(method, *arguments)

    def result(self, handle: Any) -> Any:
        """What the call returned."""
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayActorError as error:
            raise WorkerLost(str(error)) from error

    def kill(self, worker: int) -> None:
        """End an actor as a crash would; for tests and trials."""
        self._ray.kill(self._actors[worker])

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
