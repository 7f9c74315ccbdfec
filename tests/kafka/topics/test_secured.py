"""Tasks read and write topics of a broker that wants TLS and a password; and what a wrong one brings."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from task_assignor.kafka.errors import KafkaClusterException
from tests.kafka.secured import SCRAM_PASSWORD, Secured
from tests.kafka.topics.records import killer
from tests.kafka.topics.test_sinks import Counting

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="{SCRAM_PASSWORD}";'


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_sources_outputs_and_changelogs_behind_tls_and_a_password(
    secure_cluster: Secured, unique: Unique, tmp_path: Path, mechanism: str
) -> None:
    cluster, settings = secure_cluster
    if mechanism != "PLAIN":
        settings = {**settings, "sasl.mechanism": mechanism, "sasl.jaas.config": SCRAM}
    counting = Counting(cluster, unique)
    result = counting.run(tmp_path / "run", topics_settings=settings, on_event=killer(after_commits=2))
    assert result.lost_clients
    counting.check()
    # Passwords stay where they were given.
    secret = SCRAM_PASSWORD.encode() if mechanism != "PLAIN" else b"strange"
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and secret in file.read_bytes()]


@pytest.mark.parametrize("what", ["password", "mechanism", "certificate"])
def test_who_is_refused_hears_it_at_once(secure_cluster: Secured, unique: Unique, tmp_path: Path, what: str) -> None:
    cluster, settings = secure_cluster
    counting = Counting(cluster, unique, rows=10)
    if what == "password":
        wrong = {**settings, "sasl.jaas.config": str(settings["sasl.jaas.config"]).replace("password=", "password=no")}
        told = "refuses: .*Maybe the user or password in sasl.jaas.config is wrong"
    elif what == "mechanism":
        wrong = {**settings, "bootstrap.servers": cluster.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT"}
        told = "refuses: .*Maybe the listener has another sasl.mechanism, or none"
    else:
        wrong = {key: value for key, value in settings.items() if not key.startswith("ssl.truststore")}
        told = "refuses: .*Maybe ssl.truststore.location does not have its certificate"
    begin = time.monotonic()
    with pytest.raises(KafkaClusterException, match=told) as caught:
        counting.run(tmp_path / "run", topics_settings=wrong)
    assert time.monotonic() - begin < 55, "not after the 60 s that brokers are waited for"
    assert "strange" not in str(caught.value)
