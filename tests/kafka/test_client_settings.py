"""How Java clients say where a cluster is, said to the Python clients."""

from __future__ import annotations

import pickle
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from task_assignor import ConfigException, ProcessId, StreamsConfig, StreamsException
from task_assignor.group import SubTopologyShape
from task_assignor.group.consumers import StickyAssignor
from task_assignor.sdk import once

kafka_room = pytest.importorskip("task_assignor.kafka")
client_settings = pytest.importorskip("task_assignor.kafka.client_settings")
KafkaError = pytest.importorskip("kafka.errors").KafkaError
ClientSettings = kafka_room.ClientSettings

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b=c; d";'


def test_plain_settings_reach_both_clients() -> None:
    found = ClientSettings.of(
        {"bootstrap.servers": "a:1, b:2", "client.id": "me", "request.timeout.ms": "5000", "x": 1}
    )
    assert found.for_kafka_python() == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "me",
        "bootstrap_timeout_ms": 15_000,
        "request_timeout_ms": 5000,
        "security_protocol": "PLAINTEXT",
    }
    assert found.for_confluent_kafka() == {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "me",
        "socket.timeout.ms": 5000,
        "security.protocol": "PLAINTEXT",
    }


def test_sasl_comes_from_the_login_module_and_is_never_shown() -> None:
    found = ClientSettings.of(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
        }
    )
    assert (found.username, found.password) == ("me", 'a"b=c; d')
    assert found.for_kafka_python()["sasl_plain_password"] == 'a"b=c; d'
    assert found.for_confluent_kafka()["sasl.password"] == 'a"b=c; d'
    assert "b=c" not in repr(found)


@pytest.mark.parametrize(
    "text", ['M required username="u" password=p;', 'M required\n  password="p"  username = "u" ;']
)
def test_options_of_login_modules_are_read_in_any_order_and_with_or_without_quotes(text: str) -> None:
    found = ClientSettings.of(
        {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": text}
    )
    assert (found.username, found.password) == ("u", "p")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "bootstrap.servers (None) must be host:port of at least one broker"),
        ({"bootstrap.servers": "broker"}, "'broker' is none"),
        ({"bootstrap.servers": "broker:0"}, "'broker:0' is none"),
        ({"bootstrap.servers": []}, "host:port of at least one broker"),
        ({"bootstrap.servers": "a:1", "security.protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"bootstrap.servers": "a:1", "request.timeout.ms": "soon"}, "a positive number of milliseconds"),
        (
            {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}, 'a login module with username="..."'),
        (
            {
                "bootstrap.servers": "a:1",
                "security.protocol": "SASL_SSL",
                "sasl.jaas.config": 'M required username="u" password="";',
            },
            'a login module with username="..."',
        ),
        (
            {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.location": "trust.jks"},
            "PEM, since Python reads no Java key stores",
        ),
        (
            {
                "bootstrap.servers": "a:1",
                "security.protocol": "SSL",
                "ssl.keystore.location": "none.pem",
                "ssl.keystore.type": "PEM",
            },
            "a PEM file with a certificate and its private key, which ssl.key.password opens (No such file or directory)",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_must_be(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigException) as caught:
        ClientSettings.of(settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("security.protocal", "security.protocol"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("sasl.jass.config", "sasl.jaas.config"),
        ("ssl_truststore_location", "ssl.truststore.location"),
    ],
)
def test_a_key_that_looks_like_a_misspelt_one_is_an_error(key: str, meant: str) -> None:
    """With security.protocal=SSL all went in clear text, without a word."""
    with pytest.raises(ConfigException, match=f"Maybe {meant} is meant") as caught:
        ClientSettings.of({"bootstrap.servers": "a:1", key: 'Module required password="s3cret";'})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "protocol", "idle", "used_with"),
    [
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS},
            "PLAINTEXT (the default)",
            "sasl.mechanism, sasl.jaas.config",
            "SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            {"ssl.truststore.location": "trust.pem"},
            "PLAINTEXT (the default)",
            "ssl.truststore.location",
            "SSL or SASL_SSL",
        ),
        (
            {"security.protocol": "ssl", "sasl.jaas.config": JAAS, "ssl.endpoint.identification.algorithm": "https"},
            "SSL",
            "sasl.jaas.config",
            "SASL_SSL",
        ),
    ],
)
def test_what_the_protocol_makes_no_use_of_is_named(
    given: dict[str, object], protocol: str, idle: str, used_with: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without security.protocol nobody logged in, and all went in clear text, without a word."""
    ClientSettings.of({"bootstrap.servers": "a:1", **given})
    assert [record.getMessage() for record in caplog.records] == [
        f"With security.protocol={protocol} these settings have no effect: {idle}. They have with {used_with}."
    ]


@pytest.mark.parametrize("given", [{"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS}, {}])
def test_nothing_is_said_where_all_is_used(given: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    ClientSettings.of({"bootstrap.servers": "a:1", "client.id": "me", **given})
    assert not caplog.records


def test_keys_of_others_are_not_looked_at() -> None:
    others = (
        "admin.security.protocol",
        "admin.request.timeout.ms",
        "heartbeat.interval.ms",
        "ssl.protocol",
        "my.key",
        "group.id",
    )
    ClientSettings.of({"bootstrap.servers": "a:1", **dict.fromkeys(others, "x")})


def test_a_wrong_login_module_is_not_shown() -> None:
    with pytest.raises(ConfigException) as caught:
        ClientSettings.of(
            {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.jaas.config": 'M password="secret";'}
        )
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("timeout_ms", [0, "5", 10**15, 1e3])
def test_a_cluster_that_would_wait_for_no_time_is_refused(timeout_ms: Any) -> None:
    with pytest.raises(ConfigException, match=r"The timeout_ms .* must be an int from 1 to 2147483647"):
        kafka_room.Cluster({"bootstrap.servers": "127.0.0.1:1"}, timeout_ms)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"assignor": None}, r"The assignor \(None\) must be a ConsumerAssignor"),
        ({"assignor": StickyAssignor}, r"The assignor \(.*StickyAssignor.*\) must be .* made as in StickyAssignor\(\)"),
        ({"limit_ms": 0}, r"The limit_ms \(0\) must be an int from 1"),
        ({"limit_ms": "5"}, r"The limit_ms \('5'\) must be an int from 1"),
        ({"rack_id": 5}, r"The rack_id \(5\) must be a str or None"),
    ],
)
def test_what_cannot_be_hosted_is_refused_before_it_is_in_a_group(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigException, match=said):
        kafka_room.ConsumerAssignorPlugin(**{"assignor": StickyAssignor(), **given})


@pytest.mark.parametrize(
    ("kind", "more"), [("TaskAssignorPlugin", [ProcessId(uuid.UUID(int=1))]), ("StreamsGroupLeader", [])]
)
def test_settings_that_are_none_are_refused(kind: str, more: list[Any]) -> None:
    """As of a dict: it failed with a raw AttributeError."""
    with pytest.raises(ConfigException, match=r"The config \({}\) must be a StreamsConfig"):
        getattr(kafka_room, kind)({}, [SubTopologyShape("one", ("clicks",))], *more)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate, the key with it as it is and encrypted, and what is none of these."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl, which makes certificates")
    folder = tmp_path_factory.mktemp("pem")
    for command in (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout key.pem -out trust.pem",
        "pkcs8 -topk8 -in key.pem -passout pass:secret -out encrypted.pem",
    ):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, cwd=folder)
    certificate = (folder / "trust.pem").read_text("ascii")
    (folder / "trust.pem").write_text(f"friendlyName: Größe\n{certificate}", "utf-8")
    for name in ("key.pem", "encrypted.pem"):
        (folder / name).write_text(certificate + (folder / name).read_text("ascii"))
    (folder / "junk.pem").write_bytes(b"\xff\xfejunk")
    (folder / "empty.pem").touch()
    return folder


@pytest.mark.parametrize("store", ["truststore", "keystore"])
@pytest.mark.parametrize("name", ["junk.pem", "empty.pem", "encrypted.pem", "gone.pem", ".", "x" * 300])
def test_a_store_that_cannot_be_used_is_named(pem: Path, store: str, name: str) -> None:
    """Junk was a raw error of the codec or of OpenSSL, an empty one all authorities of the machine, a password asked for."""
    settings = {"bootstrap.servers": "a:1", "security.protocol": "SSL", f"ssl.{store}.type": "PEM"}
    if (store, name) == ("truststore", "encrypted.pem"):
        assert ClientSettings.of({**settings, f"ssl.{store}.location": str(pem / name)}).trusted
        return
    with pytest.raises(ConfigException, match=f"The setting ssl.{store}.location .* must be a PEM file ") as caught:
        ClientSettings.of({**settings, f"ssl.{store}.location": str(pem / name), "ssl.key.password": "wr0ng"})
    assert "wr0ng" not in str(caught.value)


def test_stores_that_can_be_used_make_a_context(pem: Path) -> None:
    for key, password in (("key.pem", None), ("key.pem", "any"), ("encrypted.pem", "secret")):
        stores = {f"ssl.{store}.type": "PEM" for store in ("truststore", "keystore")}
        more = {"ssl.truststore.location": str(pem / "trust.pem"), "ssl.keystore.location": str(pem / key)}
        given = {"bootstrap.servers": "a:1", "security.protocol": "SSL", **stores, **more, "ssl.key.password": password}
        found = ClientSettings.of({name: value for name, value in given.items() if value is not None})
        assert len(found.for_kafka_python()["ssl_context"].get_ca_certs()) == 1


def test_certificates_in_a_setting_that_are_none_are_refused_and_not_shown() -> None:
    with pytest.raises(
        ConfigException, match=r"ssl.truststore.certificates \(\[hidden\]\) must be certificates in PEM"
    ):
        ClientSettings.of(
            {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.certificates": "s3cret"}
        )


def test_tls_with_stores_in_pem(pem: Path) -> None:
    store = pem / "trust.pem"
    found = ClientSettings.of(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SSL",
            "ssl.truststore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found.for_confluent_kafka()["ssl.ca.pem"].startswith("friendlyName: Gre\n-----BEGIN CERTIFICATE-----")
    assert found.for_confluent_kafka()["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize("more", [{}, {"transaction.timeout.ms": 1_000}, {"transaction.timeout.ms": "900000"}])
@pytest.mark.parametrize("request_ms", [500, 120_000])
def test_transactions_may_take_as_long_as_it_is_said(more: dict[str, Any], request_ms: int) -> None:
    """It was 60 s whatever was said, and with a request.timeout.ms beyond that librdkafka made no producer."""
    connection = pytest.importorskip("task_assignor.kafka.topics.connection")
    found = ClientSettings.of({"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": request_ms, **more})
    assert found.transaction_timeout_ms == int(more.get("transaction.timeout.ms", 60_000))
    assert connection.Connection(found, 1_000).producer({"transactional.id": "shop-0_0"}) is not None


@pytest.mark.parametrize("given", ["999", 3_600_001])
def test_a_session_is_as_long_as_it_is_said_and_as_librdkafka_takes_it(given: object) -> None:
    """Nobody could say it: a group could not be touched for 10 s after a run had ended."""
    assert ClientSettings.of({"bootstrap.servers": "a:1"}).session_timeout_ms == 10_000
    assert ClientSettings.of({"bootstrap.servers": "a:1", "session.timeout.ms": "6000"}).session_timeout_ms == 6_000
    said = rf"session.timeout.ms \({given!r}\) must be at least 1000 milliseconds, and at most 3600000"
    with pytest.raises(ConfigException, match=said):
        ClientSettings.of({"bootstrap.servers": "a:1", "session.timeout.ms": given})


def test_a_transaction_that_is_too_short_is_refused() -> None:
    with pytest.raises(ConfigException, match=r"transaction.timeout.ms \('999'\) must be at least 1000 milliseconds"):
        ClientSettings.of({"bootstrap.servers": "a:1", "transaction.timeout.ms": "999"})


def test_what_topics_make_no_use_of_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With isolation.level=read_uncommitted, only what is committed is read: nobody said so."""
    topics = pytest.importorskip("task_assignor.kafka.topics")
    monkeypatch.setattr(once, "_named", set())
    used = {"bootstrap.servers": "a:1", "client.id": "me"}
    for _ in range(2):
        topics.KafkaTopics({**used, "isolation.level": "read_uncommitted", "acks": "0"}, [])
    assert [record.getMessage() for record in caplog.records] == [
        "KafkaTopics makes no use of these settings: acks, isolation.level."
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"settings": "localhost:9092"}, "The settings of a Kafka client must be a mapping, .* not of the type str"),
        ({"topics": ["orders"]}, "must be KafkaTopic objects, but one is 'orders'"),
        ({"timeout_ms": 0}, r"The timeout_ms \(0\) of a KafkaTopics must be an int of at least 1"),
    ],
)
def test_arguments_of_topics_that_are_something_else_are_named(given: dict[str, Any], said: str) -> None:
    topics = pytest.importorskip("task_assignor.kafka.topics")
    with pytest.raises(StreamsException, match=said):
        topics.KafkaTopics(**{"settings": {"bootstrap.servers": "a:1"}, "topics": [], **given})


@pytest.mark.parametrize("is_class", [True, False])
def test_what_is_no_serde_is_named(is_class: bool) -> None:
    topics = pytest.importorskip("task_assignor.kafka.topics")
    with pytest.raises(StreamsException, match=r"The serde \(.*\) of topic t must be a Serde, such as JsonSerde\(\)"):
        topics.KafkaTopic("t", serde=topics.JsonSerde if is_class else "json")


def test_a_key_of_a_topic_that_names_a_column_twice_is_refused_without_a_schema_too() -> None:
    topics = pytest.importorskip("task_assignor.kafka.topics")
    with pytest.raises(StreamsException, match=r"The key of topic t names a column twice: \['a', 'a'\]"):
        topics.KafkaTopic("t", key=["a", "a"])


def _reach(face: str, settings: dict[str, object]) -> None:
    if face == "KafkaTopics":
        topics = pytest.importorskip("task_assignor.kafka.topics")
        schema = pytest.importorskip("pyarrow").schema({"a": "int64"})
        topics.KafkaTopics(settings, [topics.KafkaTopic("clicks", schema, "a")], timeout_ms=6_000).open("clicks")
    elif face == "Cluster":
        kafka_room.Cluster(settings)
    elif face == "StreamsGroupLeader":
        config = StreamsConfig({**settings, "application.id": "shop"})
        kafka_room.StreamsGroupLeader(config, [SubTopologyShape("one", ["clicks"])]).__enter__()
    else:
        pytest.importorskip("kafka").KafkaConsumer(**ClientSettings.of(settings).for_kafka_python())


@pytest.mark.parametrize(
    "face", [pytest.param("KafkaTopics", marks=pytest.mark.thorough), "Cluster", "StreamsGroupLeader", "KafkaConsumer"]
)
def test_where_no_broker_listens_that_is_said_soon_and_alone(
    face: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """KafkaTopics said it after 76 s, beneath 1 400 lines of librdkafka's; now a warning does while it waits for brokers."""
    assert 10_000 <= client_settings.REACH_MS <= 15_000
    monkeypatch.setattr(client_settings, "REACH_MS", 1_100)  # librdkafka tells of refused connections each second
    with socket.socket() as taken:
        # Nobody else gets the port, and nobody listens there.
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises((StreamsException, KafkaError)) as caught:
            _reach(face, {"bootstrap.servers": server})
    assert server in str(caught.value)
    assert time.monotonic() - begin < 20
    if face == "KafkaTopics":
        assert "has not answered for 6 s: " in str(caught.value)
        assert "failed: Connection refused. Maybe no broker listens there" in str(caught.value)
        (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert warning.startswith(f"Cannot describe the topic clicks yet: the cluster at {server} does not answer: ")
        assert warning.endswith("failed: Connection refused. It is waited for up to 6 s.")
    assert capfd.readouterr().err == ""


def test_brokers_of_which_nothing_has_come_yet_are_waited_for_as_long_as_others() -> None:
    """They were given up after 15 s: an application that was started beside a broker that was started again ended."""
    topics_room = pytest.importorskip("task_assignor.kafka.topics")
    topics = topics_room.KafkaTopics({"bootstrap.servers": "a:1"}, [], timeout_ms=240_000)
    for given in (topics, pickle.loads(pickle.dumps(topics))):
        assert 230 < given._clients().connection.patience("ask").left_s <= 240


@pytest.mark.parametrize("request_ms", ["9", "300001"])
def test_a_time_that_confluent_kafka_does_not_take_is_refused_at_once(request_ms: str) -> None:
    """A run began, and ended with an error about socket.timeout.ms, which nobody had given."""
    topics = pytest.importorskip("task_assignor.kafka.topics")
    with pytest.raises(
        ConfigException, match=rf"request.timeout.ms \({request_ms}\) must be 10 to 300000 milliseconds"
    ):
        topics.KafkaTopics({"bootstrap.servers": "a:1", "request.timeout.ms": request_ms}, [])


def test_a_file_that_is_not_on_this_machine_is_told(tmp_path: Path) -> None:
    connection = pytest.importorskip("task_assignor.kafka.topics.connection")
    settings = ClientSettings(("a:1",), security_protocol="SSL", certificate=str(tmp_path / "none.pem"))
    with pytest.raises(StreamsException, match=r"makes no client for a:1: .*ssl\.certificate\.location failed"):
        _ = connection.Connection(settings, 1_000).admin
