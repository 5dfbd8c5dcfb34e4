"""A model's ordinary tokens, from its files; and when prompts of other tokens are other work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_moeperf.environment.vocabulary import read_vocabulary
from pytest_moeperf.fingerprint import build_fingerprint, differences, known_differences, vocabulary_field
from pytest_moeperf.model.run import Fingerprint
from pytest_moeperf.model.vocabulary import FIRST_ID, UNREAD, Vocabulary
from pytest_moeperf.model.workload import Workload


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def ids(folder: Path) -> list[int]:
    vocabulary = read_vocabulary(folder)
    assert vocabulary is not None
    return vocabulary.ids.tolist()


def test_special_added_and_placeholder_tokens_are_left_out(tmp_path: Path) -> None:
    ordinary = {f"t{number}": number for number in range(30)}
    special = {"<unused0>": 30, "<0x0A>": 31, "[MASK]": 32, "<|reserved_1|>": 33, "a<b": 34, "[x": 35}
    write(
        tmp_path,
        config={
            "eos_token_id": [11, 12],
            "vision_config": {"image_token_index": 13},
            "text_config": {"vocab_size": 64, "pad_token_id": 14, "max_position_embeddings": 4096},
        },
        generation_config={"eos_token_id": 15},
        tokenizer_config={"added_tokens_decoder": {"16": {"content": "<x>"}}},
        added_tokens={"<y>": 17},
        tokenizer={"added_tokens": [{"id": 18, "content": "<z>"}], "model": {"vocab": {**ordinary, **special}}},
    )
    assert ids(tmp_path) == [10, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 34, 35]


def test_without_a_tokenizer_the_config_alone_says_it(tmp_path: Path) -> None:
    write(tmp_path, config={"vocab_size": 32, "bos_token_id": 11})
    assert ids(tmp_path) == [10, *range(12, 32)]


def test_pieces_in_the_order_of_their_ids(tmp_path: Path) -> None:
    pieces = [[f"p{number}", -1.0] for number in range(20)]
    pieces[15] = ["<pad>", 0.0]
    write(tmp_path, config={"vocab_size": 64}, tokenizer={"model": {"type": "Unigram", "vocab": pieces}})
    assert ids(tmp_path) == [*range(10, 15), *range(16, 20)]


def test_a_tokenizer_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path, config={"vocab_size": 20})
    other = write(tmp_path / "other", tokenizer={"added_tokens": [{"id": 12}], "model": {"vocab": {}}})
    vocabulary = read_vocabulary(tmp_path, tokenizer=other)
    assert vocabulary is not None
    assert 12 not in vocabulary.ids


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"vocab_size": "many"}', '{"vocab_size": 0}', None])
def test_a_folder_that_does_not_say_it(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert read_vocabulary(tmp_path) is None


def test_damaged_tokenizer_files_cost_nothing(tmp_path: Path) -> None:
    write(tmp_path, config={"vocab_size": 20})
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "tokenizer_config.json").write_text("[")
    assert ids(tmp_path) == list(range(FIRST_ID, 20))


def test_what_it_is_called() -> None:
    assert UNREAD.name == "990 ids, 10 to 999"
    gaps = Vocabulary(size=100, reserved=frozenset({50}))
    assert gaps.name.startswith("89 ids, 10 to 99, sha256 ")
    assert gaps.name != Vocabulary(size=100, reserved=frozenset({51})).name


def fingerprint(vocabulary: Vocabulary, *, load_format: str = "auto") -> Fingerprint:
    return build_fingerprint(
        workload=Workload(concurrency=1).as_fields() | vocabulary_field(vocabulary),
        server_info={"load_format": load_format},
        env={},
        software={},
        hardware={},
        environment={},
    )


WHOLE = Vocabulary(size=151_936)


def test_prompts_of_other_tokens_are_other_work() -> None:
    (found,) = differences(fingerprint(UNREAD), fingerprint(WHOLE))
    assert (found.field, found.blocking) == ("workload.vocabulary", True)
    assert (found.baseline, found.here) == ("990 ids, 10 to 999", "151926 ids, 10 to 151935")
    assert differences(fingerprint(WHOLE), fingerprint(WHOLE)) == ()
    assert differences(fingerprint(UNREAD), fingerprint(UNREAD)) == ()


def test_but_not_for_random_weights() -> None:
    (found,) = differences(fingerprint(UNREAD, load_format="dummy"), fingerprint(WHOLE, load_format="dummy"))
    assert (found.field, found.blocking) == ("workload.vocabulary", False)


def test_nothing_is_foretold_of_them_before_a_launch() -> None:
    here = build_fingerprint(
        workload=Workload(concurrency=1).as_fields(),
        server_info=None,
        env={},
        software={},
        hardware={},
        environment={},
    )
    assert known_differences(fingerprint(WHOLE), here) == ()
