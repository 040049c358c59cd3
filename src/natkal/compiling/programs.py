"""Compiled programs kept whole: executable and trees, so that the next process neither traces nor compiles.

A program is kept under what it was made of: its name (words and numbers, given by the caller), the trees, shapes and
dtypes of its arguments, natkal's own source, the versions of jax and jaxlib, the processor, the compiler's flags, and
jax's settings. It takes and gives flat tuples; the tree of its result lies beside it. Within a process the same name is
the same program.

A file is code that this process will run, and jax's format of it contains pickle. Files lie in a folder of this user
alone and are read from nowhere else; the digest at the front finds what is damaged or cut off, and a file that cannot
be read means that the program is compiled. Programs that call code outside of themselves are not kept.
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import pickle
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src.config import persistent_cache_min_compile_time_secs, trace_context
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from natkal.compiling import words
from natkal.compiling.user_folder import forget_oldest, private_folder, processor

LOG = logging.getLogger(__name__)
LARGEST = 256 << 20
"""Bytes of programs that are kept; those that were not used for longest give way."""
FOREVER = 1e9
SUFFIX = ".program"
ENVIRONMENT = ("XLA_FLAGS", "NATKAL_NATIVE", "CXX")
UNREAD = ("cache", "log", "dump", "profile")
"""Settings of jax whose name has one of these words do not change what is compiled."""
UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ImportError),
    *(EOFError, pickle.UnpicklingError, jax.errors.JaxRuntimeError),
)

_folder: Path | None = None
_tell: Callable[[], None] | None = None
_here: weakref.WeakValueDictionary[str, "Program"] = weakref.WeakValueDictionary()
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


class Program:
    """A compiled program, called like the function that it was made of. `one_function`: whether it is one of the
    machine; it then gives one number more than the function.
    """

    def __init__(self, run: Any, result: Any, shapes: Sequence[Any], *, one_function: bool):
        self.run = run
        self.result = result
        self.shapes = result.unflatten(shapes)
        """The result without its numbers."""
        self.one_function = one_function

    def __call__(self, *arguments: Any) -> Any:
        """The result for arguments like those that it was compiled for."""
        return self.result.unflatten(self.run(*jax.tree.leaves(arguments))[: self.result.num_leaves])


def keep_programs_in(folder: Path | None) -> None:
    """Where programs are kept from now on, a folder of this user alone; None: nowhere."""
    global _folder
    _folder = folder
    _surroundings()  # now: natkal may be replaced on disk while this process goes on with what it has read


def tell_of_compiling(tell: Callable[[], None]) -> None:
    """Call this once, before the first program that is compiled and kept."""
    global _tell
    _tell = tell


def default_folder() -> Path:
    """The folder of this user; an `OSError` where it is open to others."""
    folder = private_folder("programs")
    forget_oldest(folder, LARGEST)
    return folder


def program(name: Any, arguments: Sequence[Any], make: Callable[[], tuple[Program, bool]]) -> Program | None:
    """The program of this name for arguments like these, which may be abstract: from this process, from disk, or made.

    `make` gives it, and whether it may be kept. None where the name or the arguments have no words.
    """
    key = _key(name, arguments)
    if key is None:
        return None
    with _lock(key):
        found = _here.get(key) or _read(key)
        if found is None:
            _say_so()
            found, may_be_kept = make()
            if may_be_kept:
                _write(key, found)
        _here[key] = found
    return found


def kept_program(name: Any, arguments: Sequence[Any]) -> Program | None:
    """The same, unless it would have to be made."""
    key = _key(name, arguments)
    if key is None:
        return None
    with _lock(key):
        found = _here.get(key) or _read(key)
        if found is not None:
            _here[key] = found
    return found


def compile_ahead(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    donate: Sequence[int],
    options: Any,
    one_function: bool = False,
) -> Program:
    """Compile it now for arguments like these, on flat arguments; of one machine function the first part of its value
    is the result.
    """
    leaves, structure = jax.tree.flatten(tuple(arguments))
    results: list[Any] = []

    def flat(*leaves: Any) -> tuple[Any, ...]:
        value = function(*structure.unflatten(leaves))
        results.append(jax.tree.structure(value[0] if one_function else value))
        return tuple(jax.tree.leaves(value))

    ends = np.cumsum([0, *(len(jax.tree.leaves(argument)) for argument in arguments)])
    donated = tuple(leaf for position in donate for leaf in range(ends[position], ends[position + 1]))
    # XLA does not write all of an executable that JAX's own cache has read: the name keeps this one out of that cache
    flat.__name__ = f"kept_{os.urandom(8).hex()}"
    lowered = jax.jit(flat, donate_argnums=donated, compiler_options=options).lower(*leaves)
    result = results[-1]
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(lowered.out_info)]
    with persistent_cache_min_compile_time_secs(FOREVER):
        compiled = lowered.compile()
    return Program(compiled, result, shapes[: result.num_leaves], one_function=one_function)


def _say_so() -> None:
    global _tell
    tell, _tell = _tell, None
    if tell is not None and _folder is not None:
        tell()


def _key(name: Any, arguments: Sequence[Any]) -> str | None:
    devices = jax.devices()
    if len(devices) > 1 or devices[0].platform != "cpu":
        return None
    leaves, structure = jax.tree.flatten(tuple(arguments))
    kinds = [
        (np.shape(leaf), str(getattr(leaf, "dtype", type(leaf).__name__)), bool(getattr(leaf, "weak_type", False)))
        for leaf in leaves
    ]
    try:
        asked = [words.of_value(name), words.of_tree(structure), kinds]
    except words.NoWords as reason:
        LOG.debug("natkal: a program that is not kept: %s", reason)
        return None
    text = json.dumps([asked, _settings(), _surroundings()])
    return hashlib.sha256(text.encode()).hexdigest()


def _settings() -> list[str]:
    """What tracing and compiling read of jax's settings and of the environment."""
    values = [repr(value) for value in trace_context()]
    named = [f"{name}={value!r}" for name, value in sorted(jax.config.values.items())]
    said = [entry for entry in [*values, *named] if " at 0x" not in entry and not any(n in entry for n in UNREAD)]
    return [*said, *(f"{name}={os.environ.get(name)}" for name in ENVIRONMENT)]


@functools.cache
def _surroundings() -> list[str]:
    """What compiled programs depend on that stays as it is while the process runs."""
    source = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        source.update(f"{path.relative_to(root)}\n".encode())
        source.update(path.read_bytes())
    return [source.hexdigest(), jax.__version__, version("jaxlib"), processor()]


@contextlib.contextmanager
def _lock(key: str) -> Iterator[None]:
    """One thread at a time makes a program."""
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        yield


def _read(key: str) -> Program | None:
    """The program on disk, if it is there whole."""
    if _folder is None:
        return None
    path = _folder / f"{key}{SUFFIX}"
    try:
        if path.is_symlink():
            return None
        digest, rest = path.read_bytes().split(b"\n", 1)
        if hashlib.sha256(rest).hexdigest().encode() != digest:
            raise ValueError("damaged")
        head, executable = rest.split(b"\n", 1)
        said = json.loads(head)
        arguments, result = words.tree_of(said["arguments"]), words.tree_of(said["result"])
        run = deserialize_and_load(executable, arguments, words.tree_of(said["given"]))
        shapes = [jax.ShapeDtypeStruct(shape, _dtype(dtype)) for shape, dtype in said["shapes"]]
        os.utime(path)
    except FileNotFoundError:
        return None
    except UNREADABLE as reason:
        LOG.info("natkal: %s is compiled again: %s", path.name, reason)
        return None
    return Program(run, result, shapes, one_function=said["one_function"])


def _write(key: str, made: Program) -> None:
    """Keep it, whole or not at all."""
    if _folder is None:
        return
    try:
        executable, arguments, given = serialize(made.run)
        said = {
            "arguments": words.of_tree(arguments),
            "given": words.of_tree(given),
            "result": words.of_tree(made.result),
            "shapes": [(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(made.shapes)],
            "one_function": made.one_function,
        }
    except (words.NoWords, NotImplementedError, ValueError, jax.errors.JaxRuntimeError) as reason:
        LOG.debug("natkal: a program that is not kept: %s", reason)
        return
    rest = json.dumps(said).encode() + b"\n" + executable
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=_folder, delete=False) as file:
        try:
            file.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
            file.close()
            os.replace(file.name, _folder / f"{key}{SUFFIX}")
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def _dtype(name: str) -> Any:
    """The inverse of `str`, also of the dtype of random keys."""
    if not name.startswith("key<"):
        return np.dtype(name)
    found = jax.eval_shape(lambda: jax.random.key(0)).dtype
    if str(found) != name:
        raise ValueError(f"random keys are {found}, not {name}")
    return found
