"""Look-ups in a live cluster: partitions, racks, offsets, groups. Nothing here changes anything in the cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import attrs
import kafka.errors
from kafka import KafkaAdminClient
from kafka import TopicPartition as ClientPartition
from kafka.admin import OffsetSpec

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException, UnknownGroupException
from task_assignor.kafka.group_description import GroupDescription, GroupMember, describe_member
from task_assignor.sdk import ConfigException, StateException, TopicPartition
from task_assignor.sdk.checks import Kind, all_of, whole_number
from task_assignor.sdk.text import counted, duration, listed, nearest, shown

DEFAULT_TIMEOUT_MS: Final = 30_000
_UNKNOWN_TOPIC: Final = 3
_CONSUMERS: Final = "consumer"
# What else begins so is somebody's, such as the heartbeats of connectors.
_KAFKAS_OWN: Final = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__remote_log_metadata", "__share_group_state", "__transaction_state"}
)
_LATE_S: Final = 5.0
"""So much longer a look-up is waited for that ends by itself."""
_AGAIN_S: Final = 0.1
_NOT_THERE: Final = (
    kafka.errors.KafkaConnectionError,
    kafka.errors.NodeNotReadyError,
    # Of a group there is a coordinator soon after the cluster's first one was asked for, or after its broker has ended.
    kafka.errors.CoordinatorNotAvailableError,
    kafka.errors.CoordinatorLoadInProgressError,
    kafka.errors.NotCoordinatorError,
)
_Found = TypeVar("_Found")


@attrs.frozen
class GroupListing:
    """A group of the cluster.

    Args:
        name: its id.
        state: Kafka's word for its state, such as `Stable`.
        kind: `classic`, `consumer`, `streams` or `share`; "" where the broker is too old to say.
        protocol_type: `consumer` for consumer groups.
    """

    name: str
    state: str
    kind: str
    protocol_type: str


class Cluster:
    """A connection to a cluster for look-ups; a context manager.

    Args:
        settings: how to reach it: `ClientSettings`, or settings in the keys of Kafka's Java clients.
        timeout_ms: the longest that any one look-up may take, milliseconds; to reach a broker at all it is 15 s at most.

    Raises:
        ConfigException: a setting is wrong, or the time. So do all methods for arguments of another kind.
        KafkaClusterException: it cannot be reached within that time. So do all methods, with what was asked for.

    Examples:
        >>> with Cluster({"bootstrap.servers": "localhost:9092"}) as cluster:  # doctest: +SKIP
        ...     cluster.partition_counts(["clicks"])
        {'clicks': 4}
    """

    _is_closed = False

    def __init__(self, settings: ClientSettings | Mapping[str, object], timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        self._settings = settings if isinstance(settings, ClientSettings) else ClientSettings.of(settings)
        self._timeout_ms = whole_number("timeout_ms", timeout_ms, 1)
        arguments = self._settings.for_kafka_python()
        for limit in ("request_timeout_ms", "bootstrap_timeout_ms"):
            arguments[limit] = min(timeout_ms, arguments[limit])
        self._admin: _Admin = self._ask("connect", lambda: _Admin(**arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. A second call does nothing."""
        self._is_closed = True
        self._admin.close()

    def topics(self) -> list[str]:
        """The names of all topics that are not Kafka's own and that the user may see, sorted."""
        return sorted(name for name in self._ask("list the topics", self._admin.list_topics) if name not in _KAFKAS_OWN)

    def existing(self, topics: Iterable[str]) -> frozenset[str]:
        """Those of the topics that there are; Kafka's own, too.

        Raises:
            KafkaClusterException: the user may not see one; it is not called missing.
        """
        return frozenset(self._described(topics))

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Topic -> number of its partitions.

        Raises:
            KafkaClusterException: a topic does not exist.
        """
        return {topic: len(found) for topic, found in self._replicas(topics).items()}

    def partition_racks(self, topics: Collection[str]) -> dict[str, tuple[frozenset[str] | None, ...]]:
        """Topic -> the racks of the replicas of each partition; None where a broker of it has no `broker.rack`.

        Raises:
            KafkaClusterException: a topic does not exist.
        """
        brokers = self._ask("list the brokers", self._admin.brokers)
        rack = {broker["node_id"]: broker["rack"] or None for broker in brokers}
        return {
            topic: tuple(_racks([rack.get(node) for node in nodes]) for nodes in found)
            for topic, found in self._replicas(topics).items()
        }

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Partition -> the offset that its next record will have (of committed records: read_committed's end is not asked)."""
        return self._offsets(partitions, OffsetSpec.LATEST, "end")

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Partition -> the offset of its first record that is still there."""
        return self._offsets(partitions, OffsetSpec.EARLIEST, "first")

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Partition -> the offset that the group has committed, for all partitions that it has committed at all."""
        _check_group(group)
        found = self._ask(f"read the offsets of the group {group!r}", lambda: self._admin.list_group_offsets([group]))
        return {
            TopicPartition(each.topic, each.partition): offset.offset
            for each, offset in sorted(found[group].items())
            if offset.offset >= 0
        }

    def groups(self) -> list[GroupListing]:
        """All groups, sorted by name."""
        found = self._ask("list the groups", self._admin.list_groups)
        listings = [
            GroupListing(
                group["group_id"], group.get("group_state") or "", group.get("group_type") or "", group["protocol_type"]
            )
            for group in found
        ]
        return sorted(listings, key=lambda listing: listing.name)

    def describe_group(self, group: str) -> GroupDescription:
        """What the members of a classic group said and were given.

        Raises:
            UnknownGroupException: there is no such group.
            KafkaClusterException: it is of a kind that its brokers assign (`group.protocol` consumer or streams), or of
                another protocol type than consumers, such as the workers of Kafka Connect.
        """
        _check_group(group)
        listing = {each.name: each for each in self.groups()}
        if group not in listing:
            close = nearest(group, listing)
            advice = f"Maybe {close!r}." if close else f"There are: {listed(listing) if listing else 'none'}."
            raise UnknownGroupException(f"The cluster has no group {group!r}. {advice}")
        kind, protocol_type = listing[group].kind, listing[group].protocol_type
        if kind not in {"", "classic"}:
            raise KafkaClusterException(
                f"The group {group!r} is of kind {kind!r}: its brokers decide, and task.assignor.class has no effect "
                f"there. Only groups with group.protocol=classic can be looked into."
            )
        # Of a group without members brokers may not say it.
        if protocol_type not in {"", _CONSUMERS}:
            raise KafkaClusterException(
                f"The group {group!r} is of protocol type {protocol_type!r}: its members share no partitions of topics. Only "
                f"groups of protocol type {_CONSUMERS!r} can be looked into."
            )
        found = self._ask(f"describe the group {group!r}", lambda: self._admin.describe_groups([group]))[group]
        if found["error"]:
            raise KafkaClusterException(f"The cluster does not describe the group {group!r}: {found['error']}")
        assignor = found["protocol_data"]
        members: list[GroupMember] = [
            describe_member(
                member["member_id"],
                member["group_instance_id"],
                member["client_id"],
                member["client_host"].lstrip("/"),
                assignor,
                member["member_metadata"],
                member["member_assignment"],
            )
            for member in found["members"]
        ]
        return GroupDescription(
            group, found["group_state"], assignor, tuple(sorted(members, key=lambda member: member.member_id))
        )

    def _replicas(self, topics: Collection[str]) -> dict[str, list[list[int]]]:
        """Topic -> partition -> its brokers."""
        topics = _several("topics", str, topics)
        found = self._described(topics)
        missing = sorted(set(topics) - set(found))
        if missing:
            raise KafkaClusterException(
                f"The cluster has no {'topic' if len(missing) == 1 else 'topics'} {listed(missing)}. "
                f"It has {counted(len(self.topics()), 'topic')}."
            )
        return {
            name: [partition["replica_nodes"] for partition in sorted(partitions, key=itemgetter("partition_index"))]
            for name, partitions in sorted(found.items())
        }

    def _described(self, topics: Iterable[str]) -> dict[str, list[Any]]:
        """Topic -> what the cluster says of its partitions, for those that exist."""
        names = sorted(set(_several("topics", str, topics)))
        if not names:
            return {}
        found = {}
        for each in self._ask("describe topics", lambda: self._admin.describe_topics(names)):
            code = each["error_code"]
            if code and code != _UNKNOWN_TOPIC:
                error = kafka.errors.for_code(code)
                raise KafkaClusterException(
                    f"The cluster does not describe the topic {each['name']!r}: {error.__name__}{self._advice(error()) or '.'}"
                )
            if not code:
                found[each["name"]] = each["partitions"]
        return found

    def _offsets(self, partitions: Iterable[TopicPartition], which: Any, word: str) -> dict[TopicPartition, int]:
        given = _several("partitions", TopicPartition, partitions)
        wanted = {ClientPartition(each.topic, each.partition): which for each in given}
        if not wanted:
            return {}
        found = self._ask(
            f"read the {word} offsets of {counted(len(wanted), 'partition')}",
            lambda: self._admin.list_partition_offsets(wanted, timeout_ms=self._timeout_ms),
        )
        return {TopicPartition(each.topic, each.partition): found[each].offset for each in sorted(wanted)}

    def _ask(self, what: str, ask: Callable[[], _Found]) -> _Found:
        """Ask, but not longer than allowed: in a thread of its own, which is left behind if it does not come back."""
        if self._is_closed:
            raise KafkaClusterException(f"Cannot {what}: this Cluster was closed. Maybe ask inside of its `with`.")
        answer: list[_Found] = []
        failure: list[BaseException] = []

        def run() -> None:
            end = time.monotonic() + self._timeout_ms / 1000
            while not answer and not failure:
                try:
                    answer.append(ask())
                except BaseException as error:  # noqa: BLE001  (handed on to the caller)
                    # A broker that ends is still asked until the cluster knows of it.
                    if isinstance(error, _NOT_THERE) and time.monotonic() < end:
                        time.sleep(_AGAIN_S)
                    else:
                        failure.append(error)

        thread = threading.Thread(target=run, name="task-assignor-look-up", daemon=True)
        thread.start()
        # The client has limits of its own; they come first, with a better reason, also where the machine stood still.
        thread.join(self._timeout_ms / 1000 + _LATE_S)
        where = ",".join(self._settings.bootstrap_servers)
        if thread.is_alive():
            raise KafkaClusterException(
                f"Cannot {what}: the cluster at {where} does not answer within {self._timeout_ms} ms."
            )
        if failure:
            error = failure[0]
            if isinstance(error, KafkaClusterException) or not isinstance(error, Exception):
                raise error
            raise KafkaClusterException(f"Cannot {what} at {where}: {_told(error)}{self._advice(error)}") from error
        return answer[0]

    def _advice(self, error: Exception) -> str:
        if isinstance(error, kafka.errors.KafkaTimeoutError):
            # A broker that does not accept a password may just hang up, and kafka-python tries again until it must stop.
            credentials = ", or the user or password in sasl.jaas.config is wrong"
            uses_sasl = self._settings.security_protocol.startswith("SASL")
            reasons = "no broker listens there, or security.protocol is not what the listener speaks"
            return f". Maybe {reasons}{credentials if uses_sasl else ''}."
        if isinstance(error, _NOT_THERE):
            return f". It was tried for {duration(self._timeout_ms)}. Maybe its brokers are down, or have just ended."
        if isinstance(error, kafka.errors.SaslAuthenticationFailedError):
            return ". Maybe the user or password in sasl.jaas.config is wrong."
        if isinstance(error, kafka.errors.AuthorizationError):
            return ". Maybe this user lacks the right to DESCRIBE it."
        if isinstance(error, kafka.errors.UnknownBrokerIdError):
            return ". Maybe a partition has no leader, since its brokers are down."
        return ""


def check_cluster(cluster: object) -> None:
    """Raise ConfigException if this is something else, such as the settings of one."""
    if not isinstance(cluster, Cluster):
        raise ConfigException(f"The cluster ({shown(cluster)}) must be a Cluster. Maybe Cluster(settings).")


def _check_group(group: object) -> None:
    if not isinstance(group, str):
        raise ConfigException(f"The name of a group ({shown(group)}) must be a string.")


def _several(what: str, kind: type[Kind], values: Iterable[Kind]) -> tuple[Kind, ...]:
    # A text would be taken for its letters, and a generator be gone when it is looked at again.
    try:
        return all_of(what, kind, values)
    except StateException as error:
        raise ConfigException(str(error)) from None


class _Admin(KafkaAdminClient):  # type: ignore[misc]
    """Leaves what members said as bytes: kafka-python shows user data as text, from which bytes cannot be had back; and knows old brokers."""

    def brokers(self) -> list[dict[str, Any]]:
        """All brokers. `describe_cluster` looks for a field that those before 3.7 do not send."""
        found: list[dict[str, Any]] = self._manager.run(self._get_cluster_metadata, [])["brokers"]
        return found

    def _describe_groups_process_response(self, response: Any) -> dict[str, dict[str, Any]]:
        groups = {}
        for group in response.groups:
            raw = [
                (bytes(member.member_metadata or b""), bytes(member.member_assignment or b""))
                for member in group.members
            ]
            for member in group.members:
                member.member_metadata = member.member_assignment = b""
            shown = group.to_dict()
            code = shown["error_code"]
            shown["error"] = str(kafka.errors.for_code(code)()) if code else None
            for member, (metadata, assignment) in zip(shown["members"], raw, strict=True):
                member["member_metadata"], member["member_assignment"] = metadata, assignment
            groups[group.group_id] = shown
        return groups


def _told(error: Exception) -> str:
    """Its class, which kafka-python mostly says itself, and its message."""
    name, said = type(error).__name__, str(error)
    return said if said.startswith(name) else f"{name}: {said}"


def _racks(racks: list[str | None]) -> frozenset[str] | None:
    known = [rack for rack in racks if rack is not None]
    return frozenset(known) if len(known) == len(racks) else None
