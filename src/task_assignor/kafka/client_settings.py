"""How to reach a cluster: the settings that Java users have, said in the words of the Python clients. Nothing connects here."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from task_assignor.sdk import ConfigException, ConfigProblem
from task_assignor.sdk.checks import check_fields
from task_assignor.sdk.hidden import visible
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import nearest, shown

_log = logger_of(__name__)
BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_STORE_ADVICE: Final = (
    "Maybe export it: keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12, then "
    "openssl pkcs12 -in store.p12 -out store.pem -nodes, and set the type to PEM."
)
UNDERSTOOD: Final = (
    *(BOOTSTRAP_SERVERS, "client.id", "request.timeout.ms", "session.timeout.ms", "transaction.timeout.ms"),
    *("security.protocol", "sasl.mechanism", "sasl.jaas.config"),
    *(f"ssl.truststore.{part}" for part in ("location", "type", "certificates", "password")),
    *(f"ssl.keystore.{part}" for part in ("location", "type", "key", "certificate.chain", "password")),
    *("ssl.key.password", "ssl.endpoint.identification.algorithm"),
)
REACH_MS: Final = 15_000
"""So long is a broker looked for at the addresses of a cluster from which nothing has come yet."""
_LEAST_TRANSACTION_MS: Final = 1_000
_LEAST_REQUEST_MS: Final = 10
_MOST_REQUEST_MS: Final = 300_000
"""librdkafka's limits."""
_LEAST_SESSION_MS: Final = 1_000
_MOST_SESSION_MS: Final = 3_600_000
"""librdkafka's limit; brokers have their own (`group.min.session.timeout.ms`, `group.max.session.timeout.ms`)."""
_MOST_MS: Final = 2**31 - 1
_SLIP: Final = 0.9
"""None of Kafka's other keys is so much like one of these, but for those with the prefixes of Kafka Streams."""
_PREFIXES: Final = ("admin.", "consumer.", "producer.", "main.consumer.", "restore.consumer.", "global.consumer.")
_JAAS_OPTION: Final = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


@attrs.frozen
class ClientSettings:
    """How clients reach a cluster, read from the keys of Kafka's Java clients.

    Understood are `bootstrap.servers`, `client.id`, `request.timeout.ms`, `transaction.timeout.ms` and `session.timeout.ms` (by
    what writes in transactions), `security.protocol`, `sasl.mechanism` (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) with `sasl.jaas.config`, and
    for TLS `ssl.truststore.*`, `ssl.keystore.*`,
    `ssl.key.password` with stores in PEM (KIP-651) and `ssl.endpoint.identification.algorithm`. A key that looks like a
    misspelt one of these is an error; others are the business of others and not looked at. Those of SASL or TLS that the
    `security.protocol` makes no use of are named in the log: they are no reason to log in or to encrypt, as in Java.

    Args:
        bootstrap_servers: `host:port` each, at least one.
        client_id: what brokers call the client; None: the client library's default.
        request_timeout_ms: the longest wait for one answer of a broker.
        transaction_timeout_ms: brokers end a transaction that takes longer.
        session_timeout_ms: so long after brokers last heard of the driver of a run it counts as the member of its application's group.
        security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        sasl_mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        username: of SASL.
        password: of SASL; never shown.
        trusted: PEM text of the certificates to be trusted; None: those of the system.
        certificate: path of a PEM file with the client's own certificate chain and key; None: it has none.
        key_password: of the key in `certificate`; never shown.
        checks_host_name: whether the certificate of a broker must name its host.

    Raises:
        ConfigException: one of them is of another kind.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str | None = None
    request_timeout_ms: int = 30_000
    transaction_timeout_ms: int = 60_000
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    trusted: str | None = attrs.field(default=None, repr=False)
    certificate: str | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    checks_host_name: bool = True
    session_timeout_ms: int = 10_000

    def __attrs_post_init__(self) -> None:
        texts = ("client_id", "username", "password", "trusted", "certificate", "key_password")
        check_fields(
            self,
            ConfigException,
            bootstrap_servers=tuple,
            request_timeout_ms=int,
            transaction_timeout_ms=int,
            session_timeout_ms=int,
            security_protocol=str,
            sasl_mechanism=str,
            checks_host_name=bool,
            **dict.fromkeys(texts, (str, None)),
        )

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> ClientSettings:
        """Read them from settings in Kafka's keys.

        Raises:
            ConfigException: a setting is wrong or missing; `problems` has each. Passwords are not in the message.
        """
        if not isinstance(settings, Mapping):
            raise ConfigException(
                f"The settings of a Kafka client must be a mapping, such as {{'{BOOTSTRAP_SERVERS}': 'localhost:9092'}}, not of the "
                f"type {type(settings).__name__}."
            )
        return _Reading(settings).result()

    def for_kafka_python(self) -> dict[str, Any]:
        """The arguments of kafka-python's `KafkaConsumer`, `KafkaProducer` and `KafkaAdminClient`."""
        found: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "bootstrap_timeout_ms": REACH_MS,
            "request_timeout_ms": self.request_timeout_ms,
            "security_protocol": self.security_protocol,
        }
        if self.client_id is not None:
            found["client_id"] = self.client_id
        if self.security_protocol.startswith("SASL"):
            found["sasl_mechanism"] = self.sasl_mechanism
            found["sasl_plain_username"] = self.username
            found["sasl_plain_password"] = self.password
        if self.security_protocol.endswith("SSL"):
            found["ssl_context"] = self._ssl_context()
            found["ssl_check_hostname"] = self.checks_host_name
        return found

    def for_confluent_kafka(self) -> dict[str, Any]:
        """The configuration of confluent-kafka's `Consumer`, `Producer` and `AdminClient`.

        Raises:
            ConfigException: librdkafka does not wait for so short or so long a time.
        """
        if not _LEAST_REQUEST_MS <= self.request_timeout_ms <= _MOST_REQUEST_MS:
            expected = f"{_LEAST_REQUEST_MS} to {_MOST_REQUEST_MS} milliseconds, since confluent-kafka takes no other"
            raise ConfigException.of([ConfigProblem("request.timeout.ms", self.request_timeout_ms, expected)])
        found: dict[str, Any] = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "socket.timeout.ms": self.request_timeout_ms,
            "security.protocol": self.security_protocol,
        }
        if self.client_id is not None:
            found["client.id"] = self.client_id
        if self.security_protocol.startswith("SASL"):
            found["sasl.mechanism"] = self.sasl_mechanism
            found["sasl.username"] = self.username
            found["sasl.password"] = self.password
        if self.security_protocol.endswith("SSL"):
            found["ssl.endpoint.identification.algorithm"] = "https" if self.checks_host_name else "none"
            if self.trusted is not None:
                found["ssl.ca.pem"] = self.trusted
            if self.certificate is not None:
                found["ssl.certificate.location"] = self.certificate
                found["ssl.key.location"] = self.certificate
            if self.key_password is not None:
                found["ssl.key.password"] = self.key_password
        return found

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.trusted)
        context.check_hostname = self.checks_host_name
        if self.certificate is not None:
            _load_key(context, self.certificate, self.key_password)
        return context


class _Reading:
    """Reads the settings one by one and collects what is wrong."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._problems: list[ConfigProblem] = []

    def result(self) -> ClientSettings:
        self._check_spelling()
        protocol = self._one_of("security.protocol", _PROTOCOLS, "PLAINTEXT")
        username, password, mechanism = self._credentials(protocol)
        uses_tls = protocol.endswith("SSL")
        found = ClientSettings(
            bootstrap_servers=self._servers(),
            client_id=self._text("client.id"),
            request_timeout_ms=self._milliseconds("request.timeout.ms", 30_000),
            transaction_timeout_ms=self._milliseconds("transaction.timeout.ms", 60_000, least=_LEAST_TRANSACTION_MS),
            session_timeout_ms=self._milliseconds("session.timeout.ms", 10_000, _LEAST_SESSION_MS, _MOST_SESSION_MS),
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            username=username,
            password=password,
            trusted=self._trusted() if uses_tls else None,
            certificate=self._certificate() if uses_tls else None,
            key_password=self._text("ssl.key.password"),
            checks_host_name=self._text("ssl.endpoint.identification.algorithm", "https") != "",
        )
        if self._problems:
            raise ConfigException.of(self._problems)
        idle = self._idle(protocol)
        if idle:
            _log.warning(
                "With security.protocol=%s%s these settings have no effect: %s. They have with %s.",
                protocol,
                "" if "security.protocol" in self._settings else " (the default)",
                ", ".join(idle),
                " or ".join(each for each in _PROTOCOLS if not self._idle(each)),
            )
        return found

    def _idle(self, protocol: str) -> list[str]:
        """The given settings that are not used with that protocol."""
        used = {"sasl": protocol.startswith("SASL"), "ssl": protocol.endswith("SSL")}
        return [key for key in UNDERSTOOD if self._text(key) and not used.get(key.partition(".")[0], True)]

    def _check_spelling(self) -> None:
        for key, value in ((str(key), value) for key, value in self._settings.items()):
            near = None if key in UNDERSTOOD or key.startswith(_PREFIXES) else nearest(key, UNDERSTOOD, _SLIP)
            if near is not None:
                self._refuse(key, visible(near, value), "a key that is understood", f"Maybe {near} is meant.")

    def _text(self, key: str, default: str | None = None) -> str | None:
        value = self._settings.get(key, default)
        return None if value is None else str(value).strip()

    def _refuse(self, key: str, value: object, expected: str, advice: str = "") -> None:
        self._problems.append(ConfigProblem(key, value, expected, advice))

    def _one_of(self, key: str, allowed: Sequence[str], default: str) -> str:
        value = (self._text(key, default) or default).upper()
        if value not in allowed:
            self._refuse(key, self._settings[key], f"one of {', '.join(allowed)}")
            return default
        return value

    def _milliseconds(self, key: str, default: int, least: int = 1, most: int = _MOST_MS) -> int:
        text = self._text(key, str(default)) or ""
        if not text.isdecimal() or not least <= int(text) <= most:
            expected = "a positive number of milliseconds" if least == 1 else f"at least {least} milliseconds"
            expected += f", and at most {most}" if most < _MOST_MS else ""
            self._refuse(key, self._settings[key], expected)
            return default
        return int(text)

    def _servers(self) -> tuple[str, ...]:
        value = self._settings.get(BOOTSTRAP_SERVERS)
        listed = value if isinstance(value, (list, tuple)) else str(value or "").split(",")
        servers = tuple(str(server).strip() for server in listed if str(server).strip())
        if not servers:
            self._refuse(BOOTSTRAP_SERVERS, value, "host:port of at least one broker", "Maybe localhost:9092.")
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                self._refuse(BOOTSTRAP_SERVERS, value, f"a list of host:port, but {shown(server)} is none")
        return servers

    def _credentials(self, protocol: str) -> tuple[str | None, str | None, str]:
        if not protocol.startswith("SASL"):
            return None, None, "PLAIN"
        mechanism = self._one_of("sasl.mechanism", _MECHANISMS, "PLAIN")
        options = _jaas_options(self._text("sasl.jaas.config") or "")
        if not (options.get("username") and options.get("password")):
            self._refuse(
                "sasl.jaas.config",
                "[hidden]" if "sasl.jaas.config" in self._settings else None,
                'a login module with username="..." and password="..."',
                'Maybe org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="...";',
            )
        return options.get("username"), options.get("password"), mechanism

    def _trusted(self) -> str | None:
        inline = self._text("ssl.truststore.certificates")
        path = self._pem_file("ssl.truststore") if inline is None else None
        if inline is None and path is None:
            return None
        text, context = inline, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if path is not None:
                # Tools write names in any language between the certificates; OpenSSL is given ASCII.
                text = Path(path).read_bytes().decode("ascii", "ignore")
            context.load_verify_locations(cadata=text)
        except (OSError, ValueError) as error:
            if path is None:
                self._refuse("ssl.truststore.certificates", "[hidden]", "certificates in PEM")
            else:
                self._refuse("ssl.truststore.location", path, f"a PEM file with certificates{_reason(error)}")
        return text

    def _certificate(self) -> str | None:
        if self._text("ssl.keystore.certificate.chain") is not None:
            self._refuse(
                "ssl.keystore.certificate.chain",
                "[hidden]",
                "not used: the clients read a file",
                "Maybe write chain and key to one file and name it in ssl.keystore.location with ssl.keystore.type=PEM.",
            )
        path = self._pem_file("ssl.keystore")
        if path is not None:
            try:
                _load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), path, self._text("ssl.key.password"))
            except (OSError, ValueError) as error:
                expected = "a PEM file with a certificate and its private key, which ssl.key.password opens"
                self._refuse("ssl.keystore.location", path, f"{expected}{_reason(error)}")
        return path

    def _pem_file(self, store: str) -> str | None:
        path = self._text(f"{store}.location")
        if path is None:
            return None
        kind = (self._text(f"{store}.type", "JKS") or "JKS").upper()
        if kind != "PEM":
            self._refuse(f"{store}.type", kind, "PEM, since Python reads no Java key stores", _STORE_ADVICE)
            return None
        return path


def _load_key(context: ssl.SSLContext, path: str, password: str | None) -> None:
    # Without a password OpenSSL would ask for it at the terminal.
    context.load_cert_chain(path, password=password or "")


def _reason(error: Exception) -> str:
    """What the operating system says; of what OpenSSL says nobody learns more."""
    is_known = isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror
    return f" ({error.strerror})" if is_known else ""  # type: ignore[attr-defined]


def _jaas_options(text: str) -> dict[str, str]:
    """The options of a JAAS login module, `key="value"`; a backslash makes the character after it part of the value."""
    options = {}
    for key, quoted, plain in _JAAS_OPTION.findall(text):
        options[key] = re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
    return options
