"""An S3 server on the local machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from mezzotint.data.files import remote

BUCKET = "box"


class S3Server:
    """With the bucket `box`; what is asked of it, and what it answers with an error."""

    def __init__(self) -> None:
        moto = pytest.importorskip("moto.server")
        pytest.importorskip("s3fs")
        self._own = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._own.start()
        self._answer: Callable[..., Iterable[bytes]] = self._own._server.app
        self._own._server.app = self._faulty
        self.asked: list[tuple[str, str]] = []
        self.overloaded: set[tuple[str, str]] = set()
        """(method, place): what is answered with 503 the next time."""

    def make_known(self, patch: pytest.MonkeyPatch) -> None:
        """Lets s3:// addresses lead here. Neither fsspec nor what it stands on tries anything again by itself."""
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{self._own._server.server_port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "nobody")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        self.asked.clear()
        self.overloaded.clear()
        system = fsspec.filesystem("s3")
        if system.exists(BUCKET):
            system.rm(BUCKET, recursive=True)
        system.mkdir(BUCKET)

    def stop(self) -> None:
        """No request comes any more."""
        self._own.stop()

    def _faulty(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.asked.append(request)
        if request in self.overloaded:
            self.overloaded.remove(request)
            start_response("503 Service Unavailable", [("Content-Length", "0")])
            return []
        return self._answer(environ, start_response)


def waits_between_tries(patch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that `remote.with_retries` waits from now on, each time; they take none."""
    waits: list[float] = []
    patch.setattr(remote, "time", SimpleNamespace(sleep=waits.append, time=time.time))
    return waits
