"""The log of an attached server is evidence where its path is stated, and where it is that server's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_moeperf.engines.attached import AttachedEngine
from pytest_moeperf.engines.attached_log import of_another_server, read_stated_log
from pytest_moeperf.errors import UsageProblem
from pytest_moeperf.evidence import collect
from pytest_moeperf.model.spec import ServerSpec, Stated

H200_LOG = Path(__file__).parent.parent / "evidence_logs" / "sglang-0.5.14-h200" / "triton.log"
INFO = {"moe_runner_backend": "triton", "device": "cuda", "version": "0.5.14"}


def test_it_proves_what_server_info_only_claims() -> None:
    def evidence(log: str) -> str:
        return collect(
            engine="attached",
            engine_version=None,
            requested="triton",
            device="",
            log_text=log,
            server_info=INFO,
            metrics_text=None,
        ).status

    assert evidence("") == "unknown"
    assert evidence(read_stated_log(str(H200_LOG))) == "confirmed"


def test_former_servers_in_an_appended_log_prove_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("a\n[x] server_args=ServerArgs(port=1)\nold\n[y] server_args=ServerArgs(port=2)\nnew\n")
    assert read_stated_log(str(log)) == "[y] server_args=ServerArgs(port=2)\nnew\n"
    log.write_text("before\n[x] server_args=ServerArgs(port=1)\nnew\n")
    assert read_stated_log(str(log)).startswith("before\n")


def test_only_the_ends_of_a_huge_log_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_moeperf.engines.attached_log.END_READ", 10)
    log = tmp_path / "server.log"
    for text, read in (
        ("0123456789abc", "0123456789abc"),
        ("first line" + "." * 50 + "the latest", "first line\nthe latest"),
    ):
        log.write_text(text)
        assert read_stated_log(str(log)) == read


def test_none_stated_and_gone_is_none() -> None:
    assert read_stated_log("") == read_stated_log("/no/such/file") == ""


@pytest.mark.parametrize(
    ("info", "fails"),
    [({"port": 30000, "random_seed": 7}, ""), ({"port": 30001}, "port 30000 there, 30001 here"), (None, ""), ({}, "")],
)
def test_the_log_of_another_server_is_no_evidence(info: dict[str, object] | None, fails: str) -> None:
    checks = of_another_server("/logs/s.log", "[x] server_args=ServerArgs(port=30000, random_seed=7)\n", info)
    assert [check.status for check in checks] == (["fail"] if fails else [])
    assert all(
        check.message.startswith(f"not shown: /logs/s.log is the log of another server ({fails})") for check in checks
    )


def test_a_path_that_cannot_be_read_is_refused_before_anything_is_measured() -> None:
    spec = ServerSpec(engine="attached", backend="x", attach_url="http://h:1", stated=Stated(log="/no/such/file"))
    with pytest.raises(UsageProblem) as caught:
        AttachedEngine().check(spec)
    assert str(caught.value) == (
        "[attach] log: /no/such/file can't be read: No such file or directory\n"
        "  allowed: a file on this machine that the attached server writes its log to\n"
        "  next: mend the path, or take the line out: the evidence is then what /server_info says"
    )
