"""`.properties` files, as `java.util.Properties` reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from task_assignor.sdk import ConfigException, StreamsConfig
from task_assignor.sdk.properties import Property, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a\n! b\n   # c\n\n \t\f\n", {}),
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb", {"a": "b"}),
        ("a\fb", {"a": "b"}),
        ("  a  :  b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a:=b", {"a": "=b"}),
        ("=b", {"": "b"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=b  ", {"a": "b  "}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\:b:c", {"a:b": "c"}),
        ("\\#a=b", {"#a": "b"}),
        ("a=\\ b", {"a": " b"}),
        ("a=\\t\\n\\r\\f\\\\", {"a": "\t\n\r\f\\"}),
        ("a=\\q\\\"\\'", {"a": "q\"'"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=é\U0001f600", {"a": "é\U0001f600"}),
        ("a=b,\\\n   c,\\\r\n\t d", {"a": "b,c,d"}),
        ("a\\\nb=c", {"ab": "c"}),
        ("a=b\\\n# still a", {"a": "b# still a"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\n  c", {"a": "b\\c"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("\\\n# comment\na=b", {"a": "b"}),
        ("a=b\n \\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=1\rb=2\r\nc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=1\x0b\x85\u2028b", {"a": "1\x0b\x85\u2028b"}),
    ],
)
def test_what_java_reads(text: str, expected: dict[str, str]) -> None:
    assert expected == {entry.key: entry.value for entry in parse_properties(text)}


def test_an_entry_knows_the_line_on_which_it_starts() -> None:
    assert [Property("a", "bc", 2), Property("d", "e", 5)] == parse_properties("#\na=b\\\n  c\n\nd=e")


def escaped(text: str, is_key: bool) -> str:
    """As `Properties.store` writes it."""
    special = " =:#!\\" if is_key else "\\#!=:"
    parts = []
    for position, unit in enumerate(text):
        if unit in special or (unit == " " and position == 0):
            parts.append(f"\\{unit}")
        elif unit in "\t\n\r\f":
            parts.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[unit])
        elif " " <= unit <= "~":
            parts.append(unit)
        else:
            data = unit.encode("utf-16-be")
            parts += [f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2)]
    return "".join(parts)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.dictionaries(texts, texts, max_size=5), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from("=: "))
@example({"": ""}, "\n", "=")
def test_what_java_writes_is_read_back(entries: dict[str, str], end: str, separator: str) -> None:
    text = end.join(f"{escaped(key, True)}{separator}{escaped(value, False)}" for key, value in entries.items() if key)
    assert {key: value for key, value in entries.items() if key} == {
        entry.key: entry.value for entry in parse_properties(text)
    }


@given(st.text())
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    message = "x.properties:"
    try:
        parse_properties(text, "x.properties")
    except ConfigException as error:
        message = str(error)
    assert message.startswith("x.properties:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\nb=\\u12", r"x\.properties:2: After \\u must come four hexadecimal digits, but '12' comes"),
        ("a=\\uzzzz", "four hexadecimal digits"),
        ("a=\\ud800", "must make whole characters"),
        ("a=1\n#\na=2", r"x\.properties:3: The setting a must be there once, but is in line 1 too"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        parse_properties(text, "x.properties")


def test_a_file_is_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + "client.rack=ü".encode())
        assert [Property("client.rack", "ü", 1)] == read_properties(path)


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"
    path.write_bytes("a=b\r\n\nclient.rack=ü".encode("latin-1"))
    with pytest.raises(ConfigException, match=r"x\.properties:3: The file must be UTF-8, but byte 0xfc is not"):
        read_properties(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.properties", tmp_path):
        with pytest.raises(ConfigException, match="cannot be read"):
            StreamsConfig.from_properties(path)
    with pytest.raises(ConfigException, match="The settings file a\0b cannot be read: embedded null byte"):
        StreamsConfig.from_properties("a\0b")
    with pytest.raises(ConfigException, match="The name of the settings file must not be empty"):
        StreamsConfig.from_properties("")
