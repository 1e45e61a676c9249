"""A head that was fine-tuned on a frozen extractor: what do the weights of the head alone give away?

    python examples/audit_finetuned_head.py

The extractor is public and does not change, so the change of the head is a combination of the features of the training
images, exactly. A head that began at zero needs no record of its start.
"""

import torch
from skimage.data import lfw_subset
from torch import nn

import exhume

torch.manual_seed(1)
faces = torch.from_numpy(lfw_subset()[:8]).float()[:, None, ::5, ::5]  # 5 x 5 pixels: seconds, not minutes
faces = nn.functional.normalize((faces - faces.mean()).flatten(start_dim=1)).reshape(-1, 1, 5, 5) * 5  # norm sqrt(d)
extractor = nn.Sequential(nn.Flatten(), nn.Linear(25, 300), nn.ReLU()).requires_grad_(False)
head = nn.Linear(300, 1, bias=False)
nn.init.zeros_(head.weight)
model = nn.Sequential(extractor, head)

trained, others = faces[:2], faces[2:4]
features, targets = extractor(trained), torch.tensor([1.0, -1.0])
optimizer = torch.optim.SGD(head.parameters(), lr=0.5 / float(features.square().sum(dim=1).max()))
for _ in range(3000):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(trained)[:, 0], targets).backward()
    optimizer.step()

audit = exhume.audit(model, head="1", initial="zero", truth=trained, control=others, recipe=["sgd"], budget_seconds=60)
print(audit.sentence)
for layer in audit.subject.layers:
    print(f"{layer['name']}: {layer['parameters']:,} parameters, {layer['leak']}")
print(audit.save("finetuned.html"))
