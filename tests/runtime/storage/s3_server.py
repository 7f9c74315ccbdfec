"""A real S3-compatible server (SeaweedFS) on loopback for tests; its data is deleted at the end."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import obstore
from obstore import store
from obstore.exceptions import BaseError

from tests.processes import Server

START_SECONDS: Final = 120
STOP_SECONDS: Final = 10
BUCKET: Final = "tests"
_PORTS: Final = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
_S3_PORTS: Final = ("s3.port", "s3.port.grpc")
_UNWANTED_PORTS: Final = ("s3.port.iceberg", "s3.port.lance")
"""It would listen on fixed ones, where another such server may be; which of them there are depends on its version."""


class ServerFailedError(Exception):
    """The server ended or did not become ready; the message has the end of its log."""


class S3Server:
    """A server to be used as a context manager, with one bucket and one user.

    Attributes:
        port: where it takes requests, on this host.

    Raises:
        ServerFailedError: it does not become ready within two minutes.
    """

    def __init__(self) -> None:
        self._server: Server | None = None
        self._folder = Path()
        self._ports: list[int] = []
        self.port = 0

    @property
    def url(self) -> str:
        """The bucket, as users name it."""
        return f"s3://{BUCKET}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a client finds the server and says who it is."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "secret of the tester",
        }

    def pause(self, seconds: float) -> None:
        """Let it stand still for a while, from now on."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, self._server.send_signal, [signal.SIGCONT]).start()

    def __enter__(self) -> Self:
        """Start it and wait until it takes objects."""
        for attempt in range(3):
            try:
                self._start()
            except ServerFailedError:
                # A port that was free may be taken by the time the server wants it.
                self._stop()
                if attempt == 2:
                    raise
            except BaseException:
                self._stop()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and delete its data."""
        self._stop()

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="task-assignor-s3-"))
        ports = dict(zip((*_PORTS, *_S3_PORTS), _free_ports(len(_PORTS) + len(_S3_PORTS)), strict=True))
        self._ports, self.port = list(ports.values()), ports["s3.port"]
        keys = {"accessKey": "tester", "secretKey": "secret of the tester"}
        users = {"identities": [{"name": "tester", "credentials": [keys], "actions": ["Admin"]}]}
        (self._folder / "users.json").write_text(json.dumps(users))
        program = Path(sysconfig.get_path("scripts")) / "weed"
        asked = subprocess.run([str(program), "help", "server"], capture_output=True, text=True, check=False)
        known = asked.stdout + asked.stderr
        options = [
            *(f"-{name}={port}" for name, port in ports.items()),
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={self._folder}",
            f"-filer.localSocket={self._folder / 'filer.sock'}",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256",
            "-s3",
            f"-s3.config={self._folder / 'users.json'}",
            *(f"-{name}=0" for name in _UNWANTED_PORTS if f"-{name} " in known),
        ]
        with (self._folder / "log").open("wb") as log:
            command = [str(program), f"-logdir={self._folder}", "server", *options]
            self._server = Server(command, log, self._folder, cwd=self._folder)
        self._await_ready()

    def _await_ready(self) -> None:
        assert self._server is not None
        end = time.monotonic() + START_SECONDS
        given = self.environment
        bucket = store.S3Store(
            BUCKET,
            endpoint=given["AWS_ENDPOINT_URL"],
            region=given["AWS_REGION"],
            access_key_id=given["AWS_ACCESS_KEY_ID"],
            secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        while True:
            try:
                obstore.put(bucket, "ready", b"yes")  # makes the bucket, too
                return
            except (OSError, BaseError) as error:
                if self._server.poll() is not None or time.monotonic() > end:
                    log = (self._folder / "log").read_text(errors="replace")[-3000:]
                    raise ServerFailedError(f"The S3 server does not answer ({error}):\n{log}") from error
                time.sleep(0.1)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait(STOP_SECONDS)
            self._server = None
        for port in self._ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
