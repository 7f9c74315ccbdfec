"""The settings that are known by Kafka's own names, with types, defaults and limits. Reading them is in `settings.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from task_assignor.sdk.config_def import ConfigKey, given_value
from task_assignor.sdk.configs import ASSIGNMENT_KEYS
from task_assignor.sdk.ids import MOST_PORT, HostInfo
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import NAME_RULE, is_name, is_url

CLIENT_TAG_PREFIX: Final = "client.tag."
MAX_CLIENT_TAGS: Final = 5
MAX_CLIENT_TAG_KEY_LENGTH: Final = 20
MAX_CLIENT_TAG_VALUE_LENGTH: Final = 30

TASK_ASSIGNOR_CLASS: Final = "task.assignor.class"
INTERNAL_TASK_ASSIGNOR_CLASS: Final = "internal.task.assignor.class"
RACK_AWARE_ASSIGNMENT_TAGS: Final = "rack.aware.assignment.tags"

# As Kafka reads it (`Utils.getHost`), but for longer ones than its leader can tell the members of a group: none of them would be told anything.
_HOST_AND_PORT: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+\-.]*://)?\[?([0-9A-Za-z\-._%:]{1,65535})\]?:([0-9]{1,10})")

OFFSET_RESET_RULE: Final = "earliest, latest, or by_duration: with days, hours, minutes and whole seconds as ISO 8601 has them, such as by_duration:PT24H"
_BY_DURATION: Final = re.compile(
    r"by_duration:P(?!$)(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?"
)
_SECONDS: Final = (86_400, 3_600, 60, 1)


def parse_host_info(text: str) -> HostInfo | None:
    """The host and port in `host:port` or `[IPv6 address]:port`, whatever protocol is before it; None if it is neither."""
    match = _HOST_AND_PORT.fullmatch(text)
    return None if match is None or int(match[2]) > INT32_MAX else HostInfo(match[1], int(match[2]))


def by_duration_ms(reset: str) -> int | None:
    """How long before now an `auto.offset.reset` by a duration begins, ms; None: it is none of those, or has years, months or fractions."""
    found = _BY_DURATION.fullmatch(reset)
    return (
        None if found is None else 1_000 * sum(int(n or 0) * s for n, s in zip(found.groups(), _SECONDS, strict=True))
    )


def _offset_reset(value: object) -> str | None:
    is_one = value in ("earliest", "latest", "none") or by_duration_ms(str(value)) is not None
    return None if is_one else OFFSET_RESET_RULE


def _server(value: object) -> str | None:
    host = parse_host_info(str(value))
    return None if value == "" or (host is not None and host.port <= MOST_PORT) else "host:port, or empty"


def _folder(value: object) -> str | None:
    text = str(value)
    return (
        "the path of a folder, not a URL and not '~', which only shells know; or empty"
        if is_url(text) or text[:1] == "~"
        else None
    )


def _name(value: object) -> str | None:
    return None if is_name(value) else NAME_RULE


_OTHERS: Final = (
    ConfigKey(
        name="application.id",
        type="string",
        default=None,
        validator=_name,
        doc="Name of the application, allowed as the name of a topic; what runs one needs it, planning does not.",
    ),
    ConfigKey(
        name="application.server",
        type="string",
        default="",
        validator=_server,
        doc="`host:port` where this client answers queries; empty: nowhere.",
    ),
    ConfigKey(
        name="auto.offset.reset",
        type="string",
        default=None,
        validator=_offset_reset,
        doc="Where an application begins to read its sources, and whether a run goes on where rows have been deleted (KIP-1106): `earliest`, `latest` or `by_duration:PT24H`; not set: `RuntimeOptions` decide.",
    ),
    ConfigKey(
        name="client.rack",
        type="string",
        default="",
        doc="Rack of this client; empty: none.",
    ),
    ConfigKey(
        name="heartbeat.interval.ms",
        type="int",
        default=None,
        minimum=1,
        doc="Milliseconds between heartbeats of a client; not set: `RuntimeOptions` decide.",
    ),
    ConfigKey(
        name=INTERNAL_TASK_ASSIGNOR_CLASS,
        type="class",
        default=None,
        doc="Kafka's internal name of `task.assignor.class`; as there, only used if that is not set.",
    ),
    ConfigKey(
        name="max.poll.interval.ms",
        type="int",
        default=None,
        minimum=1,
        doc="Milliseconds that a processor may take for a batch, a restore or a snapshot for a step (KIP-62); not set: `RuntimeOptions` decide.",
    ),
    ConfigKey(
        name="max.task.idle.ms",
        type="long",
        default=None,
        minimum=-1,
        doc="Milliseconds that a task waits for rows of some sources when others have some (KIP-353, KIP-695); not set: `RuntimeOptions` decide.",
    ),
    ConfigKey(
        name="num.stream.threads",
        type="int",
        default=1,
        minimum=1,
        doc="Threads of this client: its capacity.",
    ),
    ConfigKey(
        name="session.timeout.ms",
        type="int",
        default=None,
        minimum=1,
        doc="A client that is not heard of for so many milliseconds is lost; not set: `RuntimeOptions` decide.",
    ),
    ConfigKey(
        name="state.cleanup.delay.ms",
        type="long",
        default=None,
        minimum=0,
        doc="What a client has on its disk of tasks that went elsewhere is deleted when it has not changed for so many milliseconds; not set: `RuntimeOptions` decide.",
    ),
    ConfigKey(
        name="state.dir",
        type="string",
        default="",
        validator=_folder,
        doc="Folder of the state on a client's machine, with a folder for each client; empty: beside the run's files.",
    ),
    ConfigKey(
        name=TASK_ASSIGNOR_CLASS,
        type="class",
        default=None,
        doc="The assignor: a class, a dotted path, a registered name, or Kafka's Java class name.",
    ),
)
KNOWN_KEYS: Final = MappingProxyType(
    {key.name: key for key in sorted((*ASSIGNMENT_KEYS.values(), *_OTHERS), key=lambda key: key.name)}
)
"""Key -> its declaration. The keys `client.tag.*` are not in it: their names are the user's."""

MAIN_CONSUMER_PREFIXES: Final = ("main.consumer.", "consumer.")
"""A key with one of these is about the consumer that processes; the first wins, as in Kafka, and any over the plain key."""


def values_given(
    key: str, given: Mapping[str, object], prefixes: Sequence[str] = MAIN_CONSUMER_PREFIXES
) -> Iterator[tuple[str, Any]]:
    """What settings say about the consumer that processes, each with the key it is given by; the one that counts is first.

    Args:
        key: one of the known keys that have no default, without a prefix.
        given: the settings.
        prefixes: it may have these.

    Raises:
        ConfigException: a value is not allowed.
    """
    for prefix in (*prefixes, ""):
        # Read as the plain key would be.
        value = given_value(attrs.evolve(KNOWN_KEYS[key], name=prefix + key), given)
        if value is not None:
            yield prefix + key, value


STATE_KEYS: Final[Mapping[str, str]] = MappingProxyType({key.name: name for name, key in ASSIGNMENT_KEYS.items()})
"""Settings that a state carries -> their attributes in `AssignmentConfigs`."""

OTHER_KAFKA_KEYS: Final = frozenset(
    [
        "allow.os.group.write.access",
        "auto.include.jmx.reporter",
        "bootstrap.servers",
        "buffered.records.per.partition",
        "built.in.metrics.version",
        "cache.max.bytes.buffering",
        "client.id",
        "commit.interval.ms",
        "connections.max.idle.ms",
        "default.client.supplier",
        "default.deserialization.exception.handler",
        "default.dsl.store",
        "default.key.serde",
        "default.list.key.serde.inner",
        "default.list.key.serde.type",
        "default.list.value.serde.inner",
        "default.list.value.serde.type",
        "default.production.exception.handler",
        "default.timestamp.extractor",
        "default.value.serde",
        "deserialization.exception.handler",
        "dsl.store.suppliers.class",
        "enable.metrics.push",
        "ensure.explicit.internal.resource.naming",
        "errors.dead.letter.queue.topic.name",
        "group.protocol",
        "log.summary.interval.ms",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "poll.ms",
        "processing.exception.handler",
        "processing.guarantee",
        "processor.wrapper.class",
        "production.exception.handler",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "repartition.purge.interval.ms",
        "replication.factor",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "rocksdb.config.setter",
        "security.protocol",
        "send.buffer.bytes",
        "statestore.cache.max.bytes",
        "task.timeout.ms",
        "topology.optimization",
        "transaction.timeout.ms",
        "upgrade.from",
        "window.size.ms",
        "windowed.inner.class.serde",
        "windowstore.changelog.additional.retention.ms",
    ]
)
"""Other settings of Kafka Streams: passed on unread, and never taken for misspelt ones of ours."""
