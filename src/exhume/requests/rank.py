"""What `exhume rank` is asked for."""

from pathlib import Path
from typing import Annotated, ClassVar

from exhume.requests.kinds import Factory, Seed
from exhume.requests.request import Option, Request


class RankRequest(Request):
    """`run` is a run folder, or a file with a head alone, whose records are embeddings then."""

    command: ClassVar[str] = "rank"

    run: Annotated[
        Path,
        Option(
            "The run folder, a file with a head (weight, bias; safetensors, PyTorch, Keras), a linear model of "
            "scikit-learn (skops, ONNX), or the folder of a PEFT adapter (LoRA).",
            argument=True,
        ),
    ]
    candidates: Annotated[
        Path,
        Option(
            "Records to rank: a folder of images, or inputs or embeddings (safetensors, .npz, .csv, .parquet).",
            metavar="DATA",
        ),
    ]
    non_members: Annotated[
        Path | None, Option("Records of the same kind that were not trained on.", metavar="DATA")
    ] = None
    members: Annotated[
        str | None,
        Option(
            "The candidates that were trained on, all of them, for a test: their rows, or a column of 0 and 1.",
            metavar="DATA",
        ),
    ] = None
    label: Annotated[str | None, Option("Of a table: the column with the labels, which is no input.")] = None
    loss: Annotated[
        str | None,
        Option(
            "square, signed-square, logistic, cross-entropy, squared-hinge or none; default: what the run or the "
            "file says."
        ),
    ] = None
    initial: Annotated[Path | None, Option("Head file: W(0); default: it started at zero.")] = None
    layer: Annotated[
        str | None, Option("PEFT adapter: the layer that reads the records; default: the one of their width.")
    ] = None
    hidden: Annotated[bool, Option("Head file: a hidden layer with ReLU; its embeddings are recovered first.")] = False
    mean: Annotated[
        str | None, Option("Images: the model's mean, e.g. 0.5 or one per channel; default: what the run tells.")
    ] = None
    std: Annotated[str | None, Option("Images: its standard deviation.")] = None
    out: Annotated[Path | None, Option("Folder for ranking.csv; default: the run folder.")] = None
    model: Factory = None
    seed: Seed = 0
