"""A broker that wants TLS and passwords or certificates and knows ACLs, and the settings for it that Java clients have."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping

import pytest

from tests.kafka.broker import KafkaCluster, _free_ports
from tests.kafka.fixtures import missing
from tests.kafka.jars import KafkaUnavailableError

PASSWORD = 'a "strange\\ password; = 1'
SCRAM_PASSWORD = "salted"


class SecureCluster(KafkaCluster):
    """A broker with two more listeners: one wants TLS and a password, the other one TLS and the client's certificate."""

    ports: Mapping[str, int]

    def _broker_settings(self, broker: int, controller: int) -> dict[str, str]:
        settings = super()._broker_settings(broker, controller)
        protocols = {"SECURE": "SASL_SSL", "MUTUAL": "SSL"}
        self.ports = dict(zip(protocols, _free_ports(2), strict=True))
        for name, port in self.ports.items():
            settings["listeners"] += f",{name}://127.0.0.1:{port}"
            settings["advertised.listeners"] += f",{name}://127.0.0.1:{port}"
        added = "".join(f",{name}:{protocol}" for name, protocol in protocols.items())
        settings["listener.security.protocol.map"] = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{added}"
        return settings


Secured = tuple[SecureCluster, dict[str, object]]
"""The broker, and the settings for its listener with TLS and a password."""


@pytest.fixture(scope="session")
def secure_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key, store = folder / "certificate.pem", folder / "key.pem", folder / "store.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*command, *names], check=True, capture_output=True)
    except FileNotFoundError:
        missing("needs the command openssl, which makes certificates")
    store.write_text(key.read_text() + certificate.read_text())
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    tls = {
        f"listener.name.{name}.ssl.{store_kind}.{setting}": value
        for name in ("secure", "mutual")
        for store_kind, path in (("keystore", store), ("truststore", certificate))
        for setting, value in (("type", "PEM"), ("location", str(path)))
    }
    broker = SecureCluster(
        settings={
            **tls,
            # Allows everything to everybody where a test does not say otherwise.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
            "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
            # Properties files take a backslash away, login modules another one.
            "listener.name.secure.plain.sasl.jaas.config": f'{module} user_me="{escaped}";'.replace("\\", "\\\\"),
        }
    )
    broker.format_options = [
        part
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for part in ("--add-scram", f"{name}=[name=me,password={SCRAM_PASSWORD}]")
    ]
    try:
        broker.__enter__()
    except KafkaUnavailableError as error:
        missing(str(error))
    settings: dict[str, object] = {
        "bootstrap.servers": f"127.0.0.1:{broker.ports['SECURE']}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="me" password="{escaped}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    yield broker, settings
    broker.__exit__(None, None, None)
