"""Feeds the decoders with damaged messages: `python -m tests.group.fuzz_wire --inputs 10000000` (`make fuzz`).

Both ways begin with the recorded messages: with atheris installed the inputs are steered by coverage (in one process),
else they are random changes. A decoder may answer with a value, which can be written and read again, or with
`WireFormatException`; all else ends the run.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from task_assignor.group.wire import (
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
# One task per input, so that 10 million inputs are 10 million decodings of each kind of message.
BATCH = 50_000


def check_input(data: bytes) -> None:
    """Give the bytes to every decoder."""
    for decode, encode in DECODERS.values():
        try:
            value = decode(data)
            # What was read as a later version, or with other letters, need not fit any more.
            again = encode(value)
        except WireFormatException:
            continue
        # Topics may come in another order, but not twice.
        assert encode(decode(again)) == again


def corpus() -> list[bytes]:
    """The recorded messages."""
    names = ("sticky_userdata", "consumer_protocol", "subscription_info", "assignment_info")
    lines = [line for name in names for line in lines_of(f"wire/{name}")]
    found = [line[part].get("hex") for line in lines for part in ("request", "response")]
    return sorted({bytes.fromhex(digits) for digits in found if digits})


def damaged(message: bytes, chance: random.Random) -> bytes:
    """The message with a few changes: bytes, counts, cuts, insertions."""
    data = bytearray(message)
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[place : place + 4] = chance.choice((-1, 0, 1, 2, 127, 2**15, 2**31 - 1)).to_bytes(
                4, "big", signed=True
            )
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            data[place:place] = chance.randbytes(chance.randrange(1, 9))
        else:
            del data[place : place + chance.randrange(1, 9)]
    return bytes(data)


def run_batch(seed: int, inputs: int = BATCH) -> int:
    """Check so many inputs; the same seed gives the same ones."""
    chance = random.Random(seed)
    messages = corpus()
    for _ in range(inputs):
        data = damaged(chance.choice(messages), chance)
        try:
            check_input(data)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}, for the bytes {data.hex()}") from error
    return inputs


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is not None:
        run_steered(options.inputs, options.seed)
        return
    done = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for count in pool.map(run_batch, range(options.seed, options.seed + -(-options.inputs // BATCH))):
            done += count
            if done % 1_000_000 == 0:
                print(f"{done} inputs without a crash", flush=True)  # noqa: T201
    print(f"{done} inputs without a crash: random changes of recorded messages")  # noqa: T201


def run_steered(inputs: int, seed: int) -> None:
    """Let atheris look for inputs that reach new code, beginning with the recorded messages.

    Raises:
        SystemExit: it found an input that ends a decoder.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, message in enumerate(corpus()):
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
