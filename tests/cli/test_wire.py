"""`task-assignor wire`: requests line by line, and bytes of which nobody knows what they are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.cli.conftest import Runner
from tests.vectors import FOLDER, lines_of

Written = Callable[..., Path]
WIRE = FOLDER.parent / "wire"


@pytest.mark.parametrize("name", ["sticky_userdata", "consumer_protocol", "subscription_info", "assignment_info"])
def test_the_recorded_requests_are_answered_as_they_stand(run: Runner, name: str) -> None:
    done = run("wire", WIRE / f"{name}.jsonl.gz")
    lines = lines_of(f"wire/{name}")
    assert [line["id"] for line in done.lines] == [line["id"] for line in lines]
    fails = ["error" in line["response"] for line in lines]
    assert ["error" in line["response"] for line in done.lines] == fails
    assert done.code == any(fails)


def test_a_wrong_line_hides_no_other(run: Runner) -> None:
    good = {"op": "sticky_userdata", "action": "decode", "hex": "00000000"}
    wrong = ["{", "[]", {"op": "x"}, {**good, "hex": "0g"}, {**good, "hex": 5}, {**good, "action": "guess"}]
    info = {"op": "subscription_info", "action": "encode", "process_id": str(UUID(int=1)), "task_offset_sums": []}
    wrong += [{**info, "client_tags": [["zone"]]}, {**info, "client_tags": [["zone", "a", "b"]]}]
    wrong += [{**info, "task_offset_sums": [{"task": task, "offset_sum": 0}]} for task in ([], [0], [0, 0, None, 1])]
    texts = [each if isinstance(each, str) else json.dumps(each) for each in [good, *wrong, {"id": 7, "request": good}]]
    done = run("wire", "-", stdin="\n".join(texts).encode())
    assert done.code == 1
    first, *errors, last = done.lines
    assert first == {"response": {"owned": [], "generation": None}}
    assert last == {"id": 7, "response": {"owned": [], "generation": None}}
    assert [error["error"].partition(":")[0] for error in errors] == [f"line {number}" for number in range(2, 13)]
    assert "hexadecimal" in errors[3]["error"]
    assert "$.hex" in errors[3]["error"]


def test_what_is_missing_or_no_version_is_told(run: Runner) -> None:
    sticky = {"op": "sticky_userdata", "action": "decode"}
    asked = [sticky, {**sticky, "action": "encode", "version": 9, "owned": {}}, {**sticky, "hex": None}]
    done = run("wire", "-", stdin="\n".join(map(json.dumps, asked)).encode())
    missing, version, nothing = done.lines
    assert "$.hex: The value must be pairs of hexadecimal digits, or null; it is missing." in missing["error"]
    assert "$.version" in version["error"]
    assert nothing["response"]["owned"] == []


def test_bytes_are_explained_with_the_user_data_in_them(run: Runner) -> None:
    sticky = "0000000100017400000001000000000000002a"
    subscription = "0001000000010001740000001300" + sticky[2:] + "00000000"
    done = run("wire", "decode", "-", stdin=subscription.encode())
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert told["format"] == "consumer protocol subscription"
    assert told["user_data_may_be"] == [{"format": "sticky user data", "owned": [["t", 0]], "generation": 42}]


def test_user_data_is_that_of_an_assignor(run: Runner) -> None:
    """Each of these may be a subscription or an assignment, whose user data may again be both: a line of bytes took days."""
    data = b""
    for _ in range(12):
        data = bytes(6) + len(data).to_bytes(4, "big") + data
    done = run("wire", "decode", data.hex())
    assert done.code == 0
    assert done.out.count("user_data_may_be") == 2


def test_bytes_that_are_no_digits_are_told(run: Runner) -> None:
    done = run("wire", "decode", "-", stdin=b"\xff\x00")
    assert (done.code, done.out) == (2, "")
    assert "HEX: The value must be pairs of hexadecimal digits." in done.err


def test_decode_without_bytes_is_told_so_unless_a_file_is_named_that(run: Runner, written: Written) -> None:
    done = run("wire", "decode")
    assert (done.code, done.out) == (2, "")
    assert "After decode there must be bytes in hexadecimal digits" in done.err
    written("decode", {"op": "sticky_userdata", "action": "decode", "hex": "00000000"})
    assert run("wire", "decode").code == 0


def test_a_slip_in_the_name_of_a_member_is_said(run: Runner) -> None:
    """The bytes were written without it."""
    request = {"op": "sticky_userdata", "action": "encode", "version": 1, "owned": {}, "generatoin": 7}
    done = run("wire", "-", stdin=json.dumps(request).encode())
    said = "line 1: $.generatoin: The member is not known. Maybe generation is meant."
    assert (done.code, done.lines) == (1, [{"error": said}])


@pytest.mark.parametrize("digits", ["7fffffff00", "zz"])
def test_bytes_of_no_format_are_an_error(run: Runner, digits: str) -> None:
    done = run("wire", "decode", digits)
    assert done.code in (1, 2)
    assert done.out == ""
    assert "Error" in done.err


def test_a_file_and_bytes_do_not_go_together(run: Runner) -> None:
    done = run("wire", "some.jsonl", "00")
    assert done.code == 2
    assert "wire decode 00" in done.err


def test_gzip_on_standard_input(run: Runner) -> None:
    request = {"op": "sticky_userdata", "action": "decode", "hex": None}
    done = run("wire", "-", stdin=gzip.compress(json.dumps(request).encode()))
    assert done.lines == [{"response": {"owned": [], "generation": None}}]


def test_a_member_that_is_left_out_is_not_said_to_be_null(run: Runner, written: Callable[..., Path]) -> None:
    done = run("wire", written("r.jsonl", {"action": "decode"}, {"op": None, "action": "decode"}))
    assert [line["error"].partition("$.op: ")[2] for line in done.lines] == [
        "The value must be a string, but is missing.",
        "The value must be a string, but is null.",
    ]
