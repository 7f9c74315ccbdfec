"""How a topic gets its next version, when anybody may change it at the same time; and how rows are deleted from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.storage import Storage, as_document, open_document
from task_assignor.runtime.storage.disk import disk_errors, warn
from task_assignor.runtime.topics.names import herald_name, lists_folder, look_at_names, version_name
from task_assignor.runtime.topics.topic import Topic, topics_storage
from task_assignor.runtime.topics.versions import KEPT_VERSIONS, Life, TopicDocument, TopicVersion, life_of
from task_assignor.sdk.integers import plain_int
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

_log = logger_of(__name__)


def put_version(storage: Storage, version: TopicVersion) -> TopicVersion:
    """Make a version count.

    Returns:
        The version as it was written: what was long is in a list.

    Raises:
        FileExistsError: there is one of that number.
        FileNotFoundError: so many came later that a list of it has gone.
    """
    if version.is_long:
        version = version.shortened(storage)
    document = as_document(version.document())
    if not version.number:
        storage.put_if_absent(herald_name(version.spec.name, version.topic_id), document)
    storage.put_if_absent(version.name, document)
    return version


def change_topic(
    root: str | Path, name: str, topic_id: str, following: Callable[[Topic], TopicVersion | None]
) -> Topic:
    """Give a topic its next version; where others do so at the same time, one comes after the other.

    Args:
        root: folder of the topics, a path or a URL.
        name: name of the topic.
        topic_id: its identity.
        following: the version that is to follow the topic as it is; None: what is wanted is in it. May be asked often.

    Returns:
        The topic with what was wanted.

    Raises:
        TopicException: it is gone, cannot be read, or was written anew; and what `following` raises.
        OSError: the disk says no.
    """
    storage = topics_storage(root)
    while True:
        topic = Topic.open(root, name, topic_id)
        try:
            version = following(topic)
            if version is None:
                return topic
            version = put_version(storage, version)
        except FileExistsError:
            # Somebody else was quicker: after them.
            continue
        except FileNotFoundError:
            # So many others were quicker that a list of this version has gone.
            if Topic.open(root, name, topic_id).version == topic.version:
                raise
            continue
        life = life_of(storage, name)
        if life is None or not _goes_on(version, life):
            # Somebody has deleted the topic, and maybe written another one: that is said when it is opened.
            _withdraw(storage, version)
            continue
        if life.numbers[-1] >= version.number + KEPT_VERSIONS - 1:
            # So many others were quicker that the number may have become free again; what they wrote counts.
            storage.delete([version.name])
            continue
        # The first one says which topic is there, maybe another one by the time that it would be deleted.
        old = [number for number in life.numbers if 0 < number <= version.number - KEPT_VERSIONS]
        try:
            storage.delete(version_name(name, number, version.id_in_names) for number in old)
            if version.lists != topic.now.lists:
                _delete_lists(storage, version)
        except OSError as error:
            # What was wanted counts. Who is told otherwise writes it once more.
            warn(_log, error, "Older versions of topic %r in %s could not be deleted", name, root)


def _goes_on(version: TopicVersion, life: Life) -> bool:
    """Whether a version that was put is one of the topic that is there."""
    if life.topic_id != version.id_in_names:
        return False
    # Without ids only the version before it tells, which stays while few come after it.
    return not version.is_former or version.number - 1 in life.numbers or version.number < life.numbers[-1]


def _withdraw(storage: Storage, version: TopicVersion) -> None:
    """Take back a version without a topic, unless another look finds the topic: others may have seen it then, and go on from it."""
    life = life_of(storage, version.spec.name)
    goes_on = life is not None and _goes_on(version, life)
    # One without an id does no harm beside a topic with one.
    is_beside = life is not None and life.topic_id is not None and version.is_former
    if not goes_on and not is_beside:
        storage.delete([version.name])


def _delete_lists(storage: Storage, version: TopicVersion) -> None:
    """Delete lists of this version and earlier ones that no version names which is there; later ones are others' work."""
    name, topic_id = version.spec.name, version.id_in_names
    # Of these lists later versions have none that it has not. So it does no harm if all versions that are seen here are gone by
    # the time that they are read, since so many others were quicker.
    needed = {found.name for found in version.lists}
    for number in look_at_names(storage, name).numbers(topic_id):
        if number or version.number < KEPT_VERSIONS:
            # The first one stays, but who still reads by it was told to look again long ago.
            # By one that is damaged nobody reads.
            with suppress(FileNotFoundError, ValueError):
                document = open_document(storage, version_name(name, number, topic_id), TopicDocument)
                needed.update(found.name for found in document.lists)
    lists = storage.list(lists_folder(name, topic_id))
    numbers = (each.rpartition("/")[2].partition("-")[0] for each in lists)
    storage.delete(
        each
        for each, number in zip(lists, numbers, strict=True)
        if each not in needed and number.isdecimal() and int(number) <= version.number
    )


def delete_records(root: str | Path, name: str, before: Mapping[int, int]) -> Topic:
    """Delete the rows of a topic before given offsets, as `Admin.deleteRecords` of Kafka does: its other rows keep their offsets.

    Nobody is asked: a run that has not read the rows ends with an error that says so. `committed_offsets` tells what a run
    has read. Files go when all of their rows are deleted.

    Args:
        root: folder of the topics, a path or a URL.
        name: name of the topic.
        before: partition -> the offset before which its rows are deleted; where others are deleted already, nothing changes.

    Returns:
        The topic without these rows.

    Raises:
        TopicException: there is no such topic, partition or offset, or the disk says no. Rows that can be read no more may
            still take up space then, until the next call.
    """
    if not isinstance(before, Mapping):
        raise TopicException(
            f"The rows to delete of topic {name} must be a mapping from partitions to offsets, not {shown(before)}."
        )
    before = {plain_int(partition): plain_int(offset) for partition, offset in before.items()}
    topic = Topic.open(root, name)
    ends = topic.end_offsets()
    for partition, offset in before.items():
        if not type(partition) is type(offset) is int or not 0 <= partition < len(ends):
            raise TopicException(
                f"Topic {name} has partitions 0 to {len(ends) - 1} and offsets that are whole numbers, not {shown({partition: offset})}."
            )
        if not 0 <= offset <= ends[partition]:
            raise TopicException(
                f"The rows of topic {name}, partition {partition}, before offset {offset} cannot be deleted: it goes to {ends[partition]}."
            )

    def following(topic: Topic) -> TopicVersion | None:
        # What a call left that was interrupted, maybe just now, before the lists go that name it.
        _delete_files(root, topic)
        is_in = all(topic.now.starts[partition] >= offset for partition, offset in before.items())
        return None if is_in else topic.now.without(before)

    with disk_errors(TopicException, f"Rows of topic {name!r} in {root} cannot be deleted", "Maybe try it again."):
        topic = change_topic(root, name, topic.topic_id, following)
        # Once more for the files; so many others may be quicker that a list of them has gone.
        return change_topic(root, name, topic.topic_id, following)


def _delete_files(root: str | Path, topic: Topic) -> None:
    """Delete the files all of whose rows are deleted."""
    storage, version = topics_storage(root), topic.now
    if any(version.starts):
        dead = version.dead_files(storage)
        there: list[str] = []
        storage.for_all(
            lambda folder: there.extend(storage.list(folder)), sorted({name.rpartition("/")[0] for name in dead})
        )
        storage.delete(name for name in sorted(there) if name in dead)
