"""Mutations that know the form of what they change: bytes, text, JSON, safetensors, TOML, command lines.

Every function takes a `random.Random` and gives the same result for the same state of it.
"""

import io
import json
import math
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from fuzz_onnx import mutate_onnx

ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "\u202e",
    "\U0001f600",
    "\x1b[2J",
    "a" * 5000,
    "../../etc/passwd",
    "/dev/null",
    "nan",
    "1e999",
    "%s%n",
    "{{7*7}}",
    "<script>",
    "\r\n",
)
ODD_NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    255,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**40,
    -(2**63),
    0.5,
    -0.0,
    1e-320,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    -math.inf,
)
ODD_LITERALS = ("1" + "0" * 5000, "1e999", "-1e-999", "NaN", "Infinity", "0x10", "1_000", "tru", "'a'", "[" * 2000)
INTEGERS = (0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
FLAGS = ("--json", "--help", "--debug", "--nope", "--", "-", "--out", "--seed", "--samples", "--version")


def odd_value(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value that nobody would write."""
    match dice.randrange(8):
        case 0 | 1 | 2:
            return dice.choice(ODD_NUMBERS)
        case 3 | 4:
            return dice.choice(ODD_TEXTS)
        case 5:
            return dice.choice((None, True, False))
        case 6 if depth < 3:
            return [odd_value(dice, depth + 1) for _ in range(dice.randrange(4))]
        case 7 if depth < 3:
            return {dice.choice(ODD_TEXTS): odd_value(dice, depth + 1) for _ in range(dice.randrange(3))}
    return dice.choice(([], {}, [[]], "text"))


def mutate_bytes(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 4, 16))):
        place = dice.randrange(len(changed) + 1)
        match dice.randrange(8):
            case 0 | 1 if changed:
                changed[min(place, len(changed) - 1)] ^= 1 << dice.randrange(8)
            case 2 if changed:
                changed[min(place, len(changed) - 1)] = dice.randrange(256)
            case 3:
                del changed[place:]
            case 4:
                changed[place:place] = dice.randbytes(dice.choice((1, 2, 8, 100)))
            case 5:
                number = struct.pack(dice.choice("<>") + "Q", dice.choice(INTEGERS))
                size = dice.choice((1, 2, 4, 8))
                changed[place : place + size] = number[:size]
            case 6:
                length = dice.choice((1, 4, 16, 64))
                changed[place:place] = changed[place : place + length] * dice.choice((1, 2, 50))
            case 7:
                del changed[place : place + dice.choice((1, 2, 4, 32))]
    return bytes(changed)


def mutate_text(content: bytes, dice: random.Random) -> bytes:
    """Lines removed, doubled, exchanged; words replaced by odd ones; sometimes just bytes."""
    if dice.random() < 0.25:
        return mutate_bytes(content, dice)
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(dice.choice((1, 1, 2, 3))):
        place = dice.randrange(len(lines))
        match dice.randrange(6):
            case 0 if len(lines) > 1:
                del lines[place]
            case 1:
                lines.insert(place, lines[dice.randrange(len(lines))])
            case 2:
                other = dice.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            case 3 | 4:
                words = lines[place].split(" ")
                words[dice.randrange(len(words))] = _odd_word(dice)
                lines[place] = " ".join(words)
            case 5:
                head, separator, _ = lines[place].partition("=")
                lines[place] = f"{head}{separator or ' = '} {_odd_literal(dice)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def mutate_json(content: bytes, dice: random.Random) -> bytes:
    if dice.random() < 0.15:
        return mutate_bytes(content, dice)
    try:
        value = json.loads(content)
    except ValueError:
        return mutate_bytes(content, dice)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        value = mutate_value(value, dice)
    return _with_odd_text(json.dumps(value), dice).encode("utf-8", "surrogatepass")


def mutate_value(value: Any, dice: random.Random) -> Any:
    """The JSON value with one of its parts changed, removed, renamed, or doubled."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.02:
        return odd_value(dice)
    key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if isinstance(value[key], dict | list) and value[key] and dice.random() < 0.7:
        value[key] = mutate_value(value[key], dice)
        return value
    match dice.randrange(6):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[dice.choice((*ODD_TEXTS, "schema", "kind"))] = value.pop(key)
        case 2 if isinstance(value, list):
            value.extend([value[key]] * dice.choice((1, 3, 100)))
        case 3 if isinstance(value[key], int | float) and not isinstance(value[key], bool):
            value[key] = _near(value[key], dice)
        case _:
            value[key] = odd_value(dice)
    return value


def mutate_safetensors(content: bytes, dice: random.Random) -> bytes:
    """The header's JSON, the JSON inside its metadata, its length, or the numbers."""
    if dice.random() < 0.15:
        return mutate_bytes(content, dice)
    try:
        (length,) = struct.unpack_from("<Q", content)
        header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    except (struct.error, ValueError):
        return mutate_bytes(content, dice)
    told = header.get("__metadata__", {}).get("exhume")
    choice = dice.random()
    if told is not None and choice < 0.5:
        header["__metadata__"]["exhume"] = mutate_json(told.encode(), dice).decode("utf-8", "replace")
    elif choice < 0.7:
        data = _odd_numbers(data, dice)
    elif choice < 0.8:
        header, data = _another_tensor(header, data, dice)
    else:
        header = mutate_value(header, dice)
    text = json.dumps(header)
    if dice.random() < 0.1:
        text = _with_odd_text(text, dice)
    written = text.encode("utf-8", "surrogatepass")
    written += b" " * (-len(written) % 8)
    claimed = dice.choice(INTEGERS) if dice.random() < 0.05 else len(written)
    return struct.pack("<Q", claimed) + written + data


def mutate_archive(content: bytes, dice: random.Random) -> bytes:
    """One entry of a zip archive changed, and the archive made again, so that its own checks agree; or just bytes."""
    if dice.random() < 0.2:
        return mutate_bytes(content, dice)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = dice.choice(list(entries))
    match dice.randrange(8):
        case 0:
            del entries[name]
        case 1:
            entries[dice.choice(("../a.npy", "/a", "a\\b", "schema.json", "config.json"))] = entries.pop(name)
        case _:
            change = mutate_json if name.endswith(".json") else mutate_bytes
            entries[name] = change(entries[name], dice)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for each, inside in entries.items():
            archive.writestr(each, inside)
    return packed.getvalue()


def mutate_command(content: bytes, dice: random.Random) -> bytes:
    """A JSON list of arguments with some of them exchanged, doubled, removed, or made odd."""
    words: list[str] = json.loads(content)
    for _ in range(dice.choice((1, 1, 2, 3))):
        place = dice.randrange(len(words) + 1)
        match dice.randrange(6):
            case 0 if len(words) > 1:
                del words[min(place, len(words) - 1)]
            case 1:
                words.insert(place, dice.choice(FLAGS))
            case 2 if words:
                words.insert(place, dice.choice(words))
            case _ if words:
                words[min(place, len(words) - 1)] = _odd_word(dice)
    # the operating system passes neither zero bytes nor lone surrogates other than those of undecodable bytes
    return json.dumps([word.replace("\x00", "").replace("\ud800", "\udc80") for word in words]).encode()


MUTATORS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "onnx": mutate_onnx,
    "bytes": mutate_bytes,
    "text": mutate_text,
    "json": mutate_json,
    "safetensors": mutate_safetensors,
    "archive": mutate_archive,
    "command": mutate_command,
}


def _odd_word(dice: random.Random) -> str:
    return str(dice.choice((*ODD_TEXTS, *ODD_NUMBERS, "true", "none", "auto", "1,2", ",", "0s", "1e9G", "-5m")))


def _odd_literal(dice: random.Random) -> str:
    written = (*ODD_LITERALS, "[]", "{}", "[1, 2]", '"text"', "true", "-1", "0", "1979-05-27", "[[[]]]", '"\\ud800"')
    return dice.choice(written)


def _near(number: float, dice: random.Random) -> Any:
    nearby: tuple[Any, ...] = (number + 1, number - 1, -number, number * 2, str(number), [number], bool(number))
    return dice.choice((*nearby, float(number) if abs(number) < 1e300 else 0))


def _with_odd_text(text: str, dice: random.Random) -> str:
    """Duplicate keys, deep nesting and numbers that json.dumps would not write."""
    choice = dice.random()
    if choice < 0.04:
        return text.replace("{", '{"schema": 1, "schema": 2, ', 1)
    if choice < 0.07:
        depth = dice.choice((50, 2000, 100_000))
        return text.replace(":", ': {"a":' * depth + "1" + "}" * depth + ', "b":', 1)
    if choice < 0.1:
        return text.replace(": 1", f": {dice.choice(ODD_LITERALS)}", 1)
    return text


def _odd_numbers(data: bytes, dice: random.Random) -> bytes:
    """A few of the numbers become NaN, infinite, huge or denormal, read as float32 or float64 or bytes."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 50))):
        form = dice.choice("fdq")
        odd = (math.nan, math.inf, -math.inf, 3e38, 1e-45, 0.0, -1e30)
        packed = struct.pack(f"<{form}", dice.choice(odd if form != "q" else INTEGERS[:9]))
        if len(changed) >= 8:
            place = dice.randrange(0, len(changed) - 7, 4)
            changed[place : place + len(packed)] = packed
    return bytes(changed)


def _another_tensor(header: dict[str, Any], data: bytes, dice: random.Random) -> tuple[dict[str, Any], bytes]:
    """One tensor takes another shape or type that agrees with its bytes; or it is left out, with its bytes."""
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return header, data
    name = dice.choice(names)
    begin, end = header[name]["data_offsets"]
    size = end - begin
    match dice.randrange(3):
        case 0:
            header[name]["dtype"], item = dice.choice((("F64", 8), ("I64", 8), ("F32", 4), ("BF16", 2), ("BOOL", 1)))
            header[name]["shape"] = [size // item]
        case 1:
            sizes = ([1, *header[name]["shape"]], [*header[name]["shape"], 1], header[name]["shape"][::-1])
            header[name]["shape"] = dice.choice(sizes)
        case 2:
            data = data[:begin] + data[end:]
            del header[name]
            for other in header.values():
                if "data_offsets" in other and other["data_offsets"][0] >= end:
                    other["data_offsets"] = [place - size for place in other["data_offsets"]]
    return header, data
