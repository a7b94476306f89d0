"""One process holds a claim; it ends with the process, or when nobody touched it for minutes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rectifier.data.features import claims
from rectifier.data.features.claims import Claim


def test_a_claim_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "a.claim"
    claim = Claim.take(path)
    assert claim is not None
    assert Claim.take(path) is None
    assert Claim.take(tmp_path / "b.claim") is not None
    claim.touch()
    claim.release()
    assert not path.exists()
    again = Claim.take(path)
    assert again is not None
    again.release()


def test_the_claim_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "a.claim"
    code = f"""
import os, pathlib
from rectifier.data.features.claims import Claim
claim = Claim.take(pathlib.Path({str(path)!r}))
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert path.exists()
    assert Claim.take(path) is not None


@pytest.mark.parametrize("locks", [True, False])
def test_the_claim_of_another_machine_is_free_when_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    if not locks:
        monkeypatch.setattr(claims, "fcntl", None)
    path = tmp_path / "a.claim"
    path.write_text("another-machine")
    assert Claim.take(path) is None
    old = time.time() - claims.STALE - 1
    os.utime(path, (old, old))
    claim = Claim.take(path)
    assert claim is not None
    assert path.read_text() == claims._machine()
    assert Claim.take(path) is None
    claim.release()


def test_releasing_a_claim_that_another_machine_took_over(tmp_path: Path) -> None:
    claim = Claim.take(tmp_path / "a.claim")
    assert claim is not None
    (tmp_path / "a.claim").unlink()
    claim.touch()
    claim.release()
