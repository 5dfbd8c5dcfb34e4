"""What is attached to, and why not: each cause has its own text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_moeperf import asking
from pytest_moeperf.asking import Answer
from pytest_moeperf.engines import attached
from pytest_moeperf.engines.attached import attach
from pytest_moeperf.engines.unreachable import unreachable
from pytest_moeperf.errors import ServerError
from pytest_moeperf.model.spec import ServerSpec, Stated
from pytest_moeperf.outgoing.key import ApiKey

URL = "http://gpu-box:30000"
SGLANG = {"model_path": "/models/GLM-5", "moe_runner_backend": "triton", "version": "0.5.14"}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def answering(monkeypatch: pytest.MonkeyPatch, replies: Callable[[str], Any]) -> None:
    """``replies`` gives JSON, a text, or None for an endpoint that is not there."""

    class Scripted:
        def __init__(self, *, url: str, api_key: ApiKey | None) -> None:
            del url, api_key

        def get_json(self, path: str) -> Answer:
            data = replies(path)
            if data is None:
                return Answer(path=path, status=404, cause=asking.ABSENT, problem=f"{path}: there is no such endpoint")
            return Answer(path=path, status=200, data=data)

        def server_info(self) -> Answer:
            return self.get_json("/server_info")

        def get_text(self, path: str) -> Answer:
            return Answer(path=path, status=200, text=replies(path) or "")

        def post(self, path: str, body: dict[str, Any]) -> Answer:
            del body
            return Answer(path=path, status=404, cause=asking.ABSENT)

    monkeypatch.setattr(attached, "Control", Scripted)


def spec(configured: str = "", **stated: str) -> ServerSpec:
    return ServerSpec(engine="attached", backend="attached", attach_url=URL, model=configured, stated=Stated(**stated))


def refused(given: ServerSpec) -> str:
    with pytest.raises(ServerError) as caught:
        attach(given)
    return str(caught.value)


def cards(*names: str) -> dict[str, Any]:
    return {"data": [{"id": name, "owned_by": "vllm"} for name in names]}


@pytest.mark.parametrize(
    ("answer", "has_key", "text"),
    [
        (
            Answer(path="/v1/models", cause=asking.REFUSED, problem="/v1/models: connection refused"),
            False,
            f"{URL}: connection refused\n"
            "  hint: nobody listens there: start the server, or mend the port; a server that was started with --host "
            "127.0.0.1 answers on its own machine alone",
        ),
        (
            Answer(path="/v1/models", cause=asking.NAME, problem="/v1/models: the host name 'gpu-box' is not known"),
            False,
            f"{URL}: the host name 'gpu-box' is not known\n  hint: mend the host name, or run where it is known",
        ),
        (
            Answer(path="/v1/models", status=401, cause=asking.KEY, problem="/v1/models: refused"),
            False,
            f"{URL} asks for an API key (status 401)\n  hint: export MOEPERF_API_KEY=...",
        ),
        (
            Answer(path="/v1/models", status=403, cause=asking.KEY, problem="/v1/models: refused"),
            True,
            f"{URL} refuses the API key of MOEPERF_API_KEY (status 403)\n"
            "  hint: put the key that the server was started with there: export MOEPERF_API_KEY=...",
        ),
        (
            Answer(
                path="/v1/models",
                cause=asking.CERTIFICATE,
                problem="/v1/models: its TLS certificate is not trusted: self-signed certificate",
            ),
            False,
            f"{URL}: its TLS certificate is not trusted: self-signed certificate\n"
            "  hint: trust its authority for this run: export SSL_CERT_FILE=/path/to/ca.pem; or attach to its http:// "
            "address",
        ),
        (
            Answer(path="/v1/models", status=503, cause=asking.STATUS, problem="/v1/models: status 503"),
            False,
            f"{URL}: a gateway answers for the server: status 503\n"
            "  hint: attach to the server's own address; if this is it, wait until it is up",
        ),
        (
            Answer(path="/v1/models", status=404, cause=asking.ABSENT, problem="/v1/models: 404"),
            False,
            f"{URL} answers, and has neither /v1/models nor an SGLang's /server_info\n"
            "  hint: is this the base URL of an inference server? A path before /v1 belongs to it: "
            "--perf-attach=URL/PATH",
        ),
    ],
)
def test_each_cause_has_its_text(answer: Answer, has_key: bool, text: str) -> None:
    assert str(unreachable(URL, answer, has_key=has_key)) == text


def test_a_proxy_that_others_would_use_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@proxy.example:3128")
    answer = Answer(path="/v1/models", cause=asking.LATE, problem="/v1/models: no whole answer came within 10 s")
    assert str(unreachable(URL, answer, has_key=False)) == (
        f"{URL} can't be reached directly: no whole answer came within 10 s. The proxy of this environment, "
        "proxy.example:3128, is not used\n"
        "  hint: a proxy would be measured with the server: run where the server answers without one, such as on its "
        "own host"
    )
    monkeypatch.setenv("no_proxy", "gpu-box")
    assert "proxy" not in str(unreachable(URL, answer, has_key=False))


def test_what_the_server_says_counts_before_what_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"/server_info": SGLANG}.get)
    found = attach(spec(engine="vllm", version="1"))
    assert (found.engine, found.version, found.model) == ("sglang", "0.5.14", "/models/GLM-5")
    answering(monkeypatch, {"/v1/models": {"data": [{"id": "m"}]}}.get)
    stated = attach(spec(engine="ours", version="1", model="zai-org/GLM-5"))
    assert (stated.engine, stated.version, stated.model, stated.served) == ("ours", "1", "zai-org/GLM-5", ("m",))
    assert attach(spec()).engine is None


def test_several_servers_behind_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter(range(100))

    def replies(path: str) -> Any:
        return SGLANG | {"pid": 1 + next(asked) % 2} if path == "/server_info" else None

    answering(monkeypatch, replies)
    assert refused(spec()) == (
        f"several servers answer at {URL}: sglang 0.5.14 (pid 1) serving /models/GLM-5, and sglang 0.5.14 (pid 2) "
        "serving /models/GLM-5 (differing in pid)\n"
        "  hint: figures of several servers are those of none: attach to the address of one of them"
    )


def test_another_model_than_the_configured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"/server_info": SGLANG}.get)
    for same in ("", "zai-org/GLM-5", "/elsewhere/GLM-5", "glm-5"):
        assert attach(spec(same)).model == "/models/GLM-5"
    assert refused(spec("zai-org/GLM-4.5")) == (
        f"{URL} serves /models/GLM-5, and the configuration's model is zai-org/GLM-4.5\n"
        "  hint: attach to a server of that model, or say in moeperf.toml that it is what this one serves: [attach] "
        'model = "zai-org/GLM-4.5"'
    )
    assert attach(spec("zai-org/GLM-4.5", model="zai-org/GLM-4.5")).model == "zai-org/GLM-4.5"


def test_one_of_several_models_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"/v1/models": cards("a", "b")}.get)
    assert refused(spec()) == (
        f'{URL} serves 2 models: a, b\n  hint: name the one to measure in moeperf.toml: [attach] model = "a"'
    )
    found = attach(spec(model="b"))
    assert (found.model, found.served) == ("b", ("b", "a"))


def test_nothing_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda _: None)
    assert refused(spec()).startswith(f"{URL} answers, and has neither /v1/models nor")
    answering(monkeypatch, {"/server_info": {"hello": 1}}.get)
    assert refused(spec()).startswith(f"{URL} answers, and has neither /v1/models nor")
