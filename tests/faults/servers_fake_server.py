"""A server for the tests of the servers room: answers /health, and misbehaves as it is told."""

from __future__ import annotations

import argparse
import http.server
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class _Handler(http.server.BaseHTTPRequestHandler):
    health = 200

    def do_GET(self) -> None:
        status = self.health if self.path == "/health" else 404
        if self.path == "/hang":
            type(self).health = 503
            status = 200
        self.send_response(status)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Not a line for each health question."""


def _daemonize(pid_file: Path) -> None:
    """A grandchild in a session of its own, whose parent is gone: what schedulers become."""
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    launcher = (
        "import subprocess, sys; null = subprocess.DEVNULL; "
        f"print(subprocess.Popen([sys.executable, '-c', {program!r}], start_new_session=True, "
        "stdin=null, stdout=null, stderr=null).pid)"
    )
    done = subprocess.run([sys.executable, "-c", launcher], check=True, capture_output=True, text=True)
    pid_file.write_text(done.stdout)


def _start_children(pid_file: Path) -> None:
    """One in the server's session, and one of ``env -i setsid``, which shows nowhere whose it is."""
    program = (sys.executable, "-c", "import time; time.sleep(600)")
    plain = subprocess.Popen(program)
    hidden = subprocess.Popen(program, env={}, start_new_session=True)
    pid_file.write_text(f"{plain.pid} {hidden.pid}")


def main() -> None:
    """Runs until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--say", action="append", default=[])
    parser.add_argument("--exit-code", type=int)
    parser.add_argument("--health", type=int, default=200)
    parser.add_argument("--ready-after", type=float, default=0.0)
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--daemon-pid-file", type=Path)
    parser.add_argument("--children", type=Path)
    parser.add_argument("--api-key")
    parser.add_argument("--starts-file", type=Path)
    options = parser.parse_args()
    for line in options.say:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    if options.starts_file is not None:
        with options.starts_file.open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()} {options.port}\n")
    if options.exit_code is not None:
        sys.exit(options.exit_code)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.daemon_pid_file is not None:
        _daemonize(options.daemon_pid_file)
    if options.children is not None:
        _start_children(options.children)
    time.sleep(options.ready_after)
    _Handler.health = options.health
    http.server.ThreadingHTTPServer(("127.0.0.1", options.port), _Handler).serve_forever()


if __name__ == "__main__":
    main()
