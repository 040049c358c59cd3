"""What the package promises before it does anything: names, laziness, files, dependencies."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import natkal


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_leaves_jax_alone():
    assert run_python("import sys, natkal; dir(natkal); print('jax' in sys.modules, 'numpy' in sys.modules)") == (
        "False False\n"
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["learn", "--help"], ["verify", "--help"]])
def test_help_leaves_jax_alone(arguments):
    code = f"""
import sys
from natkal.cli import main
sys.argv = ["natkal", *{arguments!r}]
try:
    main()
except SystemExit as ending:
    print("exit", ending.code, "jax" in sys.modules)
"""
    assert run_python(code).endswith("exit 0 False\n")


def test_python_dash_m():
    answer = subprocess.run([sys.executable, "-m", "natkal", "--version"], check=True, capture_output=True, text=True)
    assert answer.stdout == f"natkal {natkal.__version__}\n"


@pytest.mark.parametrize("name", natkal.__all__)
def test_public_name_resolves(name):
    assert getattr(natkal, name) is getattr(natkal, name)
    assert name in dir(natkal)


def test_star_import_gives_every_public_name():
    namespace = {}
    exec("from natkal import *", namespace)
    assert set(natkal.__all__) <= set(namespace)


def test_missing_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'natkal' has no attribute 'kalmn'"):
        natkal.kalmn  # noqa: B018
    assert not hasattr(natkal, "kalmn")


def test_version_is_the_installed_one():
    assert importlib.metadata.version("natkal") == natkal.__version__


def test_typed_marker_and_data_are_shipped():
    package = Path(natkal.__file__).parent
    for name in ("py.typed", "data/digits.npz", "data/README.md"):
        assert (package / name).is_file()


def test_core_dependencies_are_five():
    requirements = importlib.metadata.requires("natkal") or []
    core = {re.match(r"[\w-]+", line).group() for line in requirements if "extra ==" not in line}
    assert core == {"jax", "numpy", "rich", "safetensors", "typer"}


def test_embedded_digits():
    from natkal.data import digits

    inputs, targets = digits()
    assert inputs.shape == (1797, 64)
    assert (inputs.min(), inputs.max()) == (0, 16)
    assert sorted(set(targets.tolist())) == list(range(10))
