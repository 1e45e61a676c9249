"""Model formats that are known and not read: known by first bytes or name, each with the line that converts it."""

from dataclasses import dataclass
from pathlib import Path

from exhume.errors import ExhumeError

_MADE_FROM = "no tool turns it back: give the model that it was made from"
_TF = "where you trust it: python -m tf2onnx.convert"
_BOOSTER = 'onnx.save(onnxmltools.convert_{kind}({loaded}, initial_types=TYPES), "{stem}.onnx")'
_GGUF = 'transformers.AutoModelForCausalLM.from_pretrained(".", gguf_file="{name}").save_pretrained("{stem}")'
_FLAX = (
    'flat = flax.traverse_util.flatten_dict(flax.serialization.msgpack_restore(open("{name}", "rb").read()), sep="."); '
    'safetensors.flax.save_file(flat, "{stem}.safetensors")'
)


@dataclass(frozen=True)
class NotRead:
    """`way_out` has `{name}` and `{stem}` where those of the file belong."""

    title: str
    way_out: str


GGUF = NotRead("GGUF", f"give the folder that it was made from; or {_GGUF}")
TFLITE = NotRead("TensorFlow Lite", f'{_TF} --tflite "{{name}}" --output "{{stem}}.onnx"')
SAVED_MODEL = NotRead("a TensorFlow SavedModel", f"{_TF} --saved-model . --output model.onnx")
GRAPH = NotRead("a TensorFlow graph", f'{_TF} --graphdef "{{name}}" --output "{{stem}}.onnx" --inputs IN --outputs OUT')
TF_VARIABLES = NotRead(
    "a TensorFlow checkpoint", 'tf.train.load_checkpoint(".").get_tensor(NAME), each into numpy.savez("weights.npz")'
)
FLAX = NotRead("Flax (msgpack)", _FLAX)
CORE_ML = NotRead("Core ML", _MADE_FROM)
PMML = NotRead("PMML", f'{_MADE_FROM}, e.g. skops.io.dump(MODEL, "{{stem}}.skops")')
R_DATA = NotRead(
    "R's own format", 'in R, where you trust it: safetensors::safe_save_file(TENSORS, "{stem}.safetensors")'
)
XGBOOST = NotRead(
    "XGBoost", _BOOSTER.replace("{kind}", "xgboost").replace("{loaded}", 'xgboost.Booster(model_file="{name}")')
)
LIGHTGBM = NotRead(
    "LightGBM", _BOOSTER.replace("{kind}", "lightgbm").replace("{loaded}", 'lightgbm.Booster(model_file="{name}")')
)
CATBOOST = NotRead("CatBoost", 'catboost.CatBoost().load_model("{name}").save_model("{stem}.onnx", format="onnx")')

BY_SUFFIX = {
    ".gguf": GGUF,
    ".tflite": TFLITE,
    ".pb": GRAPH,
    ".msgpack": FLAX,
    ".mlmodel": CORE_ML,
    ".pmml": PMML,
    ".rds": R_DATA,
    ".rda": R_DATA,
    ".rdata": R_DATA,
    ".ubj": XGBOOST,
    ".cbm": CATBOOST,
}
BY_START = ((b"GGUF", GGUF), (b"CBM1", CATBOOST), (b"tree\nversion=", LIGHTGBM), (b"tree\r\nversion=", LIGHTGBM))
XGBOOST_START = b'{"learner"'


def not_read(path: Path, start: bytes) -> NotRead | None:
    """`start`: the first 16 bytes of the file."""
    suffix = path.suffix.lower()
    if path.name == "saved_model.pb":
        return SAVED_MODEL
    if suffix.startswith(".data-0") and "-of-" in suffix:
        return TF_VARIABLES
    if suffix == ".json" and b"".join(start.split()).startswith(XGBOOST_START):
        return XGBOOST
    if start[4:8] == b"TFL3":
        return TFLITE
    return next((told for magic, told in BY_START if start.startswith(magic)), None) or BY_SUFFIX.get(suffix)


def refuse_not_read(path: Path, start: bytes) -> ExhumeError | None:
    """With the line that converts it; None where the file is of no such format.

    >>> str(refuse_not_read(Path("m.tflite"), b"")).rpartition(": ")[2]
    'python -m tf2onnx.convert --tflite "m.tflite" --output "m.onnx"'
    """
    found = not_read(path, start)
    if found is None:
        return None
    line = found.way_out.replace("{name}", path.name).replace("{stem}", path.stem)
    return ExhumeError(f"expected a format that exhume reads at {path}, found {found.title}; {line}")
