"""Why an address could not be attached to: each cause has its text and its way out."""

from __future__ import annotations

import urllib.request
from urllib.parse import urlsplit

from pytest_moeperf import asking
from pytest_moeperf.asking import Answer
from pytest_moeperf.errors import ServerError

_GATEWAY = frozenset({407, 502, 503, 504})
_NO_WAY = frozenset({asking.REFUSED, asking.NAME, asking.LATE, asking.LOST})


def unreachable(url: str, answer: Answer, *, has_key: bool) -> ServerError:
    """:param answer: what came instead of the list of models."""
    if answer.absent:
        return no_server(url)
    why = answer.problem.removeprefix(f"{answer.path}: ")
    if answer.cause in _NO_WAY and (proxy := _proxy_for(url)):
        return ServerError(
            what=f"{url} can't be reached directly: {why}. The proxy of this environment, {proxy}, is not used",
            hint="a proxy would be measured with the server: run where the server answers without one, such as on its "
            "own host",
        )
    if answer.cause == asking.KEY:
        return _wrong_key(url, answer.status, has_key=has_key)
    if answer.status in _GATEWAY:
        return ServerError(
            what=f"{url}: a gateway answers for the server: {why}",
            hint="attach to the server's own address; if this is it, wait until it is up",
        )
    return ServerError(what=f"{url}: {why}", hint=_HINTS.get(answer.cause, _IS_IT_UP))


def _wrong_key(url: str, status: int | None, *, has_key: bool) -> ServerError:
    if has_key:
        return ServerError(
            what=f"{url} refuses the API key of MOEPERF_API_KEY (status {status})",
            hint="put the key that the server was started with there: export MOEPERF_API_KEY=...",
        )
    return ServerError(what=f"{url} asks for an API key (status {status})", hint="export MOEPERF_API_KEY=...")


def no_server(url: str) -> ServerError:
    return ServerError(
        what=f"{url} answers, and has neither /v1/models nor an SGLang's /server_info",
        hint="is this the base URL of an inference server? A path before /v1 belongs to it: --perf-attach=URL/PATH",
    )


_IS_IT_UP = "is the server up, and is this its address? `curl URL/v1/models` lists its models"
_HINTS = {
    asking.CERTIFICATE: "trust its authority for this run: export SSL_CERT_FILE=/path/to/ca.pem; or attach to its "
    "http:// address",
    asking.NAME: "mend the host name, or run where it is known",
    asking.REFUSED: "nobody listens there: start the server, or mend the port; a server that was started with --host "
    "127.0.0.1 answers on its own machine alone",
    asking.TLS: "attach by http:// if it does not speak TLS",
    asking.REDIRECT: "attach to the address that it redirects to",
}


def _proxy_for(url: str) -> str:
    """What other programs would go through, without its password; empty: nothing."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return ""
    shown = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    return f"{shown.hostname}:{shown.port}" if shown.port else str(shown.hostname)
