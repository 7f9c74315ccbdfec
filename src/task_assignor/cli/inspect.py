"""`task-assignor inspect`: a look into the groups of a live cluster, without touching them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from task_assignor.cli.options import BootstrapServer, ClientConfig, TimeoutMs, json_option
from task_assignor.cli.output import (
    FINDING,
    FINE,
    survive_any_text,
    write_error,
    write_json,
    write_line,
    write_pretty,
)
from task_assignor.sdk import ConfigException, TopicPartition
from task_assignor.sdk.ids import ranges
from task_assignor.sdk.properties import read_properties
from task_assignor.sdk.text import counted, printable, printable_lines

if TYPE_CHECKING:
    from task_assignor.kafka import Cluster, GroupMember, Inspection


def inspect(
    bootstrap_server: BootstrapServer = None,
    config: ClientConfig = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="NAME", help="A group; may be repeated.")
    ] = None,
    as_json: Annotated[bool, json_option("group")] = False,
    timeout_ms: TimeoutMs = 30_000,
) -> None:
    """Look into consumer groups of a live cluster: members, what each had and was given, lags, violations. Read-only.

    Without --group all groups are listed.

    Exit code 0: nothing is wrong. 1: a group breaks a rule. 2: the cluster or a group cannot be asked.
    """
    survive_any_text()
    from task_assignor.kafka import inspect_group

    worst = FINE
    with connect(bootstrap_server, config, timeout_ms) as cluster:
        if not groups:
            _list_groups(cluster, as_json)
        for name in groups or ():
            found = inspect_group(cluster, name)
            worst = max(worst, FINDING if found.violations else FINE)
            if as_json:
                write_json(found.to_json())
            else:
                _show(found)
                for violation in found.violations:
                    write_error(printable(violation))
    raise typer.Exit(worst)


def connect(bootstrap_server: str | None, config: Path | None, timeout_ms: int) -> Cluster:
    """A connection to the cluster that the options name.

    Raises:
        ConfigException: a setting is wrong, or none says where the cluster is.
        KafkaClusterException: it cannot be reached.
    """
    from task_assignor.kafka import ClientSettings, Cluster

    settings = read_config(config)
    if bootstrap_server is not None:
        settings["bootstrap.servers"] = bootstrap_server
    try:
        return Cluster(ClientSettings.of(settings), timeout_ms)
    except ConfigException as error:
        if "bootstrap.servers" in settings or len(error.problems) > 1:
            raise
        raise ConfigException(
            "Where is the cluster? Give --bootstrap-server HOST:PORT, or --config FILE with the setting bootstrap.servers."
        ) from None


def read_config(config: Path | None) -> dict[str, object]:
    """The settings in a `.properties` file; none without one.

    Raises:
        ConfigException: it cannot be read.
    """
    return {each.key: each.value for each in ([] if config is None else read_properties(config))}


def _list_groups(cluster: Cluster, as_json: bool) -> None:
    found = cluster.groups()
    if as_json:
        for group in found:
            write_json({"group": group.name, "state": group.state, "kind": group.kind, "protocol": group.protocol_type})
        return
    if not found:
        write_line("The cluster has no groups.")
        return
    table = Table(header_style="bold")
    for column in ("group", "state", "kind"):
        table.add_column(column, overflow="fold")
    for group in found:
        table.add_row(*(escape(printable(cell)) for cell in (group.name, group.state, group.kind)))
    write_pretty(table)


def _show(found: Inspection) -> None:
    group = found.group
    title = f"{group.name}: {group.state}, {counted(len(group.members), 'member')}"
    if group.assignor:
        title += f", assignor {group.assignor}"
    table = Table(header_style="bold", show_lines=True)
    columns = (
        ("member", "had", "was given", "standby tasks", "lag")
        if group.is_streams
        else ("member", "had", "was given", "lag")
    )
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column == "lag" else "left")
    for member in group.members:
        table.add_row(*_row(member, found.lags, group.is_streams))
    parts = [Text(printable(title), style="bold")]
    summary = Text(f"lag: {found.total_lag:,}".replace(",", " "))
    unknown = sum(lag is None for lag in found.lags.values())
    if unknown:
        summary.append(f"; {counted(unknown, 'partition')} without committed offset")
    write_pretty(*parts, *([table] if group.members else []), summary)


def _row(member: GroupMember, lags: Mapping[TopicPartition, int | None], is_streams: bool) -> list[str]:
    name = [member.member_id, f"at {member.host}"]
    if member.group_instance_id is not None:
        name.append(f"static {member.group_instance_id}")
    if member.subscription is not None and member.subscription.rack_id is not None:
        name.append(f"rack {member.subscription.rack_id}")
    told = member.subscription_info
    if told is not None:
        name.append(f"client {told.process_id}")
        name += [f"{key}={value}" for key, value in sorted(told.client_tags.items())]
    known = [lags[each] for each in member.partitions if each in lags]
    lag = sum(each for each in known if each is not None)
    had, given = partition_ranges(member.owned), partition_ranges(member.partitions)
    if is_streams:
        had = "" if told is None else ranges(told.prev_tasks)
        given = f"{ranges(member.active_tasks)}\n{given}" if given else ""
    cells = ["\n".join(map(printable, name)), had, given]
    if is_streams:
        cells.append(ranges(member.standby_tasks))
    # Names of topologies are what members say.
    return [escape(printable_lines(cell)) for cell in [*cells, f"{lag:,}".replace(",", " ") if known else ""]]


def partition_ranges(partitions: Iterable[TopicPartition]) -> str:
    """Partitions, sorted, topic by topic, with runs written as ranges.

    Examples:
        >>> partition_ranges([TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("a", 1)])
        'a-0..1 b-1'
    """
    ordered = sorted(partitions)
    runs = itertools.groupby(enumerate(ordered), lambda item: (item[1].topic, item[1].partition - item[0]))
    parts = []
    for _, run in runs:
        members = [partition for _, partition in run]
        last = f"..{members[-1].partition}" if len(members) > 1 else ""
        parts.append(f"{printable(members[0].topic)}-{members[0].partition}{last}")
    return " ".join(parts)
