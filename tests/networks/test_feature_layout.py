import pytest
import torch
from torch import Tensor, nn

from exhume.networks.feature_layout import feature_layout, flattened_shape


class Functional(nn.Module):
    """Everything between the convolution and the head is a plain call."""

    def __init__(self, transposed: bool = False) -> None:
        super().__init__()
        self.first, self.head, self.transposed = nn.Conv2d(1, 6, 3), nn.Linear(54, 2), transposed

    def forward(self, images: Tensor) -> Tensor:
        seen = torch.relu(self.first(images))
        if self.transposed:
            seen = seen.transpose(1, 2)
        return self.head(torch.dropout(torch.relu(seen.reshape(len(seen), -1)), 0.5, self.training))


def layers(*after: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), *after)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (layers(nn.Flatten(), nn.Linear(54, 2)), (6, 3, 3)),
        (layers(nn.Flatten(), nn.Dropout(0.5), nn.Linear(54, 2)), (6, 3, 3)),
        (layers(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2)), (6, 1, 1)),
        (Functional(), (6, 3, 3)),
        (layers(nn.Flatten(), nn.Linear(54, 54), nn.ReLU(), nn.Linear(54, 2)), None),
        (nn.Sequential(nn.Flatten(), nn.Linear(25, 9), nn.Tanh(), nn.Linear(9, 2)), None),
        (nn.Sequential(nn.Flatten(2), nn.Flatten(), nn.Linear(25, 2)), (1, 25)),
        (nn.Sequential(nn.Flatten(), nn.Linear(7, 2)), None),
    ],
    ids=["flatten", "dropout", "pooled", "functional", "mixed by a layer", "no image", "two axes", "does not fit"],
)
def test_the_shape_before_flattening_is_seen_or_not_claimed(model: nn.Module, expected: tuple[int, ...] | None) -> None:
    head = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    model.train()
    assert flattened_shape(model, head, torch.zeros(2, 1, 5, 5)) == expected
    assert all(layer.training for layer in model.modules())


def test_axes_in_another_order_are_reported_as_they_are() -> None:
    model = Functional(transposed=True)
    assert flattened_shape(model, model.head, torch.zeros(2, 1, 5, 5)) == (3, 6, 3)


def test_a_model_that_is_watched_gives_what_it_gave_before() -> None:
    model, images = layers(nn.Flatten(), nn.Linear(54, 2)), torch.randn(2, 1, 5, 5)
    before = model(images)
    head = model[-1]
    assert isinstance(head, nn.Linear)
    flattened_shape(model, head, images)
    assert torch.equal(model(images), before)


def test_positions_of_a_channel_and_tokens_of_an_embedding_share_weights() -> None:
    def layout(*body: nn.Module, shape: tuple[int, ...]) -> object:
        head = nn.Linear(nn.Sequential(*body)(torch.zeros(2, *shape)).shape[1], 1)
        return feature_layout(nn.Sequential(*body, head), head, torch.zeros(2, *shape))

    assert layout(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), shape=(1, 5, 5)) == ((16, 3, 3), 0)
    assert layout(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), shape=(1, 5, 5)) is None, "too few channels"
    assert layout(nn.LayerNorm(6), nn.Flatten(), shape=(3, 6)) == ((3, 6), 1)
    assert layout(nn.Linear(6, 4), nn.Flatten(), shape=(3, 6)) is None, "nothing says which axis is the embedding"
    assert layout(nn.Conv2d(1, 16, 3), nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), shape=(1, 5, 5)) is None
