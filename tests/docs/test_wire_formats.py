"""The tables of docs/wire-formats.md are the layouts that the code works with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from task_assignor.group.wire import consumer_protocol, sticky, streams
from task_assignor.group.wire.layout import ANY_VERSION, Field, Kind, Layout, Many

PAGE = (Path(__file__).parents[2] / "docs" / "wire-formats.md").read_text(encoding="utf-8")
LAYOUTS = [
    consumer_protocol.SUBSCRIPTION,
    consumer_protocol.ASSIGNMENT,
    consumer_protocol.TOPIC_PARTITIONS,
    sticky.STICKY,
    sticky.STREAM_JOIN,
    sticky.COPARTITIONED,
    streams.SUBSCRIPTION_INFO,
    streams.ASSIGNMENT_INFO,
]


def told(kind: Kind) -> str:
    if isinstance(kind, Many):
        return f"list of {told(kind.element)}"
    if isinstance(kind, Layout) and kind is not consumer_protocol.TOPIC_PARTITIONS:
        return f"({', '.join(f'{field.name}: {told(field.kind)}' for field in kind.fields)})"
    return kind.name


def row(field: Field) -> str:
    last = "" if field.last == ANY_VERSION else str(field.last)
    versions = f"{field.first}-{last}" if last else f"{field.first}+" if field.first else ""
    return f"| {field.name} | {versions} | {told(field.kind)} |"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_the_table_is_the_layout(layout: Layout) -> None:
    section = re.split(r"^#+ ", PAGE.partition(f"\n### {layout.name}\n")[2], flags=re.MULTILINE)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert rows == [row(field) for field in layout.fields]
