"""What the brokers' ACLs must let the application's user do, asked before anything is read or written.

A right that is first needed when a task is taken over, such as that to read a changelog topic, would be missed then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.sdk.text import listed

SOURCE: Final = (AclOperation.READ,)
OUTPUT: Final = (AclOperation.WRITE,)
INTERNAL: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
GROUP: Final = (AclOperation.READ,)
_DENIED: Final = (
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
NO_RIGHT: Final = dict.fromkeys(_DENIED, "Maybe the brokers' ACLs lack a right of the application's user.")
"""Codes of errors -> advice."""


def check_rights(
    kind: str, name: str, rights: Collection[AclOperation] | None, needed: Collection[AclOperation]
) -> None:
    """See to it that the user may do what an application does with a topic or a group.

    Args:
        kind: `topic` or `group`.
        name: its name.
        rights: what the user may do with it; None: the broker does not say.
        needed: what it must.

    Raises:
        KafkaClusterException: it may not.
    """
    missing = [
        "".join(map(str.capitalize, right.name.split("_")))
        for right in needed
        if rights is not None and right not in rights
    ]
    if missing:
        options = " ".join(f"--operation {right}" for right in missing)
        raise KafkaClusterException(
            f"The brokers' ACLs do not let the application's user do {listed(missing)} with the {kind} {name}, which it must. "
            f"Maybe kafka-acls --add --allow-principal User:... {options} --{kind} {name}."
        )
