from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rectifier import LabelSpace
from rectifier.data import build_store, download
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles


class Server(ThreadingHTTPServer):
    """Serves its content under every path, and misbehaves on request. Records the Range header of every request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.content = bytes(range(256)) * 4000  # 1 MB
        self.status = 0  # the answer to every request, when set
        self.failures = 0  # this many answers have status 503
        self.breaks = 0  # this many answers stop halfway
        self.knows_range = True
        self.shift = 0  # continues at another byte than was requested
        self.longest = len(self.content)  # bytes in one partial answer
        self.gives_size = True  # in its answer 416

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers["Range"]
        server.ranges.append(asked)
        if server.status or server.failures:
            server.failures -= 1
            return self.send_error(server.status or 503)
        begin, end = 0, len(server.content)
        if asked and server.knows_range:
            begin = int(asked.removeprefix("bytes=").removesuffix("-")) + server.shift
            if begin >= end:
                self.send_response(416)
                if server.gives_size:
                    self.send_header("Content-Range", f"bytes */{end}")
                return self.end_headers()
            end = min(end, begin + server.longest)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if server.breaks:
            server.breaks -= 1
            end = begin + len(server.content) // 2
        self.wfile.write(server.content[begin:end])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on this machine; attempts follow each other without a pause."""
    pytest.importorskip("pooch")
    monkeypatch.setattr(download, "PAUSE", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def data() -> ImageData:
    """Fifty random images of 6 x 5 in memory, with two labels."""
    random = np.random.default_rng(0)
    space = LabelSpace.from_names({"kind": ["a", "b"], "colour": ["x", "y", "z"]})
    targets = torch.stack([torch.arange(50) % 2, torch.arange(50) % 4 - 1], 1)
    split = torch.tensor([0, 0, 1, 0, 2] * 10)
    return ImageData("tiny", ImageArray(random.integers(0, 256, (50, 6, 5, 3), np.uint8)), targets, space, split)


@pytest.fixture
def stored(data: ImageData, tmp_path: Path) -> ImageData:
    """The same images in a store."""
    (tmp_path / "images").mkdir()
    for name, pixels in zip(data.ids, data.images.pixels, strict=True):
        Image.fromarray(pixels).save(tmp_path / "images" / f"{name}.png")
    files = ImageFiles(tmp_path / "images", tuple(f"{name}.png" for name in data.ids))
    raw = ImageData("tiny", files, data.targets, data.space, data.split, data.ids)
    return build_store(raw, tmp_path / "store", (6, 5), workers=1)
