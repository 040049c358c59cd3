"""Workers that may be lost: what was sent to one since it last saved is sent again to the one that takes its place."""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

MOST_UNDER_WAY = 4
"""Blocks that one worker may have under way; who sends more waits."""
MOST_RESTARTS = 20
"""How often in a row a worker is started again for one answer."""


class WorkerLost(Exception):
    """The worker that was to answer is gone."""


class Executor(Protocol):
    """Where workers run. Calls of one worker run in the order in which they are submitted."""

    def start(self, worker: int) -> None:
        """Make a worker, in the place of one that is lost."""
        ...

    def put(self, value: Any) -> Any:
        """A reference to a value, for calls; it outlives the worker."""
        ...

    def submit(self, worker: int, method: str, *arguments: Any) -> Any:
        """Call a method of a worker; a handle to its result."""
        ...

    def result(self, handle: Any) -> Any:
        """The result; raises `WorkerLost` where the worker is gone, and what the method raised."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class Here:
    """Workers in this process, made by `make(worker)`: for tests, and for one machine without Ray."""

    def __init__(self, make: Callable[[int], Any]):
        self._make = make
        self._workers: dict[int, Any] = {}

    def start(self, worker: int) -> None:
        """Make a worker."""
        self._workers[worker] = self._make(worker)

    def put(self, value: Any) -> Any:
        """The value itself."""
        return value

    def submit(self, worker: int, method: str, *arguments: Any) -> Any:
        """Call at once; a lost worker is found out with the result."""
        made = self._workers.get(worker)
        if made is None:
            return WorkerLost(f"worker {worker} is gone")
        return [getattr(made, method)(*arguments)]

    def result(self, handle: Any) -> Any:
        """What the call returned."""
        if isinstance(handle, WorkerLost):
            raise handle
        return handle[0]

    def kill(self, worker: int) -> None:
        """Lose a worker, with all that it knew."""
        self._workers.pop(worker, None)

    def close(self) -> None:
        """Lose all of them."""
        self._workers.clear()


class Ticket(NamedTuple):
    """One numbered call of a worker."""

    worker: int
    number: int


class _Call(NamedTuple):
    number: int
    method: str
    arguments: tuple[Any, ...]


class Workers:
    """Numbered calls that change a worker, and questions that do not; both survive the loss of a worker.

    `resumed(worker, ask)` brings a worker that was just started to what was last saved of it, by questions
    `ask(method, *arguments)`, and returns the number of the first call that it does not know.
    """

    def __init__(self, executor: Executor, count: int, resumed: Callable[[int, Callable[..., Any]], int]):
        self.executor, self._resumed = executor, resumed
        self._unwanted: set[Ticket] = set()
        self._log: list[deque[_Call]] = [deque() for _ in range(count)]
        self._next = [0] * count
        self._handles: dict[Ticket, Any] = {}
        self._under_way: list[deque[Ticket]] = [deque() for _ in range(count)]
        self.restarts = 0
        """How often a worker was started again."""
        for worker in range(count):
            executor.start(worker)
            self._next[worker] = resumed(worker, functools.partial(self._ask_now, worker))

    def __len__(self) -> int:
        return len(self._log)

    def send(self, worker: int, method: str, *arguments: Any) -> Ticket:
        """A call that changes the worker: it is kept until `saved` says that it need not be."""
        under_way = self._under_way[worker]
        while len(under_way) >= MOST_UNDER_WAY:
            self.wait(under_way[0], keep=True)
        call = _Call(self._next[worker], method, tuple(self.executor.put(argument) for argument in arguments))
        self._next[worker] += 1
        self._log[worker].append(call)
        ticket = Ticket(worker, call.number)
        self._handles[ticket] = self.executor.submit(worker, call.method, *call.arguments)
        under_way.append(ticket)
        return ticket

    def wait(self, ticket: Ticket, *, keep: bool = False) -> Any:
        """What a call returned; with `keep` it can be asked for again."""
        value = self._answer(ticket.worker, lambda: self._handles[ticket])
        if ticket in self._under_way[ticket.worker]:
            self._under_way[ticket.worker].remove(ticket)
        if not keep or ticket in self._unwanted:
            del self._handles[ticket]
            self._unwanted.discard(ticket)
        return value

    def forget(self, ticket: Ticket) -> None:
        """Nobody will ask what this call returned."""
        if ticket in self._under_way[ticket.worker]:
            self._unwanted.add(ticket)
        else:
            self._handles.pop(ticket, None)

    def ask(self, worker: int, method: str, *arguments: Any) -> Any:
        """The answer to a question, after all calls before it."""
        handle = [self.executor.submit(worker, method, *arguments)]

        def current() -> Any:
            return handle[0]

        def again() -> None:
            handle[0] = self.executor.submit(worker, method, *arguments)

        return self._answer(worker, current, again)

    def _ask_now(self, worker: int, method: str, *arguments: Any) -> Any:
        """A question to a worker that was just started; no other one takes its place."""
        return self.executor.result(self.executor.submit(worker, method, *arguments))

    def sent(self, worker: int) -> int:
        """How many calls a worker has had in all."""
        return self._next[worker]

    def saved(self, worker: int, number: int) -> None:
        """The calls before this one are saved."""
        log = self._log[worker]
        while log and log[0].number < number:
            log.popleft()

    def close(self) -> None:
        """End the workers."""
        self.executor.close()

    def _answer(self, worker: int, current: Callable[[], Any], again: Callable[[], None] = lambda: None) -> Any:
        for _ in range(MOST_RESTARTS):
            try:
                return self.executor.result(current())
            except WorkerLost:
                self._restart(worker)
                again()
        raise WorkerLost(f"worker {worker} was lost {MOST_RESTARTS} times in a row; its own messages say why")

    def _restart(self, worker: int) -> None:
        """A new worker at what was saved, and the calls since then again."""
        for _ in range(MOST_RESTARTS):
            self.restarts += 1
            try:
                self.executor.start(worker)
                first = self._resumed(worker, functools.partial(self._ask_now, worker))
            except WorkerLost:
                continue
            for call in self._log[worker]:
                if call.number >= first:
                    handle = self.executor.submit(worker, call.method, *call.arguments)
                    ticket = Ticket(worker, call.number)
                    if ticket in self._handles:
                        self._handles[ticket] = handle
            return
        raise WorkerLost(f"worker {worker} was lost {MOST_RESTARTS} times in a row; its own messages say why")
