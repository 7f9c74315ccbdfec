"""The names of the versions of a topic, and which topic they say is there. What a version says is in `versions`.

Somebody may delete the folder of a topic, and write it anew, while others still use the topic that was there before. So all names
have the id of the topic: whoever is late touches nothing of the one that is there, and what it leaves counts for nobody.
Only the first version has its number alone for a name, so that one of those who create a topic wins. It stays as long as the topic, and
says which one is there.

To open a topic nobody reads the first version for that. Before it comes its herald: the same content under a name with the id.
Where the names have no other id than that of a herald, it is the topic that is there: the first version of another one would have come after
its own herald.

Topics of former versions of this package have no id in the names of their versions, and go on so. They may have lost the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from task_assignor.runtime.storage import Storage

_LOOKS: Final = 20


def version_name(topic: str, version: int, topic_id: str | None) -> str:
    """The name of a version of a topic in the storage of the topics.

    Args:
        topic: name of the topic.
        version: number of the version.
        topic_id: identity of the topic; None: it is one of a former format.
    """
    tail = "" if topic_id is None or not version else f"-{topic_id}"
    return f"{topic}/versions/{version:012d}{tail}.json"


def herald_name(topic: str, topic_id: str) -> str:
    """The name of what comes before the first version of a topic."""
    return f"{topic}/versions/{0:012d}-{topic_id}.json"


def lists_folder(topic: str, topic_id: str | None) -> str:
    """Where the lists of a topic are; its id is None if it is one of a former format."""
    return f"{topic}/lists" if topic_id is None else f"{topic}/lists/{topic_id}"


@attrs.frozen
class VersionNames:
    """The versions that are there, by their names.

    Args:
        plain: in order the numbers without an id: 0 of the topic that is there, or those of a topic of a former format.
        named: id -> in order the numbers with this id; 0 is a herald.
    """

    plain: tuple[int, ...] = ()
    named: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)

    @property
    def is_there(self) -> bool:
        """Whether there is a topic."""
        return bool(self.plain)

    @property
    def has_lost_first(self) -> bool:
        """Whether there is no topic, but versions of one."""
        return not self.plain and any(numbers[-1] for numbers in self.named.values())

    @property
    def sure_id(self) -> str | None:
        """The id of the topic that is there; None: the names do not tell, the first version does."""
        if self.plain != (0,) or len(self.named) != 1:
            return None
        ((topic_id, numbers),) = self.named.items()
        return topic_id if numbers[0] == 0 else None

    def numbers(self, topic_id: str | None) -> tuple[int, ...]:
        """In order the versions of a topic, if it is the one that is there; None: the one of a former format."""
        return self.plain if topic_id is None else (0, *(one for one in self.named.get(topic_id, ()) if one))


def look_at_names(storage: Storage, topic: str) -> VersionNames:
    """What versions there are.

    Raises:
        OSError: it cannot be looked for.
    """
    folder = f"{topic}/versions"
    for _ in range(_LOOKS):
        names = storage.list(folder)
        found = _names(names)
        has_all = not any(name.endswith("/") for name in names)
        if found.is_there or (found.named and has_all) or (not names and f"{folder}/" not in storage.list(topic)):
            return found
        # While somebody slow looked, others have appended so often that all versions it saw are gone.
    return VersionNames()


def _names(names: list[str]) -> VersionNames:
    plain: list[int] = []
    named: dict[str, list[int]] = {}
    for name in names:
        stem = name.rpartition("/")[2].removesuffix(".json")
        number, _, topic_id = stem.partition("-")
        if number.isdecimal():
            (named.setdefault(topic_id, []) if topic_id else plain).append(int(number))
    return VersionNames(tuple(sorted(plain)), {one: tuple(sorted(numbers)) for one, numbers in named.items()})
