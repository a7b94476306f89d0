"""Processes share the work of one cache, and a killed one loses at most a block."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.features import FakeNetwork, photographs
from rectifier.data.dataset import ImageData
from rectifier.data.features import cached_features, extract
from rectifier.data.features.claims import Claim

WORKER = """
import os, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from rectifier.data.features import cached_features, extract
from helpers.features import FakeNetwork, photographs, table_of
extract.BLOCK_IMAGES, extract._BATCH = 8, 4
root = Path({root!r})
class Slow(FakeNetwork):
    def __call__(self, pixels):
        time.sleep(0.02)
        if self.seen >= {kill}:
            os._exit(9)
        return super().__call__(pixels)
network = Slow()
data = cached_features(table_of(root, sorted(path.name for path in root.glob("*.png"))), network)
print(network.seen, len(data))
"""


@pytest.fixture
def data(tmp_path: Path) -> ImageData:
    return photographs(tmp_path / "photos", 90)


def worker(data: ImageData, kill: int = 10**9) -> subprocess.Popen[str]:
    code = WORKER.format(root=str(data.images.root), tests=str(Path(__file__).parents[2]), kill=kill)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_share_the_work(data: ImageData, cache: Path, tmp_path: Path) -> None:
    both = [worker(data), worker(data)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    seen = [int(output.split()[0]) for output, _ in outputs]
    assert sum(seen) == 90
    assert [output.split()[1] for output, _ in outputs] == ["90", "90"]
    network = FakeNetwork()
    shared = cached_features(data, network).images.gather(np.arange(90))
    assert network.seen == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECTIFIER_CACHE", str(tmp_path / "alone"))
        alone = cached_features(data, FakeNetwork()).images.gather(np.arange(90))
    np.testing.assert_allclose(shared, alone, rtol=1e-5, atol=1e-5)
    assert not list(cache.glob("*/*.claim"))


def test_a_killed_process_loses_at_most_a_block(data: ImageData) -> None:
    killed = worker(data, kill=44)
    killed.communicate(timeout=60)
    assert killed.returncode == 9
    network = FakeNetwork()
    cached_features(data, network)
    assert 90 - 44 <= network.seen <= 90 - 44 + extract.BLOCK_IMAGES


def test_blocks_of_other_processes_are_waited_for(
    data: ImageData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cached_features(data.select(range(8)), FakeNetwork()).images.folder
    claim = Claim.take(folder / f"{extract_digest(data, 8)}.claim")
    assert claim is not None
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            claim.release()  # the other gives up

    monkeypatch.setattr("rectifier.data.features.extract.time.sleep", pause)
    network = FakeNetwork()
    assert len(cached_features(data, network)) == 90
    assert (len(pauses), network.seen) == (3, 82)
    assert capsys.readouterr().err.count("Waiting for 8 images of other processes.") == 1


def test_what_killed_processes_left_is_deleted(data: ImageData) -> None:
    folder = cached_features(data.select(range(8)), FakeNetwork()).images.folder
    names = [".block.features.7-ab.tmp", "00.claim"]
    for name in names:
        (folder / name).write_text("")
        os.utime(folder / name, (1, 1))
        (folder / f".new-{name.strip('.')}").write_text("")
    cached_features(data, FakeNetwork())
    left = {path.name for path in folder.iterdir() if path.suffix in (".tmp", ".claim")}
    assert left == {f".new-{name.strip('.')}" for name in names}


def extract_digest(data: ImageData, position: int) -> str:
    from helpers.features import digest

    return digest(data.images.root / data.images.paths[position]).hex()
