"""Settings of the runtime itself; those of Kafka Streams are in `StreamsConfig`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from task_assignor.sdk import ConfigException
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.config_keys import OFFSET_RESET_RULE, by_duration_ms
from task_assignor.sdk.integers import INT32_MAX, INT64_MAX
from task_assignor.sdk.text import shown

STATE_MEMORY_BYTES: Final = 512 << 20
"""What all stores of a process may take together, unless it is set."""


def _at_least(
    least: int, meaning: str = "", most: int = INT64_MAX
) -> Callable[[object, attrs.Attribute[int], int], None]:
    """A validator: an int of at least so much and at most so much, which fits into 64 bits."""

    def check(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
        if type(value) is not int or not least <= value <= most:
            is_too_large = type(value) is int and value > most
            limit = f"at most {most}" if is_too_large else meaning or f"at least {least}"
            raise ConfigException(
                f"The {attribute.name} ({shown(value)}) of a {type(instance).__name__} must be an int of {limit}."
            )

    return check


positive: Final = _at_least(1)
_not_negative: Final = _at_least(0)
_waited: Final = _at_least(1, most=INT32_MAX)
"""How long is slept at a time, ms: `poll` takes no more, which are 24 days."""
_not_below_minus_one: Final = _at_least(-1, "at least 0, or -1: do not wait")


def _boolean(instance: object, attribute: attrs.Attribute[bool], value: bool) -> None:
    if type(value) is not bool:
        raise ConfigException(
            f"The {attribute.name} ({shown(value)}) of a {type(instance).__name__} must be True or False."
        )


def _host(instance: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if not (value is None or (isinstance(value, str) and value)):
        raise ConfigException(
            f"The {attribute.name} ({shown(value)}) of a {type(instance).__name__} must be the name or address of a host, or None."
        )


def _offset_reset(instance: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None and value not in ("earliest", "latest") and by_duration_ms(str(value)) is None:
        raise ConfigException(
            f"The {attribute.name} ({shown(value)}) of a {type(instance).__name__} must be {OFFSET_RESET_RULE}. Maybe leave it out "
            "(None): a new application begins with the first rows, and a run ends where rows have gone."
        )


def _compression(instance: object, _: object, value: str | None) -> None:
    check_choice("The compression", value, (None, "lz4", "zstd"), ConfigException, f"of a {type(instance).__name__}")


@attrs.frozen
class RuntimeOptions:
    """Settings of the runtime itself; those of Kafka Streams are in `StreamsConfig`.

    Args:
        auto_offset_reset: where a new application begins to read its sources (`auto.offset.reset`, KIP-1106): "earliest", with the first
            rows that are there; "latest", with those that come from now on; "by_duration:PT24H", with the first that is not older,
            by its time, in Kafka by the record's. Tables are read from their beginning all the same. With any of these a run goes on
            with the first rows that are there where retention, or who else deletes rows, has taken some that were not read
            yet; it warns, and counts them. None: earliest, and such a run ends with an error.
        max_batch_rows: a micro-batch of a task takes at most so many rows of each source partition.
        max_task_idle_ms: in a run that goes on (`until`), a task that has rows of some of its sources waits so long for
            rows of the others before it goes on in the order of time (`max.task.idle.ms`). 0: only for what is known to be
            there; -1: not even for that, so a task takes what it has loaded, and results depend on how batches are cut.
        source_poll_interval_ms: in such a run, how often it is looked whether sources have grown; None: every 20 ms, 25 ms
            in Kafka, 200 ms in an object store. After a second without new rows, 2.5 times as rarely. Looks take at
            most a tenth of a processor: where one is long, as of a thousand partitions in Kafka, they come less often.
        session_timeout_ms: a client that was not heard of for so long is lost. A client whose heartbeats were not answered for so
            long gives its connection up, if the coordinator answers over another one.
        heartbeat_interval_ms: how often clients say that they live. A process of its own does that for each client, so
            that it depends on nothing that runs there.
        max_poll_interval_ms: a client that has not got on with a task for so long is ended, and its tasks are given to
            others (`max.poll.interval.ms`, KIP-62); so is one of which only the heartbeat process was heard. A processor has to return from a batch in this time; a restore or a
            snapshot may take longer altogether, but not each step of it: a file that is read or written, the changes of
            a batch.
        assignor_timeout_ms: the run fails if the assignor has not decided in this time.
        stop_timeout_ms: after `request_stop` the batches in progress may take so long; then they are left undone. So may the last look at topics, which the next run
            takes, too.
        startup_timeout_ms: the run fails if not enough clients are there in this time.
        min_clients: the run begins when so many clients are there, at most as many as there are; None: all or, of Spark after ten
            seconds, those that have slots.
        rejoin_timeout_ms: a client that lost its connection tries so long to find the coordinator again.
        snapshot_changelog_bytes: a client writes a snapshot of a task when its changelogs have grown by so much since the
            last one, or by 2 048 batches, those of active tasks also into the run folder; 0: never for that reason. At the
            end it writes one into its state directory.
        snapshot_interval_ms: and at the latest after this time, if they have grown at all; 0: never for that reason.
        state_cleanup_delay_ms: what a client has in its state directory of tasks that went elsewhere is deleted when it has not
            changed for so long (`state.cleanup.delay.ms`); until then they would come back to it.
        state_memory_bytes: what the stores of a client may have in memory together, but for key-value stores that are
            not `on_disk`: the rows of window stores beyond that are on disk, and it bounds the cache of stores on disk.
        assignment_retry_ms: after a `TaskAssignmentException` the rebalance is tried again after this time. It is the shortest pause
            between follow-up rebalances that are asked for at once again and again; each is twice the one before, up to a minute.
        max_attempts: the run fails if a task of a batch was lost so often together with its client.
        max_assignment_retries: after so many `TaskAssignmentException`s in a row the next one makes the run fail.
        checkpoint_every_commits: after so many commits a checkpoint takes the place of those before.
        output_retention_ms: small files of outputs are merged into larger ones; for so long at least the small ones stay
            for those who have listed them before. A query that reads an output while the run goes on may take so long.
        history_bytes: what commits said is kept for those who look at who did what: about so many bytes (compressed), the newest.
        compression: of output and changelog files: None, "lz4" or "zstd".
        rack_from_host: a client whose rack nobody gives, neither its spec nor `client.rack` nor TASK_ASSIGNOR_RACK in its
            environment, has the name of its host as rack.
        validate_state: coordinator and clients check after every event that their state holds together; for tests, since
            it takes its time.
        bind_host: address that the coordinator listens on; None: the one that the launcher's clients can reach.
        bind_port: port that it listens on, as where a firewall or a container lets clients reach only some; 0: any that is free.
            Of pinned Spark jobs the next one is used, too.
        advertised_host: address that clients connect to; None: the same.
    """

    auto_offset_reset: str | None = attrs.field(default=None, validator=_offset_reset)
    max_batch_rows: int = attrs.field(default=100_000, validator=positive)
    max_task_idle_ms: int = attrs.field(default=0, validator=_not_below_minus_one)
    source_poll_interval_ms: int | None = attrs.field(default=None, validator=attrs.validators.optional(_waited))
    session_timeout_ms: int = attrs.field(default=10_000, validator=positive)
    heartbeat_interval_ms: int = attrs.field(default=500, validator=_waited)
    max_poll_interval_ms: int = attrs.field(default=300_000, validator=positive)
    assignor_timeout_ms: int = attrs.field(default=300_000, validator=positive)
    stop_timeout_ms: int = attrs.field(default=5_000, validator=positive)
    startup_timeout_ms: int = attrs.field(default=60_000, validator=positive)
    min_clients: int | None = attrs.field(default=None, validator=attrs.validators.optional(positive))
    rejoin_timeout_ms: int = attrs.field(default=10_000, validator=positive)
    snapshot_changelog_bytes: int = attrs.field(default=64 << 20, validator=_not_negative)
    snapshot_interval_ms: int = attrs.field(default=60_000, validator=_not_negative)
    state_cleanup_delay_ms: int = attrs.field(default=600_000, validator=_not_negative)
    state_memory_bytes: int = attrs.field(default=STATE_MEMORY_BYTES, validator=positive)
    assignment_retry_ms: int = attrs.field(default=200, validator=positive)
    max_attempts: int = attrs.field(default=10, validator=positive)
    max_assignment_retries: int = attrs.field(default=20, validator=positive)
    checkpoint_every_commits: int = attrs.field(default=256, validator=positive)
    output_retention_ms: int = attrs.field(default=600_000, validator=_not_negative)
    history_bytes: int = attrs.field(default=16 << 20, validator=positive)
    compression: str | None = attrs.field(default=None, validator=_compression)
    rack_from_host: bool = attrs.field(default=False, validator=_boolean)
    validate_state: bool = attrs.field(default=False, validator=_boolean)
    bind_host: str | None = attrs.field(default=None, validator=_host)
    bind_port: int = attrs.field(default=0, validator=_at_least(0, most=65_534))
    advertised_host: str | None = attrs.field(default=None, validator=_host)

    def __attrs_post_init__(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigException(
                f"The heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than the session_timeout_ms "
                f"({self.session_timeout_ms}). Maybe a third of it."
            )
