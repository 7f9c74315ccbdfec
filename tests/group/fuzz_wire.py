"""Feeds the decoders with damaged messages: `python -m tests.group.fuzz_wire --inputs 10000000` (`make fuzz`).

Each input is a recorded message with random changes. The decoder of its format gets it, and every eighth is given to all. They
may answer with a value, which can be written and read again, or with `WireFormatException`; all else ends the run, and so does
an input that takes more time or memory than its size justifies. `--steered` lets atheris look for inputs that reach new code instead, far fewer in the time.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import random
import resource
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from task_assignor.group.wire import (
    CopartitionedUserData,
    StreamJoinUserData,
    WireFormatException,
    decode_assignment,
    decode_assignment_info,
    decode_copartitioned_user_data,
    decode_sticky_user_data,
    decode_stream_join_epoch,
    decode_stream_join_user_data,
    decode_subscription,
    decode_subscription_info,
    encode_assignment,
    encode_assignment_info,
    encode_copartitioned_user_data,
    encode_sticky_user_data,
    encode_stream_join_epoch,
    encode_stream_join_user_data,
    encode_subscription,
    encode_subscription_info,
)
from tests.vectors import lines_of

DECODERS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "subscription": (decode_subscription, encode_subscription),
    "assignment": (decode_assignment, encode_assignment),
    "subscription_info": (decode_subscription_info, encode_subscription_info),
    "assignment_info": (decode_assignment_info, encode_assignment_info),
    "sticky": (decode_sticky_user_data, encode_sticky_user_data),
    "stream_join": (decode_stream_join_user_data, encode_stream_join_user_data),
    "stream_join_epoch": (decode_stream_join_epoch, encode_stream_join_epoch),
    "copartitioned": (decode_copartitioned_user_data, encode_copartitioned_user_data),
}
BATCH = 50_000
# What an input of so many bytes may take. A count that is believed, or a step that is done anew for each element, goes far beyond.
BYTES_AT_LEAST, BYTES_PER_BYTE = 10_000, 60
SECONDS_AT_LEAST, SECONDS_PER_BYTE = 0.25, 50e-6
# Looking at memory takes longer than decoding; the limit of the process sees all that is really large.
MEMORY_IS_MEASURED_EVERY = 500
PROCESS_BYTES = 512 << 20


def check_input(data: bytes, names: Iterable[str] | None = None) -> list[str]:
    """Give the bytes to these decoders, or to all; those that made a value of them."""
    accepted = []
    for name in names or DECODERS:
        decode, encode = DECODERS[name]
        try:
            value = decode(data)
            # What was read as a later version, or with other letters, need not fit any more.
            again = encode(value)
        except WireFormatException:
            continue
        # Topics may come in another order, but not twice.
        assert encode(decode(again)) == again, name
        accepted.append(name)
    return accepted


def timed(data: bytes, names: Iterable[str] | None) -> tuple[float, list[str]]:
    """The seconds that `check_input` takes, and what it gives."""
    begin = time.perf_counter()
    accepted = check_input(data, names)
    return time.perf_counter() - begin, accepted


def check_memory(data: bytes) -> None:
    """What a decoder allocates is in proportion to the input, whatever the counts in it say."""
    # Readers of a layout are made when it is read for the first time, and kept.
    check_input(data)
    for name, (decode, _) in DECODERS.items():
        tracemalloc.start()
        try:
            with contextlib.suppress(WireFormatException):
                decode(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < BYTES_AT_LEAST + BYTES_PER_BYTE * len(data), f"{name} took {peak} bytes for {len(data)}"


def corpus() -> list[tuple[str, bytes]]:
    """The format and the bytes of the recorded messages, and of some in formats of which there are few."""
    ops = {"sticky_userdata": "sticky", "subscription_info": "subscription_info", "assignment_info": "assignment_info"}
    found = set()
    for name in (*ops, "consumer_protocol"):
        for line in lines_of(f"wire/{name}"):
            kind = ops.get(line["request"]["op"]) or line["request"]["type"]
            found |= {(kind, digits) for part in ("request", "response") if (digits := line[part].get("hex"))}
    messages = [(kind, bytes.fromhex(digits)) for kind, digits in sorted(found)]
    for owned in ({}, {"t": (0,)}, {"clicks": tuple(range(20)), "views": (3, 7)}):
        numbers = owned.get("clicks", ())
        messages += [
            ("stream_join", encode_stream_join_user_data(StreamJoinUserData(numbers, len(numbers)))),
            ("stream_join_epoch", encode_stream_join_epoch(len(numbers))),
            ("copartitioned", encode_copartitioned_user_data(CopartitionedUserData(owned, owned, 5))),
            ("copartitioned", encode_copartitioned_user_data(CopartitionedUserData(owned, {}, -1))),
        ]
    return messages


COUNTS = [count.to_bytes(4, "big", signed=True) for count in (-1, 0, 1, 2, 127, 2**15, 2**20, 2**31 - 1, -(2**31))]


def damaged(messages: list[tuple[str, bytes]], chance: random.Random) -> tuple[str, bytes]:
    """A message with a few changes: bits, counts, cuts, insertions, repetitions, parts of others. And its format."""
    number = chance.random
    kind_of_message, message = messages[int(number() * len(messages))]
    data = bytearray(message)
    for _ in range(1 + int(number() * 5)):
        place = int(number() * (len(data) + 1))
        size = 1 + int(number() * 8)
        kind = int(number() * 128)
        if kind < 32 and place < len(data):
            data[place] ^= 1 << size - 1
        elif kind < 56:
            data[place : place + 4] = COUNTS[int(number() * len(COUNTS))]
        elif kind < 72:
            del data[place:]
        elif kind < 88:
            data[place:place] = chance.randbytes(size)
        elif kind < 104:
            del data[place : place + size]
        elif kind < 120:
            other = messages[int(number() * len(messages))][1]
            data[place:] = other[min(place, len(other)) :]
        elif kind < 127:
            other = messages[int(number() * len(messages))][1]
            start = int(number() * len(other))
            data[place:place] = other[start : start + 4 * size]
        elif len(data) < 10_000:
            data[place:place] = data[place : place + 4 * size] * (1 << size)
    return kind_of_message, bytes(data)


def run_batch(seed: int, inputs: int = BATCH) -> Counter[str]:
    """Check so many inputs; the same seed gives the same ones. How many of them there were, and how many each decoder read.

    Raises:
        AssertionError: one of them does harm; the message has its bytes.
    """
    limited = resource.getrlimit(resource.RLIMIT_AS)
    chance = random.Random(seed)
    messages = corpus()
    found: Counter[str] = Counter()
    data = b""
    # The cyclic collector would be measured with whatever input it happens to run at.
    gc.collect()
    gc.disable()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + PROCESS_BYTES, limited[1]))
        for number in range(inputs):
            kind, data = damaged(messages, chance)
            names = None if number % 8 == 0 or kind not in DECODERS else [kind]
            allowed = SECONDS_AT_LEAST + SECONDS_PER_BYTE * len(data)
            took, accepted = timed(data, names)
            if took >= allowed:
                # Whatever else runs on the machine may have been at fault once, not each time.
                took = min(timed(data, names)[0] for _ in range(5))
            assert took < allowed, f"{took:.3f} s for {len(data)} bytes"
            found.update(accepted)
            if number % MEMORY_IS_MEASURED_EVERY == 0:
                check_memory(data)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}, for the bytes {data.hex()}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limited)
        gc.enable()
    found["inputs"] = inputs
    return found


def address_space() -> int:
    """Bytes of addresses that the process has."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 64 << 30


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steered", action="store_true", help="by atheris, which has to be installed; in one process")
    options = parser.parse_args()
    if options.steered:
        run_steered(options.inputs, options.seed)
        return
    found: Counter[str] = Counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for batch in pool.map(run_batch, range(options.seed, options.seed + -(-options.inputs // BATCH))):
            found += batch
            if found["inputs"] % 1_000_000 == 0:
                print(f"{found['inputs']} inputs without a crash", flush=True)  # noqa: T201
    inputs = found.pop("inputs")
    read = ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
    print(f"{inputs} inputs without a crash, every eighth given to all decoders. They made values of: {read}.")  # noqa: T201


def run_steered(inputs: int, seed: int) -> None:
    """Let atheris look for inputs that reach new code, beginning with the recorded messages.

    Raises:
        SystemExit: it found an input that ends a decoder.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, (_, message) in enumerate(corpus()):
            Path(folder, str(number)).write_bytes(message)
        # Its process ends when it has done its work, without a word to Python.
        process = get_context("spawn").Process(target=_steer, args=(inputs, seed, folder))
        process.start()
        process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def _steer(inputs: int, seed: int, folder: str) -> None:
    import atheris

    atheris.instrument_all()
    options = [f"-runs={inputs}", f"-seed={seed + 1}", "-max_len=2000", "-print_final_stats=1", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, folder], check_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
