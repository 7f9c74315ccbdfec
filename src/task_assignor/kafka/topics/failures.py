"""What errors of confluent-kafka mean for a transaction: another try may succeed, or brokers refuse it however often it is tried."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from task_assignor.kafka.topics.rights import NO_RIGHT
from task_assignor.sdk.text import duration

_ABSENT: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
)
BEGIN_ANEW: Final = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001 (Kafka's names for local errors begin so): the producer has met one before
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
        KafkaError._STATE,  # noqa: SLF001
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.PRODUCER_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Errors after which a transaction is over, and another try may succeed. The name PRODUCER_FENCED is a newer owner's doing."""
REFUSED: Final = {
    **NO_RIGHT,
    KafkaError.INVALID_RECORD: "Maybe the topic is compacted, and a row has no key.",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Maybe transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms.",
    KafkaError.INVALID_TIMESTAMP: "Maybe a row's time is further from now than the topic's message.timestamp.before.max.ms or "
    "message.timestamp.after.max.ms.",
    KafkaError.MSG_SIZE_TOO_LARGE: "Maybe a row is larger than the topic's max.message.bytes.",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "Maybe a task has too many stores and outputs, or too long names of them, "
    "for the brokers' offset.metadata.max.bytes.",
    KafkaError.POLICY_VIOLATION: "",
}
"""What brokers refuse however often it is tried -> advice."""


def refusal_of(error: KafkaException | SystemError) -> KafkaException:
    """What Kafka has refused: a fatal error that confluent-kafka meets as it calls back comes as the cause of a SystemError.

    Raises:
        SystemError: it is about something else.
    """
    if isinstance(error, SystemError):
        if not isinstance(error.__cause__, KafkaException):
            raise error
        return error.__cause__
    return error


def why_ended(error: KafkaError, seconds: float, limit_ms: int, problem: str) -> str:
    """Why brokers may have ended a transaction: they say the same of one that took too long as of one whose task somebody else has.

    Args:
        error: what they have said.
        seconds: how long it has taken; 0: it had not begun.
        limit_ms: how long it may take.
        problem: what is wrong with topics, if it has taken that long; "": nothing that is seen.
    """
    if error.code() in _ABSENT:
        return "Maybe somebody has deleted a topic that it writes, or created it anew with fewer partitions."
    if error.code() == KafkaError.INVALID_PRODUCER_ID_MAPPING:
        return "Maybe nothing was written for so long that brokers have forgotten it (transactional.id.expiration.ms, 7 days)."
    if seconds * 1000 < limit_ms:
        return (
            "Either another client has taken the task over, or brokers were away for too long; if it happens again and again, another "
            "run may have the same application.id."
        )
    taken = f"It has taken {seconds:.0f} s, and brokers end those of more than {duration(limit_ms)}"
    if problem:
        return f"{taken}. The cluster answers, but {problem}."
    return (
        f"{taken}; if it happens again and again, the brokers are too slow for such batches. Maybe smaller ones: "
        "RuntimeOptions(max_batch_rows=...), or more time: transaction.timeout.ms among the settings of KafkaTopics."
    )
