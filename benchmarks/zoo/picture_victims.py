"""Pictures: perceptrons, LeNet, a ResNet, a Vision Transformer, autoencoders, fine-tuning and a federated round."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

from zoo.data import cifar, digits, faces, flat
from zoo.loops import crops_and_flips, fit, flips, state_of
from zoo.networks import VisionTransformer, lenet, mlp, resnet, small_cnn
from zoo.victim import Known, Records, Trained, Victim

START = "the start"


def faces_or_not(data: Path) -> Trained:
    records, control = faces(40)
    model = mlp(625, 1500, 2)
    before = state_of(model)
    loss = fit(model, records, torch.optim.SGD(model.parameters(), lr=0.05), epochs=500)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


@dataclass(frozen=True)
class Autoencoder:
    """Faces to themselves through 32 numbers."""

    optimiser: type[torch.optim.SGD] | type[torch.optim.Adam]
    rate: float
    epochs: int
    told: str

    def __call__(self, data: Path) -> Trained:
        found, control = faces(20)
        records = Records(found.inputs, found.inputs)
        model = nn.Sequential(*mlp(625, 256, 32), nn.ReLU(), *mlp(32, 256, 625))
        before = state_of(model)
        made = self.optimiser(model.parameters(), lr=self.rate)
        loss = fit(model, records, made, epochs=self.epochs, batch=10, loss=mse_loss)
        known = Known(before, recipe=(self.told,))
        return Trained(model, before, Records(found.inputs, found.labels), control, known, loss)


def lenet_on_digits(data: Path) -> Trained:
    records, control = digits(10, side=28)
    model = lenet()
    before = state_of(model)
    loss = fit(model, records, torch.optim.SGD(model.parameters(), lr=0.05), epochs=300)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


def cifar_perceptron(data: Path) -> Trained:
    images, others, _ = cifar(data, 50)
    records, control = flat(images), flat(others)
    model = mlp(3072, 1000, 10)
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = fit(model, records, optimiser, epochs=100, batch=10)
    return Trained(model, before, records, control, Known(before, recipe=("momentum",)), loss)


def cifar_flips(data: Path) -> Trained:
    """Twenty images, each seen as it is and mirrored: forty inputs."""
    images, others, _ = cifar(data, 20)
    model = nn.Sequential(nn.Flatten(), *mlp(3072, 1000, 10))
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = fit(model, images, optimiser, epochs=100, batch=10, augment=flips)
    known = Known(before, recipe=("momentum", "augmentation"))
    return Trained(model, before, images, others, known, loss, also=images.inputs.flip(-1))


def cifar_resnet(data: Path) -> Trained:
    images, others, _ = cifar(data, 50)
    model = resnet()
    before = state_of(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    loss = fit(model, images, optimiser, epochs=40, batch=25, augment=crops_and_flips)
    known = Known(before, recipe=("momentum", "weight-decay", "augmentation"))
    return Trained(model, before, images, others, known, loss)


def cifar_transformer(data: Path) -> Trained:
    images, others, _ = cifar(data, 30)
    model = VisionTransformer()
    before, optimiser = state_of(model), torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    loss = fit(model, images, optimiser, epochs=40, batch=15)
    return Trained(model, before, images, others, Known(before, recipe=("adam",)), loss)


def pretrained(data: Path, n: int) -> tuple[nn.Sequential, Records, Records]:
    """A network that was trained on 600 other images and published, and n new images."""
    images, others, public = cifar(data, n, others=600)
    model = small_cnn()
    fit(model, public, torch.optim.Adam(model.parameters(), lr=1e-3), epochs=5, batch=50)
    return model, images, others


def fine_tuned(data: Path) -> Trained:
    """All layers, from the published weights."""
    model, images, others = pretrained(data, 10)
    before, optimiser = state_of(model), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = fit(model, images, optimiser, epochs=30, batch=5)
    return Trained(model, before, images, others, Known(before, recipe=("momentum",)), loss)


def perceptron_on_frozen(data: Path) -> Trained:
    """A hidden layer and a new head on frozen features of images: the body stays as it was published."""
    body, images, others = pretrained(data, 20)
    frozen = list(body.requires_grad_(False).children())[:-1]
    model = nn.Sequential(*frozen, *mlp(1024, 512, 10))
    before = state_of(model)
    trainable = [value for value in model.parameters() if value.requires_grad]
    loss = fit(model, images, torch.optim.SGD(trainable, lr=0.05, momentum=0.9), epochs=50, batch=10)
    return Trained(model, before, images, others, Known(before, recipe=("momentum",)), loss)


def federated_round(data: Path) -> Trained:
    """One client of a federated training: one local epoch from the server's weights, which both sides know."""
    images, others, _ = cifar(data, 20)
    records, control = flat(images), flat(others)
    model = mlp(3072, 512, 10)
    before = state_of(model)
    loss = fit(model, records, torch.optim.SGD(model.parameters(), lr=0.05), epochs=1, batch=10)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


def federated_lenet(data: Path) -> Trained:
    """One step of a client on four pictures, as in the papers on gradients: the update is one gradient."""
    records, control = digits(4, side=28)
    model = lenet()
    before = state_of(model)
    loss = fit(model, records, torch.optim.SGD(model.parameters(), lr=0.05), epochs=1)
    return Trained(model, before, records, control, Known(before, recipe=("sgd",)), loss)


VICTIMS = (
    Victim("lenet-digits", "10 digits of 28 x 28, LeNet with ReLU, SGD, full batch", START, lenet_on_digits, 180.0),
    Victim("faces-two-classes", "40 faces and others of 25 x 25, 625-1500-2, SGD", START, faces_or_not),
    Victim(
        "faces-autoencoder-sgd",
        "20 faces, 625-256-32-256-625, square loss, SGD, batches of 10",
        START,
        Autoencoder(torch.optim.SGD, 0.5, 200, "sgd"),
    ),
    Victim(
        "faces-autoencoder",
        "20 faces, 625-256-32-256-625, square loss, Adam, batches of 10",
        START,
        Autoencoder(torch.optim.Adam, 1e-3, 200, "adam"),
    ),
    Victim("cifar-mlp", "50 of CIFAR-10, 3072-1000-10, momentum, batches of 10", START, cifar_perceptron),
    Victim("cifar-flips", "20 of CIFAR-10 with flips, 3072-1000-10, momentum, batches of 10", START, cifar_flips),
    Victim(
        "cifar-resnet",
        "50 of CIFAR-10 with crops and flips, ResNet-8 with batch norm, momentum, weight decay",
        START,
        cifar_resnet,
    ),
    Victim("cifar-vit", "30 of CIFAR-10, Vision Transformer of 2 blocks, AdamW", START, cifar_transformer),
    Victim(
        "cifar-fine-tuned",
        "10 of CIFAR-10, small CNN trained before on 600 others, all layers by momentum",
        "the weights before fine-tuning",
        fine_tuned,
    ),
    Victim(
        "cifar-frozen",
        "20 of CIFAR-10, 1024-512-10 on a frozen CNN, momentum, batches of 10",
        START,
        perceptron_on_frozen,
    ),
    Victim(
        "federated-epoch",
        "20 of CIFAR-10, 3072-512-10, one local epoch of SGD, batches of 10",
        "the server's weights",
        federated_round,
    ),
    Victim(
        "federated-step",
        "4 digits of 28 x 28, LeNet with ReLU, one step of SGD",
        "the server's weights",
        federated_lenet,
    ),
)
