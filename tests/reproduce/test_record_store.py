"""Records of several processes, and of several machines: each is kept, and the right one counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rectifier.reproduce.record_store import RecordStore

FACTS = {"experiment": "one", "title": "A title", "headline": "", "chosen": [], "quick": False}


def opened(folder: Path, **options: Any) -> RecordStore:
    return RecordStore(folder / "results" / "one.json", folder / "records" / "one", quick=False, again=False, **options)


def record(key: str, test: str, print_of_data: str = "here") -> dict[str, Any]:
    return {"key": key, "config": {}, "seed": 0, "data": {"fingerprint": print_of_data}, "test": test}


def write(store: RecordStore, *keys: str) -> bool:
    places = {(key, "", 0): key for key in keys}
    return store.write(FACTS, store.current(places))


def published(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results" / "one.json").read_text())
    return content


def scores(folder: Path) -> dict[str, str]:
    return {run["key"]: run["test"] for run in published(folder)["runs"]}


def test_a_process_that_had_not_seen_another_loses_nothing_of_it(tmp_path: Path) -> None:
    """Both read, both record a run, both write: the later sees that it has not seen all, and writes once more."""
    first, second = opened(tmp_path), opened(tmp_path)
    first.keep(record("a", "of the first"), scored=True)
    first.read()
    second.keep(record("b", "of the second"), scored=True)
    assert not write(first, "a", "b")
    second.read()
    assert write(second, "a", "b")
    assert write(first, "a", "b") is False  # without having read again, over what the second wrote
    assert first.read()
    assert write(first, "a", "b")
    assert scores(tmp_path) == {"a": "of the first", "b": "of the second"}


def test_a_stale_write_does_not_bring_back_what_was_retrained(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.keep(record("a", "old"), scored=True)
    store.read()
    write(store, "a")
    stale = (tmp_path / "results" / "one.json").read_bytes()
    retrained = RecordStore(store.path, tmp_path / "records" / "one", quick=False, again=True)
    retrained.keep(record("a", "new"), scored=True)
    retrained.read()
    write(retrained, "a")
    before = published(tmp_path)
    (tmp_path / "results" / "one.json").write_bytes(stale)  # by a process that had read before
    assert store.read()
    write(store, "a")
    assert published(tmp_path) == before
    assert [(one["test"], one["replaced"]) for one in before["superseded"]] == [("old", "trained anew")]


def test_a_published_record_from_elsewhere_counts_before_files_that_do_not_know_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.keep(record("a", "of this machine"), scored=True)
    store.read()
    write(store, "a")
    text = store.path.read_text().replace("of this machine", "of another machine")
    store.path.write_text(text)
    later = opened(tmp_path)
    write(later, "a")
    assert scores(tmp_path) == {"a": "of another machine"}


def test_data_that_changes_and_changes_back(tmp_path: Path) -> None:
    for data in ("first", "second", "first"):
        store = opened(tmp_path)
        if store.get("a"):
            store.forget("a")
        store.keep(record("a", data, data), scored=True)
        store.read()
        write(store, "a")
        assert scores(tmp_path) == {"a": data}
    assert {one["test"] for one in published(tmp_path)["superseded"]} == {"first", "second"}
    assert {one["replaced"] for one in published(tmp_path)["superseded"]} == {"other data"}


def test_what_is_forgotten_and_not_retrained_stays_forgotten(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.keep(record("a", "old"), scored=True)
    store.forget("a")
    store.read()
    write(store, "a")
    for _ in range(2):
        later = opened(tmp_path)
        assert later.get("a") is None
        write(later, "a")
        assert [one["replaced"] for one in published(tmp_path)["superseded"]] == ["other data"]


def test_records_are_found_again_when_the_published_file_is_lost(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.keep(record("a", "scores"), scored=True)
    store.keep(record("b", "not to be seen"), scored=False)
    later = opened(tmp_path)
    assert later.knows("a", scored=True)
    assert later.knows("b")
    assert not later.knows("b", scored=True)


@pytest.mark.parametrize("there", ["[]", '{"record": {}, "replaces": [], "replaced": null}', '{"runs": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, there: str) -> None:
    (tmp_path / "records" / "one").mkdir(parents=True)
    (tmp_path / "records" / "one" / "a-b.json").write_text(there)
    with pytest.raises(ValueError, match=r"a-b\.json is not a run record"):
        opened(tmp_path)
