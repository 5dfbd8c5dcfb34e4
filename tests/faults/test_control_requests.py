"""What is asked of a launched server goes to it, whatever the shell says of proxies."""

from __future__ import annotations

from pathlib import Path

from fault_world import World, cleaned_up

DEAD = "http://127.0.0.1:9"


def test_a_proxy_of_the_shell_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "suite", config="[backends.plain]\n")
    with cleaned_up(world):
        finished = world.run(
            "--backend=plain", "--update-baselines", http_proxy=DEAD, all_proxy=DEAD, no_proxy="", NO_PROXY=""
        )
        assert finished.code == 0, finished.raw
        (baseline,) = (entry.baseline for entry in world.baselines())
        server = baseline.fingerprint.server
        assert server["disable_radix_cache"] is False
        assert server["effective_max_running_requests"]
        world.assert_nothing_is_left()
