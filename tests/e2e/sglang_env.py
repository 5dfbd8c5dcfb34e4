"""Make, once, the environment in which the end-to-end tests run the real SGLang on a CPU.

    python tests/e2e/sglang_env.py        # the last line of stdout is the path of the environment's interpreter

The environment is a virtual environment of its own: SGLang's packages must not meet the ones of pytest. It takes
minutes and about 6.5 GB to make, so it is kept outside the checkout and shared by every checkout with the same
requirements: in ``$MOEPERF_SGLANG_CACHE``, or ``~/.cache/pytest-moeperf`` (``$XDG_CACHE_HOME`` is honoured), in a
folder named after a hash of all that went into it. Folders of other hashes are left alone; delete them when disk is
short.

Packages come by plain pip, so pip's own configuration (index, proxy, certificates) is honoured. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("sglang_cpu_requirements.txt")
PYTHON_VERSION = "3.11"
# Installed with their dependencies, which is where libraries such as nvidia-* come from; the rest is pinned one by one.
TORCH_REQUIREMENTS = ("torch==2.14.1", "torchvision==0.29.1")
# Change this when the steps of build_environment change, so that environments made by the old steps are not reused.
RECIPE_VERSION = "1"
COMPLETE_MARKER = ".complete"
# SGLang takes its CPU code path at import only when told so; without it the import looks for CUDA libraries.
CPU_ENGINE_VARIABLES = {"SGLANG_USE_CPU_ENGINE": "1"}

Builder = Callable[[Path], None]


class EnvironmentProblem(RuntimeError):
    """The environment cannot be made here; the text says what is missing and what to do."""


def cache_root() -> Path:
    """The folder that holds all cached environments, existing or not."""
    if chosen := os.environ.get("MOEPERF_SGLANG_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "pytest-moeperf"


def environment_folder(*, root: Path | None = None, requirements: Path = REQUIREMENTS) -> Path:
    """Where the environment of these requirements lives: the name changes with everything that went into it."""
    ingredients = "\n".join(
        [f"recipe {RECIPE_VERSION}", f"python {PYTHON_VERSION}", *TORCH_REQUIREMENTS, requirements.read_text("utf-8")]
    )
    digest = hashlib.sha256(ingredients.encode()).hexdigest()[:16]
    return (root if root is not None else cache_root()) / f"sglang-cpu-{digest}"


def interpreter(folder: Path) -> Path:
    return folder / "bin" / "python"


def is_complete(folder: Path) -> bool:
    """True when the build reached its end and its interpreter, a link to the one it was made from, still exists."""
    return (folder / COMPLETE_MARKER).is_file() and interpreter(folder).exists()


def find_python() -> Path:
    """A Python 3.11 to make the environment with.

    Raises:
        EnvironmentProblem: neither this interpreter nor the ``python3.11`` on PATH is a working 3.11.
    """
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON_VERSION:
        return Path(sys.executable)
    found = shutil.which(f"python{PYTHON_VERSION}")
    # A version manager's shim may be on PATH without that version behind it.
    if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
        return Path(found)
    raise EnvironmentProblem(
        f"SGLang's CPU environment needs Python {PYTHON_VERSION} with venv: this is {sys.version.split()[0]} "
        f"({sys.executable}) and no working python{PYTHON_VERSION} is on PATH. "
        f"Install Python {PYTHON_VERSION}, or run this script with it."
    )


def build_environment(folder: Path) -> None:
    """Fill ``folder`` with the virtual environment.

    Raises:
        EnvironmentProblem: no Python 3.11, or a step failed; its output stands above on stderr.
    """
    python = str(interpreter(folder))
    pip_install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    _step("making the virtual environment", [str(find_python()), "-m", "venv", str(folder)])
    _step("installing torch", [*pip_install, *TORCH_REQUIREMENTS])
    _step("installing SGLang", [*pip_install, "--no-deps", "--requirement", str(REQUIREMENTS)])
    _step("importing it once", [python, "-c", "import sglang.srt.server_args"])


def _step(title: str, command: list[str]) -> None:
    print(f"sglang_env: {title}", file=sys.stderr, flush=True)
    # A PYTHONPATH or PYTHONHOME of the caller would leak the caller's packages into the environment.
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=inherited | CPU_ENGINE_VARIABLES, check=False
    )
    if done.returncode != 0:
        raise EnvironmentProblem(f"{title} failed with exit status {done.returncode}: {' '.join(command)}")


@contextmanager
def _locked(lock_file: Path) -> Iterator[None]:
    with lock_file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"sglang_env: waiting for another process that holds {lock_file}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ensure_environment(
    *, root: Path | None = None, requirements: Path = REQUIREMENTS, build: Builder = build_environment
) -> Path:
    """The interpreter of the environment, which is made first when it is missing or was left half-made.

    A virtual environment cannot be moved, so it is built where it stays: under a lock, with a marker file written last.

    Args:
        root: folder of all cached environments; default: :func:`cache_root`.
        requirements: what the folder's name is a hash of; ``build`` must install the same.
        build: fills the folder that it is given, which does not exist yet.

    Raises:
        EnvironmentProblem: it cannot be made here.
    """
    folder = environment_folder(root=root, requirements=requirements)
    if is_complete(folder):
        return interpreter(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        if not is_complete(folder):
            if folder.exists():
                print(f"sglang_env: {folder} is incomplete; making it anew", file=sys.stderr, flush=True)
                shutil.rmtree(folder)
            build(folder)
            (folder / COMPLETE_MARKER).write_text(f"recipe {RECIPE_VERSION}\n", encoding="utf-8")
    return interpreter(folder)


def main() -> int:
    try:
        python = ensure_environment()
    except EnvironmentProblem as problem:
        print(f"sglang_env: {problem}", file=sys.stderr)
        return 1
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
