"""Workers as actors of Ray: the `Executor` of `drivers/workers.py`."""

import logging
from collections.abc import Callable
from typing import Any

import jax

from natkal.drivers.cache import compilation_cache
from natkal.drivers.workers import WorkerLost


def connect(address: str | None, what: str, cpus: int | None = None) -> Any:
    """The module `ray`, connected: to what this process is connected to, to `address`, or to a new one here.

    A new one here has `cpus` CPUs, as many as the machine unless given. Its workers do the work of this process, so
    they have its priority and not the lower one that Ray gives workers.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what} needs ray: pip install 'natkal[ray]'") from error
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not ray.is_initialized():
        if address in (None, "local"):
            own = {"worker_niceness": 0}
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, _system_config=own, **quiet)
        else:
            ray.init(address=address, **quiet)
    return ray


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
