"""What makes a run the same run: topics, sub-topologies, stores, processors with parameters, outputs. No files here.

A run folder remembers the identity under which it was begun. State, offsets and earlier output fit that one only, so a
run that would go on under another one is refused, with everything that differs.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import takewhile
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime.machines.encoding import decode, encode
from task_assignor.runtime.stores.key_value import KeyValueStoreSpec
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.bad_records import DEAD_LETTER_SCHEMA
from task_assignor.runtime.topology.derived import DerivedStream
from task_assignor.runtime.topology.processor import Processor
from task_assignor.runtime.topology.sub_topology import SubTopology, factory_name, is_ready_made
from task_assignor.runtime.topology.topology import Topology

_DEEPEST: Final = 16
_LONGEST: Final = 4096
"""Of more bytes than these the checksum is compared: a captured array or table may be large."""
_LINKS: Final = 100_000
_LINKS_EACH: Final = 10
"""So many values may be met again, and so many more for each that is new: where all are linked with all, there are more ways than time."""
_SHOWN: Final = 500
"""So many characters of a value are in a message: it may be an array."""
_BEGINNING: Final = 60
"""And so many of its beginning, which says what it is, where it differs later."""
_OF_ARROW: Final = (pa.Schema, pa.DataType, pa.Field)
"""What says as text what it is."""
_CHECKSUM: Final = "; SHA-256 of all its values"
"""Behind a text that leaves values out, before what says which those are. Former versions of this package wrote the text alone."""
_CHECKSUMS: Final = re.compile(rf"({_CHECKSUM}(?: in polars [^:]*)?: )[0-9a-f]{{64}}")
_FUNCTION_IN_POLARS: Final = b"PLPYFN"
"""Begins a function of Python's in an expression of polars: its code is in it, which may change."""
_ABSENT: Final = object()
_BY_CHANCE: Final = re.compile(r" at 0x[0-9a-fA-F]+>|frozenset\(\{")
_OF_LEFT_OUT: Final = ("bad_records", "late_records", "late_limit_ms")
"""What ready-made processors are told of records that cannot be processed: what was committed fits whatever it is."""
_OF_COLUMNS: Final = ("left_columns", "right_columns", "stream_columns", "table_columns", "columns", "suffix")
"""What joins, and changes of tables, are told of the columns of their result, which are compared themselves."""


PLACE: Final = "place of the outputs"
IN_TOPICS: Final = "topics of Kafka"
"""That of the outputs, where it is not the folder of the run."""


def identity_of(
    topology: Topology,
    topics: Mapping[str, Log],
    outputs: Mapping[str, pa.Schema | None],
    between: Mapping[str, Log] = MappingProxyType({}),
    *,
    in_topics: bool = False,
) -> dict[str, Any]:
    """The identity of a run, as JSON gives it back.

    Args:
        topology: what is computed.
        topics: its source topics, by name.
        outputs: output -> its columns as far as they are known beforehand.
        between: its repartition topics that are not in the folder of the run, by name.
        in_topics: outputs and changes of stores go into topics, not into the folder of the run.
    """
    specs = topology.specs({name: topic.spec for name, topic in topics.items()})
    identity = {
        "topics": {name: _topic(topics[name]) for name in sorted(topics)},
        # A task is known by the number of its sub-topology.
        "order of the sub-topologies": [sub.name for sub in topology.sub_topologies],
        "sub-topologies": {sub.name: _sub_topology(sub, outputs, specs) for sub in topology.sub_topologies},
    }
    if in_topics:
        identity[PLACE] = IN_TOPICS
    if topology.repartitions:
        identity["repartition topics"] = {
            name: {
                "partitions": found.partitions,
                "key": found.key,
                "timestamp": found.timestamp,
                # Offsets are those of this one.
                **({"id": between[name].topic_id} if name in between else {}),
            }
            for name, found in sorted(topology.repartitions.items())
        }
    if topology.derived:
        identity["derived streams"] = {one.name: _derived(one, specs) for one in topology.derived}
    return decode(encode(identity), dict)


def _topic(topic: Log) -> dict[str, Any]:
    spec = topic.spec
    return {
        "id": topic.topic_id,
        "partitions": spec.partitions,
        "key": spec.key,
        "timestamp": spec.timestamp,
        "columns": columns_of(spec.schema),
    }


def _derived(stream: DerivedStream, topics: Mapping[str, TopicSpec]) -> dict[str, Any]:
    """Its columns are seen where they are kept or given; like code, they may change."""
    steps = [
        {
            "kind": type(one).__name__,
            "filter": _plain(one.filter, topics),
            "map_values": _plain(one.map_values, topics),
        }
        for one in stream.lineage
    ]
    return {"topic": stream.root, "steps": steps}


def _sub_topology(
    sub: SubTopology, outputs: Mapping[str, pa.Schema | None], topics: Mapping[str, TopicSpec]
) -> dict[str, Any]:
    parquet = sorted(output.name for output in sub.outputs if output.format == "parquet")
    # A join knows of which source each column of its result is.
    derive: Callable[[Mapping[str, TopicSpec]], dict[str, str]] | None = (
        getattr(sub.processor, "origins", None) if is_ready_made(sub.processor) else None
    )
    return {
        **({"outputs in Parquet": parquet} if parquet else {}),
        # It is a part of the names of its tasks.
        **({"topology": sub.topology} if sub.topology else {}),
        "sources": sub.sources,
        "tables": sorted(sub.tables),
        "stores": {store.name: store.fingerprint for store in sub.stores},
        "processor": {
            "name": factory_name(sub.processor),
            "parameters": _parameters(sub.processor, topics),
            **({"version": sub.version} if sub.version else {}),
            **({"columns": derive({name: topics[name] for name in sub.sources})} if derive else {}),
        },
        "outputs": {
            output.name: None if (schema := outputs[output.name]) is None else columns_of(schema)
            for output in sub.written
        },
        # Their columns may change, like code.
        **({"forwarded": forwarded} if (forwarded := sub.forwarded) else {}),
    }


def with_allowed_changes(
    before: Any, now: dict[str, Any], topology: Topology, outputs: Mapping[str, pa.Schema | None]
) -> dict[str, Any]:
    """An identity with what may have changed since, so that the run goes on; what else differs stays as it was.

    Topics, stores and outputs may have gained columns: a topic only ever gains those that are null in older rows, a store and
    an output must have declared them so. What becomes of records that are left out may be another thing, and outputs for them
    may come and go; and so may a grace, where what was closed under another one is known.

    Args:
        before: what the run was.
        now: what it is.
        topology: what is computed now.
        outputs: output -> its columns now.
    """
    grown: dict[str, Any] = deepcopy(before)
    for name, topic in grown.get("topics", {}).items():
        columns = now["topics"].get(name, {}).get("columns", {})
        topic["columns"] = {**columns, **topic["columns"]}
    stores = {store.name: store for sub in topology.sub_topologies for store in sub.stores}
    for name, sub in grown.get("sub-topologies", {}).items():
        for store_name, fingerprint in sub["stores"].items():
            store = stores.get(store_name)
            if isinstance(store, KeyValueStoreSpec) and store.has_grown_from(fingerprint):
                sub["stores"][store_name] = store.fingerprint
        for output, columns in sub["outputs"].items():
            declared = now["sub-topologies"].get(name, {}).get("outputs", {}).get(output)
            schema = outputs.get(output)
            if columns is not None and declared is not None and schema is not None:
                gained = [field.name for field in schema if field.nullable and field.name not in columns]
                sub["outputs"][output] = {**columns, **{column: declared[column] for column in gained}}
    for found in topology.sub_topologies:
        if found.name in grown.get("sub-topologies", {}):
            _take_settings(grown["sub-topologies"][found.name], now["sub-topologies"][found.name], found)
    return grown


def _take_settings(before: dict[str, Any], now: dict[str, Any], sub: SubTopology) -> None:
    """What becomes of records that are left out is as it is now, and so is how a join is told the columns that it had."""
    letters = columns_of(DEAD_LETTER_SCHEMA)
    there = {name: found for name, found in before["outputs"].items() if name in now["outputs"] or found != letters}
    before["outputs"] = {**{name: now["outputs"][name] for name in sub.dead_letters}, **there}
    if is_ready_made(sub.processor) and before["processor"]["name"] == now["processor"]["name"]:
        columns = before["processor"].get("columns")
        if "columns" in now["processor"]:
            before["processor"]["columns"] = {**now["processor"]["columns"], **(columns or {})}
        free = _OF_LEFT_OUT if columns is None else (*_OF_LEFT_OUT, *_OF_COLUMNS)
        graces = getattr(sub.processor, "free_graces", ())
        for name, plan in before["processor"]["parameters"].items():
            found = now["processor"]["parameters"].get(name)
            if isinstance(plan, dict) and isinstance(found, dict):
                plan.update({setting: found[setting] for setting in free if setting in plan and setting in found})
                # Without one nothing was ever closed, or will be.
                plan.update({one: found[one] for one in graces if None not in (plan.get(one), found.get(one))})


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """Column -> its type, as text."""
    return {field.name: str(field.type) for field in schema}


def _parameters(factory: object, topics: Mapping[str, TopicSpec]) -> Any:
    if inspect.isclass(factory) and issubclass(factory, Processor):
        return {name: _plain(found, topics, (factory,)) for name, found in _captured(factory).items()}
    return _plain(factory, topics)


def _expressions_of_polars() -> tuple[type, ...]:
    """Their type; none where nobody has imported polars yet: that takes long, and a fork server must not."""
    polars = sys.modules.get("polars")
    return () if polars is None else (polars.Expr,)


@attrs.define
class _Met:
    """The values that a walk has come to. They are kept: others would have their ids."""

    values: dict[int, object] = attrs.field(factory=dict)
    again: int = 0

    def is_enough(self, value: object, is_below: bool) -> bool:
        """Whether values were met again so often that another time is of no use; where they are below one such, they are not new."""
        if not is_below:
            self.values[id(value)] = value
            return False
        self.again += 1
        return self.again > _LINKS + _LINKS_EACH * len(self.values)


def _plain(
    value: object,
    topics: Mapping[str, TopicSpec],
    above: tuple[object, ...] = (),
    met: _Met | None = None,
    is_again: bool = False,
) -> Any:
    """A value as JSON knows it: what it was made with, never where it is in memory. Of what is unknown, its type.

    Args:
        value: the value.
        topics: the topics of the application, by name.
        above: the values that it is a part of.
        met: those that were met before.
        is_again: it is a part of one that was.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has none of these
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (pc.Expression, pc.FunctionOptions)):
        return _with_left_out(value)
    if isinstance(value, _expressions_of_polars()):
        return _with_all_of_polars(value)
    if isinstance(value, (*_OF_ARROW, PurePath)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex() if len(value) <= _LONGEST else hashlib.sha256(value).hexdigest()
    if inspect.ismodule(value):
        return value.__name__
    if isinstance(value, TopicSpec) and _is_known(value, topics):
        return f"the topic {value.name} as it is"
    if len(above) == _DEEPEST or any(value is one for one in above):
        return type(value).__qualname__
    met = met or _Met()
    is_again = is_again or id(value) in met.values
    if met.is_enough(value, is_again):
        return type(value).__qualname__
    plain = functools.partial(_plain, topics=topics, above=(*above, value), met=met, is_again=is_again)
    if isinstance(value, Mapping):
        return {_key(key, plain): plain(found) for key, found in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(found) for found in value), key=json.dumps)
    if isinstance(value, (list, tuple)):
        return [plain(found) for found in value]
    return {name: plain(found) for name, found in _parts(value)}


def _with_left_out(value: pc.Expression | pc.FunctionOptions) -> str:
    """Its text; of many values that has the first and the last ones, so the checksum of all of them as well."""
    text = str(value)
    if "..." in text:
        with suppress(pa.ArrowException):
            # Options cannot be pickled.
            data = value.serialize() if isinstance(value, pc.FunctionOptions) else value.__reduce__()[1][0]
            values = str(pa.ipc.open_file(data).read_all().to_pylist())
            return f"{text}{_CHECKSUM}: {hashlib.sha256(values.encode()).hexdigest()}"
    return text


def _with_all_of_polars(value: Any) -> str:
    """Its text, which leaves out most arguments (`round(1)`) and values, and the checksum of all of it, which another polars writes in another way."""
    data = b""
    with suppress(Exception):  # whatever is in it that cannot be written
        data = value.meta.serialize()
    if not data or _FUNCTION_IN_POLARS in data:
        return str(value)
    return f"{value}{_CHECKSUM} in polars {sys.modules['polars'].__version__}: {hashlib.sha256(data).hexdigest()}"


def _key(key: object, plain: Callable[[object], Any]) -> str:
    """A key of a mapping: its text, unless that says where something is in memory, as of a function, or has a set's order by chance."""
    text = str(key)
    is_chance = not isinstance(key, str) and _BY_CHANCE.search(text)
    return json.dumps(plain(key)) if is_chance else text


def _is_known(spec: TopicSpec, topics: Mapping[str, TopicSpec]) -> bool:
    """It is one of the application's topics, whose columns are compared as such: it may have gained some."""
    found = topics.get(spec.name)
    return found is not None and attrs.evolve(spec, racks=None) == attrs.evolve(found, racks=None)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, functools.partial):
        yield "function", value.func
        yield "arguments", value.args
        yield from value.keywords.items()
        return
    if inspect.isroutine(value) or inspect.isclass(value):
        yield "name", getattr(value, "__qualname__", "")
        owner = getattr(value, "__self__", None)
        if not (owner is None or inspect.isclass(owner) or inspect.ismodule(owner)):
            yield "of", owner
        yield from _captured(value).items()
        yield from inspect.signature(value).parameters.items() if inspect.isfunction(value) else ()
        return
    if isinstance(value, inspect.Parameter):
        yield "default", None if value.default is value.empty else value.default
        return
    yield "type", type(value).__qualname__
    kind: Any = type(value)
    if attrs.has(kind):
        yield from ((field.name, getattr(value, field.name)) for field in attrs.fields(kind))
    else:
        yield from _pickled(value)


def _captured(value: object) -> dict[str, object]:
    """What a function has of the function that it was made in, or the methods of a class; not those that others write for it."""
    if inspect.isfunction(value):
        found = {}
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # nothing is in it yet, or any more
                found[name] = cell.cell_contents
        return found
    methods = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
    of_each = [_captured(method) for name, method in methods if not name.startswith("__")]
    return {name: one for captured in of_each for name, one in captured.items() if name != "__class__"}


def _pickled(value: object) -> Iterator[tuple[str, object]]:
    """What a value of an unknown class is made of, as it tells pickle; nothing, if it cannot be pickled.

    Not its `__dict__`: a timedelta, a number of numpy or a class with slots has none, and a logger has all others in it.
    """
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        found = value.__reduce_ex__(2) if reduce is None else reduce(value)
    except Exception:  # noqa: BLE001 - whatever a class raises that is not to be pickled
        return
    if isinstance(found, str):
        yield "name", found
        return
    _, arguments, state, items, _ = (*found, None, None, None)[:5]
    if given := [one for one in arguments if one is not type(value)]:
        yield "arguments", given
    # Of a class with slots a pair: what is in its `__dict__`, and its slots.
    for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
        if isinstance(part, Mapping):
            yield from sorted((str(name), one) for name, one in part.items())
        elif part is not None:
            yield "state", part
    if items is not None:
        yield "items", list(items)


def tasks_of(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What of an identity decides which tasks there are, and which stores they have: another version may have others under the same ids."""
    subs = identity["sub-topologies"]
    return {
        "topics": {name: {"partitions": found["partitions"]} for name, found in identity["topics"].items()},
        "order of the sub-topologies": identity["order of the sub-topologies"],
        "sub-topologies": {
            name: {key: found[key] for key in ("topology", "sources", "forwarded") if key in found}
            for name, found in subs.items()
        },
        "repartition topics": {
            name: {"partitions": found["partitions"]} for name, found in identity.get("repartition topics", {}).items()
        },
        "derived streams": {name: found["topic"] for name, found in identity.get("derived streams", {}).items()},
    }


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """What differs between two identities, each with its place, what it was and what it is.

    Examples:
        >>> differences({"a": {"x": 1, "y": 2}}, {"a": {"x": 3, "z": 2}})
        ['a, x: was 1, is 3', 'a, y: was 2, is gone', 'a, z: is 2, was not there']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for name in [*before, *(name for name in now if name not in before)]:
            found += differences(
                before.get(name, _ABSENT), now.get(name, _ABSENT), f"{place}, {name}" if place else name
            )
        return found
    if before == now:
        return []
    if before is _ABSENT:
        return [f"{place}: {'' if isinstance(now, dict) else f'is {_text(now)}, '}was not there"]
    if now is _ABSENT:
        return [f"{place}: {'' if isinstance(before, dict) else f'was {_text(before)}, '}is gone"]
    if _comparable(before, now) == _comparable(now, before):
        return []
    # Of long ones from a little before where they differ on.
    pairs = zip(json.dumps(before), json.dumps(now), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = same - _SHOWN // 2 if same > _SHOWN * 3 // 4 else 0
    return [f"{place}: was {_text(before, start)}, is {_text(now, start)}"]


def _comparable(value: object, other: object) -> str:
    """A value as text, without the checksums that the other one has not got: of a former version, or of another polars."""
    text = json.dumps(other)
    return _CHECKSUMS.sub(lambda found: found[0] if found[1] in text else "", json.dumps(value))


_HINTS: Final = (
    (
        f"^{PLACE}: ",
        "Outputs, and the changes of stores, stay where they began: what is in topics is not in the run_dir, nor the other way round.",
    ),
    (r"topics, [^:]*, id: was .*, is (?!gone)", "A topic with another id was written anew under its name."),
    (
        r"repartition topics, [^:]*, id: (is|was .*, is gone)",
        "Repartition topics are in Kafka where outputs are, else in the run_dir: what is in the one is not in the other.",
    ),
    (
        r"parameters, (aggregation|join), (left_|right_)?grace_ms: ",
        "A grace of sessions, or of a join with rows without a partner, stays what it was: what was closed came out. Late records may be left out.",
    ),
    (
        f"parameters, .*{_CHECKSUM} in polars ",
        "An expression of polars on a set has the set's order, another one in each process: sorted(...) gives it one.",
    ),
    (
        'parameters, .*(, (state|_mgr)(, [^:]*)?: was |"state": )',
        "A frame or an array is compared as its package pickles it, which another version may do in another way. A table of Arrow stays what it is.",
    ),
    (r", columns(, [^:]*)?: ", "Columns may be gained that can be null."),
    (
        r", stores, ",
        "A key-value store may gain columns that can be null, after those that it has; under another name it is another store.",
    ),
    (
        r", outputs, ",
        "An output may gain columns that can be null; a join leaves a column out if it names those that it had: left_columns, ...",
    ),
)
"""What may change, by what `differences` says."""


def hints(changed: Sequence[str]) -> str:
    """What may change of what has changed as it may not, as part of a message.

    Args:
        changed: what `differences` says.

    Examples:
        >>> hints(["topics, orders, id: was 1, is 2"])
        ' (A topic with another id was written anew under its name.)'
        >>> hints(["order of the sub-topologies: was 1, is 2"])
        ''
    """
    found = [hint for pattern, hint in _HINTS if any(re.search(pattern, one) for one in changed)]
    return f" ({' '.join(found)})" if found else ""


def _text(value: object, start: int = 0) -> str:
    text = json.dumps(value)
    end = start + _SHOWN
    return f"{f'{text[:_BEGINNING]}...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
