"""A Vision Transformer of torch's own layers, with a free embedding size.

Patches are embedded by one linear map, positions are learned, the layers normalise first, use gelu and drop nothing.
The head sees the flattened tokens, so that its parameters p_L = outputs · tokens · embedding reach the threshold at a
small embedding; or a class token, as in image classifiers, with p_L = outputs · embedding.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from exhume import seeds
from exhume.errors import UsageError
from exhume_papers.networks.initialisation import draw_normal

POSITION_STD = 0.02


class VisionTransformer(nn.Module):
    """Inputs are flat rows (n × d), d = colours · side², in the order channel, height, width."""

    def __init__(
        self,
        side: int,
        patch: int,
        embedding: int,
        depth: int,
        heads: int,
        outputs: int,
        stream: torch.Generator,
        head_on: Literal["tokens", "class"] = "tokens",
        widening: int = 4,
        colours: int = 3,
    ) -> None:
        super().__init__()
        if min(side, patch, embedding, depth, heads, outputs, widening, colours) < 1:
            raise UsageError("expected positive sizes of a Vision Transformer, found one below 1")
        if side % patch:
            raise UsageError(f"expected a patch that divides the side of {side} pixels, found {patch}")
        if embedding % heads:
            raise UsageError(f"expected an embedding that {heads} heads divide evenly, found {embedding}")
        self.image_shape = (colours, side, side)
        self.patch = patch
        patches = (side // patch) ** 2
        self.embed = nn.Linear(colours * patch * patch, embedding)
        self.class_token = nn.Parameter(torch.zeros(1, 1, embedding)) if head_on == "class" else None
        tokens = patches if self.class_token is None else patches + 1
        self.positions = nn.Parameter(torch.zeros(tokens, 1, embedding))
        # tokens come before samples (batch_first=False): torch then never takes its fused encoder layer, which has no
        # derivatives with respect to the inputs
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                embedding, heads, widening * embedding, dropout=0.0, activation="gelu", norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(embedding)
        self.feature_shape = (patches if self.class_token is None else 1, embedding)
        self.head = nn.Linear(math.prod(self.feature_shape), outputs, bias=False)
        self._draw(stream)

    def _draw(self, stream: torch.Generator) -> None:
        """Matrices N(0, 1/fan_in), biases 0, positions and class token N(0, 0.02²); layer norms start as they are."""
        for name, parameter in self.named_parameters():
            if name in ("positions", "class_token"):
                draw_normal(parameter, POSITION_STD, stream)
            elif parameter.ndim == 2:
                draw_normal(parameter, 1 / math.sqrt(parameter.shape[1]), stream)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        tokens = self.embed(self._patches(rows)).transpose(0, 1)
        if self.class_token is not None:
            tokens = torch.cat([self.class_token.expand(1, len(rows), -1), tokens])
        tokens = tokens + self.positions
        for layer in self.layers:
            tokens = layer(tokens)
        seen = tokens[:1] if self.class_token is not None else tokens
        return self.head(self.norm(seen).transpose(0, 1).flatten(start_dim=1))

    def _patches(self, rows: Float[Tensor, "n d"]) -> Float[Tensor, "n patches pixels"]:
        colours, side, _ = self.image_shape
        steps = side // self.patch
        images = rows.reshape(len(rows), colours, steps, self.patch, steps, self.patch)
        return images.permute(0, 2, 4, 1, 3, 5).reshape(len(rows), steps * steps, -1)


def blank_vision_transformer(
    side: int,
    patch: int,
    embedding: int,
    depth: int,
    heads: int,
    outputs: int,
    colours: int,
    seed: int = 0,
    head_on: Literal["tokens", "class"] = "tokens",
) -> VisionTransformer:
    """A network whose weights are still to be loaded, or as it starts from a seed."""
    stream = seeds.generator(seed, "network")
    return VisionTransformer(side, patch, embedding, depth, heads, outputs, stream, head_on, colours=colours)
