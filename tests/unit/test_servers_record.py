"""LaunchPlan and ServerRecord: what they refuse, what they hide, what survives the disk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_moeperf.model.server import RECORD_SCHEMA, Holder, LaunchPlan, ServerRecord, WaitNotice
from pytest_moeperf.outgoing.key import ApiKey


def record() -> ServerRecord:
    return ServerRecord(
        schema=RECORD_SCHEMA,
        launch_id="ab12",
        spec_digest="d1",
        name="triton (sglang, TP8)",
        state="ready",
        exclusive=False,
        url="http://127.0.0.1:3000",
        host="127.0.0.1",
        port=3000,
        health_path="/health",
        devices=("GPU-1", "GPU-2"),
        pid=10,
        pid_start_time=1000,
        guardian_pid=9,
        guardian_start_time=999,
        boot_id="boot",
        hostname="host",
        pid_namespace="pid:[1]",
        cgroup="",
        folder="/run/m/launches/ab12",
        log_path="/run/m/launches/ab12/server.log",
        started_at="2026-11-01T10:00:00+00:00",
        start_s=12.5,
        holders=(Holder(pid=8, pid_start_time=998, since="2026-11-01T10:00:00+00:00", label="pytest gw0"),),
        keep_until=None,
        kept_by="",
    )


def test_a_record_survives_json() -> None:
    assert ServerRecord.from_dict(json.loads(json.dumps(record().to_dict()))) == record()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pid": "10"}, "server record: pid is '10', not int"),
        ({"pid": True}, "server record: pid is True, not int"),
        ({"exclusive": 1}, "server record: exclusive is 1, not bool"),
        ({"start_s": "soon"}, "server record: start_s is 'soon', not float or int or NoneType"),
        ({"schema": 1}, "server record: schema 1 is not 3"),
        (
            {"state": "dancing"},
            "server record: state 'dancing' is none of starting, ready, warm, exited, ending",
        ),
        ({"devices": ["GPU-1", 2]}, "server record: devices is not a list of texts"),
        ({"holders": [{"pid": 8}]}, "server record, holder: label is missing"),
        ({"colour": "red"}, "server record: colour is unknown"),
        ({"url": None}, "server record: url is None, not str"),
    ],
)
def test_a_damaged_record_names_its_first_bad_field(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="server record") as caught:
        ServerRecord.from_dict({**record().to_dict(), **change})
    assert str(caught.value) == problem


def test_a_record_with_a_field_missing_is_refused() -> None:
    plain = record().to_dict()
    del plain["boot_id"]
    with pytest.raises(ValueError, match=r"^server record: boot_id is missing$"):
        ServerRecord.from_dict(plain)
    with pytest.raises(ValueError, match=r"^server record: not a table but list$"):
        ServerRecord.from_dict([])


def test_a_plan_shows_no_secret() -> None:
    plan = LaunchPlan(
        command=("serve", "--port={port}"),
        name="x",
        spec_digest="d",
        api_key=ApiKey("s3cret"),
        env={"HF_TOKEN": "t0ken"},
    )
    assert "s3cret" not in repr(plan)
    assert "t0ken" not in repr(plan)


def test_a_plan_needs_a_command_and_a_place_for_the_port() -> None:
    with pytest.raises(ValueError, match=r"^x: the command is empty$"):
        LaunchPlan(command=(), name="x", spec_digest="d")
    with pytest.raises(ValueError, match=r"^x: neither command nor env says where the port goes \(\{port\}\)$"):
        LaunchPlan(command=("serve",), name="x", spec_digest="d")
    assert LaunchPlan(command=("serve",), env={"PORT": "{port}"}, name="x", spec_digest="d").env == {"PORT": "{port}"}


def test_cpus_are_shared_and_gpus_are_not() -> None:
    plan = LaunchPlan(command=("{port}",), name="x", spec_digest="d", devices=("GPU-1", "cpu:0-7"))
    assert plan.exclusive_devices == {"GPU-1"}


def test_a_wait_notice_says_for_whom_and_how_long() -> None:
    notice = WaitNotice(what="GPU-1 to measure on", holder="pid 7 (pytest gw1) measures there", waited_s=41.7)
    assert notice.text() == "waiting for GPU-1 to measure on: pid 7 (pytest gw1) measures there (42 s so far)"
