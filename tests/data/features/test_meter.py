"""Without a terminal, progress is a line now and then, and one at the end."""

from __future__ import annotations

import pytest

from rectifier._base import console
from rectifier.data.features import meter
from rectifier.data.features.meter import Meter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(meter.time, "monotonic", lambda: now[0])
    return now


def test_lines_of_progress(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Meter(2000, "ONNX Runtime on 2 CPU cores.") as shown:
        for _ in range(8):
            clock[0] += 5
            shown.advance(100)
        shown.left(900)  # other processes computed 300
        clock[0] += 10
        shown.advance(200)
    assert capsys.readouterr().err.splitlines() == [
        "Features: 300 of 2,000 images, 20 images/s, about 85 s left.",
        "Features: 600 of 2,000 images, 20 images/s, about 70 s left.",
        "Features: 1,300 of 2,000 images, 20 images/s, about 35 s left.",
        "1,000 images: features by ONNX Runtime on 2 CPU cores, 20 images/s.",
    ]


def test_nothing_is_said_when_quiet_or_after_an_error(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with console.quiet(), Meter(10, "x") as shown:
        clock[0] += 20
        shown.advance(10)
    with pytest.raises(ZeroDivisionError), Meter(10, "x") as shown:
        shown.advance(1 // 0)
    with Meter(10, "x") as shown:
        shown.left(0)  # others did everything
    assert capsys.readouterr().err == ""


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with console.progress("images/s") as display:
        task = display.add_task("features", total=10)
        display.advance(task, 5)
        display.advance(task, 5)
        display.refresh()
    assert "features" in capsys.readouterr().err
