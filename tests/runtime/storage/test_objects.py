"""The storage in object stores: answers that get lost, stores that cannot do what we need, URLs and credentials."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import LocalStore, MemoryStore

from task_assignor.runtime.storage import objects, storage_at
from task_assignor.runtime.storage.disk import advice_to_read, disk_errors
from task_assignor.runtime.storage.objects import ObjectStorage
from task_assignor.sdk import StreamsException
from tests.runtime.storage.faulty_network import FaultyNetwork
from tests.runtime.storage.s3_server import S3Server


class Network:
    """Between a storage and its store: does to `put` what a network would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *troubles: str) -> None:
        self.troubles = list(troubles)
        self._put = obstore.put
        monkeypatch.setattr(obstore, "put", self)

    def __call__(self, *arguments: Any, **options: Any) -> object:
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "request lost":
            raise GenericError("connection reset")
        if trouble == "conflict":
            raise AlreadyExistsError("409: another request is at it")
        if trouble == "ignores the condition":
            options.pop("mode")
        answer = self._put(*arguments, **options)
        if trouble == "answer lost":
            raise GenericError("connection reset")
        return answer


def test_a_writer_whose_answer_was_lost_has_won(monkeypatch: pytest.MonkeyPatch) -> None:
    Network(monkeypatch, "request lost", "answer lost")
    storage = ObjectStorage("memory://", MemoryStore())
    storage.put_if_absent("a", b"mine")
    with pytest.raises(FileExistsError):
        storage.put_if_absent("a", b"mine")
    assert storage.open("a").to_pybytes() == b"mine"


def test_a_writer_who_asks_again_may_have_lost_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = ObjectStorage("memory://", MemoryStore())
    storage.put_if_absent("a", b"theirs")
    Network(monkeypatch, "request lost")
    with pytest.raises(FileExistsError):
        storage.put_if_absent("a", b"mine")


def test_a_conflict_without_an_object_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 answers 409 to all but one of several requests at the same time; that one may fail all the same."""
    Network(monkeypatch, "conflict", "conflict")
    storage = ObjectStorage("memory://", MemoryStore())
    storage.put_if_absent("a", b"mine")
    assert storage.open("a").to_pybytes() == b"mine"


def test_what_is_not_there_is_passed_over_whatever_the_store_says(tmp_path: Path) -> None:
    """S3 does so itself, others answer 404."""
    storage = ObjectStorage("file://", LocalStore(tmp_path))
    for number in range(40):
        storage.put(f"a/{number}", b"x")
    storage.delete([f"a/{number}" for number in range(-1, 80)])
    assert not storage.list("a")


def test_a_store_without_conditional_puts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two coordinators would both believe that they are alone."""
    Network(monkeypatch, *["ignores the condition"] * 2)
    storage = ObjectStorage("memory://", MemoryStore())
    with pytest.raises(OSError, match=r"does not know conditional puts .* newer version of it.*memory:/?/?/a"):
        storage.put_if_absent("a", b"mine")


def test_a_network_that_does_not_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_FIRST_PATIENCE_S", 0.2)
    Network(monkeypatch, *["request lost"] * 100)
    storage = ObjectStorage("memory://", MemoryStore())
    with pytest.raises(OSError, match=r"connection reset.*memory:/?/?/a"):
        storage.put_if_absent("a", b"mine")


@pytest.fixture
def breaking(s3_folder: Callable[[], str], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of a server to which connections break, every tenth time that something comes or goes."""
    with FaultyNetwork(s3_server.port, seed=1, chance=0.1) as network:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{network.port}")
        yield s3_folder()
        assert network.broken > 10


@pytest.mark.s3
@pytest.mark.thorough
def test_connections_that_break_are_not_told(breaking: str) -> None:
    """Lists and deletions that broke off ended a run, and it was told to restore files from a copy."""
    storage = storage_at("run_dir", breaking)
    names = [f"a/{number}" for number in range(30)]
    storage.put_all({name: name.encode() for name in names})
    for name in names:
        with pytest.raises(FileExistsError):
            storage.put_if_absent(name, b"other")
        assert storage.open(name).to_pybytes() == name.encode()
        assert storage.list("a") == sorted(names)
    for number in range(30):
        storage.put_if_absent(f"b/{number}", b"mine")
    for number in range(0, 30, 3):
        storage.delete(names[number : number + 3])
    assert not storage.list("a")
    assert len(storage.list("b")) == 30


def test_a_store_that_does_not_answer_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After three seconds without one a run ended, and was told to restore files from a copy."""
    monkeypatch.setattr(objects, "_FIRST_PATIENCE_S", 0.0)
    monkeypatch.setattr(objects, "_SILENCE_S", 0.0)
    storage = ObjectStorage("memory://", MemoryStore())
    storage.put("a/b", b"1")
    answers, tries = obstore.list_with_delimiter, 0

    def breaks(*given: Any) -> Any:
        nonlocal tries
        tries += 1
        if 1 < tries < 4 or tries > 4:
            raise GenericError("response body error")
        return answers(*given)

    monkeypatch.setattr(obstore, "list_with_delimiter", breaks)
    assert storage.list("a") == storage.list("a") == ["a/b"]
    assert [record.getMessage() for record in caplog.records] == [
        "memory: does not answer: response body error. It is waited for up to 60 s.",
        "memory: answers again.",
    ]
    monkeypatch.setattr(objects, "_PATIENCE_S", 0.0)
    with pytest.raises(ConnectionError, match=r"response body error.*memory:") as found:
        storage.list("a")
    assert "run it again when the store answers" in advice_to_read(found.value, "Restore it.")


def test_all_who_wait_say_so_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Of each outage there were as many warnings as files that were written just then, and as many words of its end."""
    monkeypatch.setattr(objects, "_SILENCE_S", 0.0)
    storage = ObjectStorage("memory://", MemoryStore())
    storage.put("first", b"1")
    for _ in range(2):
        caplog.clear()
        Network(monkeypatch, *["request lost"] * 12)
        everybody, puts = threading.Barrier(3), obstore.put

        def breaks(*given: Any, everybody: threading.Barrier = everybody, puts: Any = puts) -> Any:
            everybody.wait(60)
            return puts(*given)

        monkeypatch.setattr(obstore, "put", breaks)
        storage.put_all(dict.fromkeys("abc", b"1"))
        assert [record.getMessage() for record in caplog.records] == [
            "memory: does not answer: connection reset. It is waited for up to 60 s.",
            "memory: answers again.",
        ]
        monkeypatch.undo()
        monkeypatch.setattr(objects, "_SILENCE_S", 0.0)


def test_what_a_store_refuses_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def refuses(*_: Any) -> None:
        nonlocal tries
        tries += 1
        raise GenericError("Server returned non-2xx status code: 400 Bad Request")

    monkeypatch.setattr(obstore, "list_with_delimiter", refuses)
    with pytest.raises(OSError, match="400 Bad Request"):
        ObjectStorage("memory://", MemoryStore()).list("a")
    assert tries == 1


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("hdfs://host:9000/x", r"hdfs: is not read. Maybe mount the storage"),
        ("file:///tmp/topics", r"file: is not read. Maybe '/tmp/topics'"),
        ("S3A://b/x", r"S3A: is not read. Maybe 's3://b/x'"),
        ("GS://b/x", r"Maybe 'gs://b/x'"),
        (Path("s3://b/x"), r"Maybe it was made a pathlib.Path, which loses a slash"),
        ("s3://", r"must be a URL as in 's3://bucket/folder'"),
        ("s3://b/x?versionId=1", r"must be a URL as in"),
        ("s3://b?region=x/folder", r"must be a URL as in"),
        ("s3://b/a/../x", r"must be a URL as in .* without '\?', '#', '%', '\\', '\.' and '\.\.'"),
        ("s3://b/a%20b", r"must be a URL as in"),
        ("s3://b/a ", r"must be a URL as in"),
        ("s3://b/a\\x", r"must be a URL as in"),
        (
            "s3://me:tiger@b/a",
            r"^The run_dir must be a URL without user and password\. Maybe give them in the env[^:]*$",
        ),
        ("C:\\runs", r"would be a folder of that name in /.* Maybe the path that it has here, or '\./C:"),
        ("~/runs", r"would be a folder of that name in /.* Maybe Path\('~/runs'\).expanduser\(\)"),
        ("", "must be the path of a folder"),
        (None, r"\(None\) must be the path of a folder"),
        ("runs/\udcff", r"run_dir \('/.*/runs/\\udcff'\) has a name that is no UTF-8"),
    ],
)
def test_places_that_are_none_are_refused(place: str | Path, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        storage_at("run_dir", place)


def test_a_locale_that_cannot_read_names_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "ascii")
    with pytest.raises(ValueError, match=r"no UTF-8, .* Maybe PYTHONUTF8=1, since Python .* for ascii here"):
        storage_at("run_dir", "r\udcc3\udcbcn")


def test_without_the_library_a_url_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'task-assignor\[object-store\]'"):
        storage_at("run_dir", "s3://b/x")


def test_an_account_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match=r"'az://container/x'\) cannot be used: .*Account must be specified"):
        storage_at("run_dir", "az://container/x")


@pytest.mark.parametrize(
    "url", ["s3://b/x", "s3://b/.x/a b[1]*{ü}", "gs://b/x", "abfss://container@account.dfs.core.windows.net/x"]
)
def test_stores_are_found_by_their_urls(url: str) -> None:
    """Nothing is asked of them yet."""
    storage = storage_at("run_dir", f"{url}/")
    assert isinstance(storage, ObjectStorage)
    assert storage.locate("a/b") == f"{url}/a/b"


@pytest.mark.s3
def test_wrong_credentials_and_buckets_are_told(s3_folder: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    storage = storage_at("run_dir", s3_folder())
    with pytest.raises(PermissionError, match=r"SignatureDoesNotMatch.*/a"):
        storage.put("a", b"1")
    with pytest.raises(OSError, match="SignatureDoesNotMatch"):
        storage.list()


def test_only_urls_load_the_library() -> None:
    """Local runs need nothing of it."""
    script = (
        "import sys; from task_assignor.runtime.storage import storage_at; storage_at('x', '/tmp/x'); "
        "assert 'obstore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


class Answers(BaseHTTPRequestHandler):
    """A store that answers as it is told: status and body of each request in turn, the last one for ever."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body come in one piece
    answers: ClassVar[list[tuple[int, str]]] = []
    asked = 0

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status, body = self.answers[min(Answers.asked, len(self.answers) - 1)]
        Answers.asked += 1
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("X-Filler", "x" * Answers.asked)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ObjectStorage]]:
    """Gives a storage in a store that answers so."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {"ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "ALLOW_HTTP": "true"}
        for name, value in {**environment, "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "tiger"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)

        def give(*answers: tuple[int, str]) -> ObjectStorage:
            Answers.answers, Answers.asked = list(answers), 0
            return ObjectStorage.at("s3://b/x")

        yield give
        server.shutdown()


def _refusal(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>No.</Message></Error>"


def test_whoever_waits_hears_of_each_try(
    answering: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Obstore asked again by itself: without a word for three minutes, where nothing came back at all."""
    monkeypatch.setattr(objects, "_FIRST_PATIENCE_S", 0.1)
    storage = answering((503, _refusal("SlowDown")))
    for ask in (lambda: storage.put("a", b"1"), lambda: storage.open("a"), storage.list, lambda: storage.delete(["a"])):
        Answers.asked = 0
        # Older versions of obstore give the status alone.
        with pytest.raises(ConnectionError, match=r"SlowDown|503 Service Unavailable"):
            ask()
        assert Answers.asked <= 4


def test_an_upload_that_was_too_slow_is_done_again(answering: Callable[..., ObjectStorage]) -> None:
    """S3 says so with a 400, as of what is wrong for ever."""
    answering((400, _refusal("RequestTimeout")), (200, "")).put("a", b"1")
    assert Answers.asked == 2


def test_what_somebody_else_is_at_is_asked_again(
    answering: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 409 ended a task, with a FileExistsError of what may be overwritten."""
    asks: tuple[Callable[[ObjectStorage], object], ...] = (
        lambda storage: storage.put("a", b"1"),
        lambda storage: storage.open("a"),
        lambda storage: storage.list(),
        lambda storage: storage.delete(["a"]),
    )
    for ask in asks:
        ask(answering((409, _refusal("OperationAborted")), (200, "<R><Deleted><Key>x/a</Key></Deleted></R>")))
        assert Answers.asked == 2
    monkeypatch.setattr(objects, "_FIRST_PATIENCE_S", 0.1)
    with pytest.raises(ConnectionError, match="OperationAborted"):
        answering((409, _refusal("OperationAborted"))).put("a", b"1")


def test_a_deletion_that_is_forbidden_is_told(answering: Callable[..., ObjectStorage]) -> None:
    """S3 says so in an answer that is well, for each object: it was waited for."""
    refused = "<Error><Key>x/a</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    with pytest.raises(PermissionError, match="AccessDenied"):
        answering((200, f"<DeleteResult>{refused}</DeleteResult>")).delete(["a"])
    assert Answers.asked == 1


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (400, "ExpiredToken")])
def test_what_is_forbidden_is_told_as_such(answering: Callable[..., ObjectStorage], status: int, code: str) -> None:
    """Lists, and keys that expired, were said to be a store that does not answer."""
    storage = answering((status, _refusal(code)))
    for ask in (storage.list, lambda: storage.open("a")):
        with pytest.raises(PermissionError, match=code):
            ask()
    assert Answers.asked == 2


def test_who_has_no_keys_is_told(answering: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to run again when the store answers: keys in ~/.aws were looked for at the machine's role."""
    answering()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", os.environ["AWS_ENDPOINT_URL"])
    storage = answering((404, "no role"))
    with pytest.raises(PermissionError, match=r"no AWS_ACCESS_KEY_ID; profiles of ~/.aws are not read") as found:
        storage.list()
    assert "this process has no keys for the store" in advice_to_read(found.value, "Restore it.")


def test_a_wrong_region_is_not_waited_for(answering: Callable[..., ObjectStorage]) -> None:
    with pytest.raises(OSError, match="incorrectly configured region"):
        answering((301, _refusal("PermanentRedirect"))).list()
    assert Answers.asked == 1


def test_an_endpoint_without_https_is_told(
    answering: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a panic of Rust without a scheme, and waited for without the permission."""
    answering()
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it was asked again"))
    monkeypatch.setattr(objects, "time", clock)
    storage = storage_at("run_dir", "s3://b/without-permission")
    with (
        pytest.raises(StreamsException, match=r"builder error.*AWS_ALLOW_HTTP"),
        disk_errors(StreamsException, "No", "no"),
    ):
        storage.list()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:1")
    with pytest.raises(
        ValueError, match=r"cannot be used: AWS_ENDPOINT_URL \('127.0.0.1:1'\) must begin with https://"
    ):
        storage_at("run_dir", "s3://b/without-scheme")


def test_a_certificate_that_is_not_known_is_told(
    answering: Callable[..., ObjectStorage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was waited for, and "error sending request" was all that was said."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl, which makes certificates")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -keyout key.pem"
    names = "-addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -out trust.pem"
    subprocess.run([*command.split(), *names.split()], check=True, capture_output=True, cwd=tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "trust.pem", tmp_path / "key.pem")
    answering((200, "x"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://localhost:{server.server_port}")
        begin = time.monotonic()
        with (
            pytest.raises(StreamsException, match=r"InvalidCertificate \(\w+\).*\(SSL_CERT_FILE\)"),
            disk_errors(StreamsException, "No", "no"),
        ):
            ObjectStorage.at("s3://b/x").open("a")
        assert time.monotonic() - begin < 10
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trust.pem"))
        assert ObjectStorage.at("s3://b/x").open("a").to_pybytes() == b"x"
        server.shutdown()


def test_what_is_read_begins_where_arrow_wants_it(answering: Callable[..., ObjectStorage]) -> None:
    """It warned of each join, on stderr."""
    storage = answering((200, "x" * 100))
    for _ in range(32):
        found = storage.open("a")
        assert found.to_pybytes() == b"x" * 100
        assert found.address % 16 == 0
