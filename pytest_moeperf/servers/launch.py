"""Starting a guardian, and a server under it."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_moeperf.errors import ServerError
from pytest_moeperf.model.server import (
    PORT_PLACEHOLDER,
    RECORD_SCHEMA,
    RENDEZVOUS_PLACEHOLDER,
    LaunchPlan,
    NodeCommand,
    ServerRecord,
)
from pytest_moeperf.outgoing.secrets import API_KEY_PLACEHOLDER, KEY_FILE_PLACEHOLDER
from pytest_moeperf.servers import launch_folder, proctree
from pytest_moeperf.servers.link import GuardianLink, HolderIdentity
from pytest_moeperf.servers.lock_files import LockFile
from pytest_moeperf.servers.ports import free_port
from pytest_moeperf.servers.private_files import create_private
from pytest_moeperf.servers.problems import RuntimeFolderError
from pytest_moeperf.servers.runtime import RUNTIME_VARIABLE
from pytest_moeperf.servers.wire import Line, LineClosedError

_START_REPLY_S = 60.0


def launch(
    plan: LaunchPlan, *, root: Path, port: int, holder: HolderIdentity, exclusive: bool, leases: Sequence[LockFile]
) -> GuardianLink:
    """Start a guardian, and the server under it.

    :param root: the runtime folder.
    :param leases: of its devices, which the guardian holds from now on.
    :raises RuntimeFolderError: the runtime folder can't be written.
    :raises ServerError: the program or its working folder is not there, or can't be run.
    """
    if sys.platform != "linux":
        raise ServerError(
            what=f"{plan.name}: servers are launched on Linux only, this is {sys.platform}",
            hint="start it by hand and attach to it with --perf-attach=URL",
        )
    launch_id = uuid.uuid4().hex
    folder = root / "launches" / launch_id
    try:
        folder.mkdir(mode=0o700)
        line = _start_guardian(folder, leases)
    except OSError as error:
        raise RuntimeFolderError(
            what=f"{plan.name} could not be started: {folder} cannot be written: {error.strerror}",
            hint=f"see df -h, or name another folder with {RUNTIME_VARIABLE}",
        ) from error
    key = plan.api_key.reveal() if plan.api_key else None
    values = {
        PORT_PLACEHOLDER: str(port),
        API_KEY_PLACEHOLDER: key or "",
        KEY_FILE_PLACEHOLDER: str(folder / launch_folder.KEY_FILE_NAME),
    }
    if plan.followers:
        values[RENDEZVOUS_PLACEHOLDER] = str(free_port())
    url_host = f"[{plan.host}]" if ":" in plan.host else plan.host
    gpus = [device for device in plan.devices if device.startswith(("GPU-", "MIG-"))]
    request = {
        "op": "start",
        **holder.to_message(),
        "command": [_filled(part, values) for part in plan.command],
        "env": {**os.environ, **{key: _filled(value, values) for key, value in plan.env.items()}},
        "followers": [_follower(node, values) for node in plan.followers],
        "cwd": plan.cwd or str(Path.cwd()),
        "folder": str(folder),
        # The guardian writes it down: what it wrote it also removes, should this process be killed now.
        "api_key": key,
        "key_file": _filled(plan.key_file, values),
        "stop_timeout_s": plan.stop_timeout_s,
        "gpus": gpus,
        "gpu_module_folder": _folder_of_module("pynvml") if gpus else None,
        "record": {
            "schema": RECORD_SCHEMA,
            "launch_id": launch_id,
            "spec_digest": plan.spec_digest,
            "name": plan.name,
            "exclusive": exclusive,
            "url": f"http://{url_host}:{port}",
            "host": plan.host,
            "port": port,
            "health_path": plan.health_path,
            "devices": list(plan.devices),
            "folder": str(folder),
            "log_path": str(folder / launch_folder.LOG_NAME),
        },
    }
    try:
        reply = line.ask(request, timeout_s=_START_REPLY_S)
    except (LineClosedError, TimeoutError) as error:
        line.close()  # what there was to end and to remove is the guardian's work, or its sweeper's
        raise ServerError(
            what=f"{plan.name}: its guardian process ended before it started the server",
            hint=f"see {folder / launch_folder.GUARDIAN_LOG_NAME}",
        ) from error
    except BaseException:
        line.close()  # Ctrl-C: the guardian ends at once
        raise
    if not reply["ok"]:
        line.close()
        raise ServerError(
            what=f"{plan.name} could not be started: {reply['error']}",
            hint=f"the command is: {' '.join(plan.command)}",
        )
    return GuardianLink(line, ServerRecord.from_dict(reply["record"]), stop_timeout_s=plan.stop_timeout_s)


def _start_guardian(folder: Path, leases: Sequence[LockFile]) -> Line:
    log = create_private(folder / launch_folder.GUARDIAN_LOG_NAME)
    ours, theirs = socket.socketpair()
    program = Path(__file__).with_name("__main__.py")
    locks = [text for lease in leases for text in (str(lease.path), str(lease.fileno()))]
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in (proctree.LAUNCH_VARIABLE, proctree.GUARDIAN_VARIABLE)
    }
    try:
        # -S -P: neither site-packages nor the current folder; see __main__.py.
        subprocess.run(
            [sys.executable, "-S", "-P", str(program), str(theirs.fileno()), str(folder), *locks],
            pass_fds=(theirs.fileno(), *(lease.fileno() for lease in leases)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd="/",
            env=environment,
            start_new_session=True,
            check=False,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        os.close(log)
        theirs.close()
    return Line(ours)


def _follower(node: NodeCommand, values: Mapping[str, str]) -> dict[str, object]:
    # SGLang's other nodes answer health questions, so each has a port of its own.
    own = {**values, PORT_PLACEHOLDER: str(free_port())}
    return {
        "command": [_filled(part, own) for part in node.command],
        "env": {**os.environ, **{key: _filled(value, own) for key, value in node.env.items()}},
    }


def _filled(text: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def _folder_of_module(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
