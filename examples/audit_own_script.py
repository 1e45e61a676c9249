"""A training script that audits its own model before it publishes it.

    python examples/audit_own_script.py

Prints the verdict and writes report.html beside it; takes seconds.
"""

import torch

import exhume

torch.manual_seed(0)
inputs = torch.nn.functional.normalize(torch.randn(6, 12)) * 12**0.5
labels = torch.tensor([1.0, -1.0, 1.0])
model = torch.nn.Sequential(torch.nn.Linear(12, 300, bias=False), torch.nn.ReLU(), torch.nn.Linear(300, 1, bias=False))

before = {name: value.clone() for name, value in model.state_dict().items()}  # the one line to add before training
optimizer = torch.optim.SGD(model.parameters(), lr=0.004)
for _ in range(2000):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs[:3])[:, 0], labels).backward()
    optimizer.step()

audit = exhume.audit(model, initial=before, truth=inputs[:3], control=inputs[3:], recipe=["sgd"], budget_seconds=60)
print(audit.sentence)
print(audit.save("report.html"))
