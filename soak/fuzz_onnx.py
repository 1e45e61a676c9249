"""Mutations of an ONNX model that stays a message: other numbers, names and shapes, loops, other files, copies."""

import random
from typing import Any

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto

WHOLE = (0, 1, -1, 2, 7, 2**31 - 1, -(2**31))
LARGE = (2**40, 2**63 - 1, -(2**63))
REALS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
MOST_PARTS = 5000


def mutate_onnx(content: bytes, dice: random.Random) -> bytes:
    """A few fields of a few of its parts, anywhere. Messages are copied into their own lists, which makes loops."""
    model = onnx.load_from_string(content)
    for _ in range(dice.choice((1, 1, 2, 4))):
        parts = _parts(model)
        part = dice.choice(parts)
        if isinstance(part, TensorProto) and dice.random() < 0.15:
            part.data_location = TensorProto.EXTERNAL
            part.external_data.add(key="location", value=dice.choice(("../../etc/passwd", "w.bin", "")))
        else:
            _change(part, dice, [name for each in parts for name in _names(each)])
    return model.SerializeToString()


def _parts(model: Message) -> list[Any]:
    """Every message inside, the outermost first."""
    found, at = [model], 0
    while at < len(found) < MOST_PARTS:
        for field, value in found[at].ListFields():
            if field.message_type is not None:
                found.extend(value if _repeated(value) else [value])
        at += 1
    return found


def _names(part: Any) -> list[str]:
    return [*getattr(part, "input", []), *getattr(part, "output", [])] if hasattr(part, "op_type") else []


def _change(part: Any, dice: random.Random, names: list[str]) -> None:
    fields = part.ListFields()
    if not fields:
        return
    field, value = dice.choice(fields)
    if not _repeated(value):
        if field.message_type is None or dice.random() < 0.1:
            _put(part, field, dice, names)
        return
    place = dice.randrange(len(value))
    match dice.randrange(5):
        case 0:
            del value[place]
        case 1 if field.message_type is None:
            value.append(value[place])
        case 1:
            value.add().CopyFrom(value[place])
        case _ if field.message_type is None:
            value[place] = _odd(value[place], dice, names)


def _put(part: Any, field: Any, dice: random.Random, names: list[str]) -> None:
    if field.message_type is not None or dice.random() < 0.2:
        part.ClearField(field.name)
        return
    try:
        setattr(part, field.name, _odd(getattr(part, field.name), dice, names))
    except ValueError:  # of a number that the field does not hold
        part.ClearField(field.name)


def _odd(value: Any, dice: random.Random, names: list[str]) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return dice.choice(WHOLE if abs(value) < 2**31 and dice.random() < 0.8 else (*WHOLE, *LARGE))
        case float():
            return dice.choice(REALS)
        case str():
            return dice.choice([*names, "", "x" * 300, "Loop", "If", "Gemm", "Scaler", "Constant"])
    cut = dice.randrange(len(value) + 1)
    return dice.choice((value[:cut], value + value, dice.randbytes(len(value))))


def _repeated(value: Any) -> bool:
    return not isinstance(value, str | bytes | Message) and hasattr(value, "__len__")
