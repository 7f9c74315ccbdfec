"""Where files may be: which paths, URLs and names are taken, and which are refused with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    ClientSpec,
    CommitLogException,
    StreamsApplication,
    Topic,
    TopicException,
    list_topics,
    read_output,
    write_topic,
)
from task_assignor.sdk import ConfigException, StreamsException
from tests.runtime.support import application, join_topology, settings, write_streams

ROWS = pa.table({"key": list(range(40)), "n": list(range(40))})


@pytest.mark.parametrize(
    "url", ["ftp://bucket/topics", "file:///tmp/topics", "hdfs://host:9000/x", "abfss:/x", "S3A://b"]
)
def test_urls_are_no_folders(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They became local folders of that name."""
    monkeypatch.chdir(tmp_path)
    write_streams(tmp_path / "topics", rows=100, keys=3)

    def application(**places: Any) -> StreamsApplication:
        given = {"topics_root": tmp_path / "topics", "run_dir": tmp_path / "run", **places}
        return StreamsApplication(join_topology(), settings(), **given)

    asked: list[tuple[type[StreamsException], Callable[[], object]]] = [
        (TopicException, lambda: write_topic(url, "t", ROWS, partitions=1, key=["key"])),
        (TopicException, lambda: Topic.open(url, "t")),
        (TopicException, lambda: Topic.open(Path(url), "t")),
        (TopicException, lambda: list_topics(url)),
        (TopicException, lambda: application(topics_root=url)),
        (CommitLogException, lambda: application(run_dir=url)),
        (CommitLogException, lambda: read_output(url, "out")),
        (ConfigException, lambda: ClientSpec("c", state_dir=url)),
        (ConfigException, lambda: settings(state_dir=url)),
    ]
    for kind, ask in asked:
        with pytest.raises(kind, match="URL"):
            ask()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topics"]
    with pytest.raises(TopicException, match=r"Maybe '/tmp/topics'"):
        list_topics("file:///tmp/topics")


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", ""])
def test_names_do_not_lead_out_of_their_folder(name: str, tmp_path: Path) -> None:
    """With `../../up` as application.id a foreign file was deleted."""
    foreign = tmp_path / "up" / "0_0" / "000"
    foreign.mkdir(parents=True)
    with pytest.raises(ConfigException, match=r"application\.id"):
        settings(application_id=name)
    with pytest.raises(TopicException, match="The topic name"):
        Topic.open(tmp_path, name)
    with pytest.raises(TopicException, match="The client name"):
        ClientSpec(name)
    assert foreign.exists()


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("topics", "the folder of the topics"),
        ("topics/../topics/", "the folder of the topics"),
        ("topics/left", "in that of the topic 'left'"),
        ("topics/right/runs/1", "in that of the topic 'right'"),
    ],
)
def test_the_folder_of_the_topics_is_none_for_a_run(tmp_path: Path, folder: str, problem: str) -> None:
    """Who deletes a run to compute everything anew would delete the topics, too; and who deletes a topic, the run."""
    write_streams(tmp_path / "topics", 10, 2)
    run = application(tmp_path, join_topology(), run_dir=f"{tmp_path}/{folder}")
    with pytest.raises(ConfigException, match=rf"is {problem}.*Maybe a folder beside it"):
        run.run()
    assert sorted(path.name for path in (tmp_path / "topics").iterdir()) == ["left", "right"]
