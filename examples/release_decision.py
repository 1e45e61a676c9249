"""A release decision: publish as it is, with a defence, or not at all?

    python examples/release_decision.py

Each defence is applied and attacked again; the cheapest one after which several attacks did not find the data is
proposed. An inconclusive verdict is no ground for a proposal: nobody knows. "Not recovered" is a statement about these
attacks, so a person still decides.
"""

import torch

import exhume
from exhume import Verdict

stream = torch.Generator().manual_seed(2)
inputs = torch.nn.functional.normalize(torch.randn(6, 16, generator=stream)) * 4
labels = torch.tensor([1.0, -1.0, 1.0])
rows = torch.randn(300, 16, generator=stream) / 4
features = (inputs[:3] @ rows.T).relu()
weights = torch.linalg.pinv(features) @ labels

audit = exhume.audit_features(
    rows, weights, "relu", truth=inputs[:3], labels=labels, control=inputs[3:], what_if=["int8", "dp"], budget_seconds=8
)
print(audit.sentence)
for line in audit.summary["what_if"]:
    cost = f"outputs moved by {line['output_change']:.2g}, accuracy {line['accuracy']:.0%}"
    print(f"{line['name']:>12}: {line['title']}, {cost}")
held = [line for line in audit.summary["what_if"] if line["verdict"] == Verdict.NOT_RECOVERED.value]
choice = min(held, key=lambda line: line["output_change"])["name"] if held else "none; do not publish these weights"
print(f"proposal: {choice}")
for line in audit.summary["what_if"]:
    if line["verdict"] == Verdict.INCONCLUSIVE.value:
        print(f"not settled: {line['name']} ({line['note']})")
print(audit.save("release.html"))
