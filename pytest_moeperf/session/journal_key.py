"""What tells this user's own journals from those that came with a checkout: a key that lies outside of it."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from pathlib import Path

from pytest_moeperf.servers.private_files import create_private, read_private

_BYTES = 32


def key() -> bytes:
    """Drawn once for each user.

    :raises OSError: it can't be read or made, or others may read it.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "pytest-moeperf" / "journal.key"
    try:
        return read_private(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    drawn = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(create_private(drawn), "wb") as file:
        file.write(secrets.token_bytes(_BYTES))
    try:
        # Whoever comes second takes the key of the first.
        os.link(drawn, path)
    except FileExistsError:
        pass
    finally:
        drawn.unlink()
    return read_private(path)


def signed(text: str, *, with_key: bytes) -> str:
    """One line: the signature, a blank, the text."""
    return f"{_signature(text, with_key)} {text}"


def verified(line: str, *, with_key: bytes) -> str:
    """The text of a line that ``signed`` made on this host with this key.

    :raises ValueError: it is none.
    """
    signature, _, text = line.partition(" ")
    if not hmac.compare_digest(signature.encode(), _signature(text, with_key).encode()):
        raise ValueError("not signed with this user's key on this host")
    return text


def _signature(text: str, with_key: bytes) -> str:
    # Homes are shared between hosts; what was measured on one is not what another would measure.
    return hmac.new(with_key, f"{socket.gethostname()}\n{text}".encode(), "sha256").hexdigest()
