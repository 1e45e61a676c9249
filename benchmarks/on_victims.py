"""One method on victims of the zoo: records within a tenth of their norm, and candidates that are in no record's place.

The attack sees what the zoo's attacker sees, and is not told n. Seconds are those of this process on its cores.
"""

import time

import torch
from zoo.registry import VICTIMS
from zoo.victim import Trained

import exhume
from exhume.attacks.foundation.method import AnyMethod
from exhume.observation import Observation


def observed(trained: Trained) -> Observation:
    return exhume.observe(trained.model, initial=trained.known.start)


def print_table(victims: list[str], seeds: range, method: AnyMethod) -> None:
    columns = ("victim", "seed", "within a tenth", "candidates (wrong)", "median error", "worst error", "core seconds")
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for name in victims:
        for seed in seeds:
            print(_row(name, seed, method), flush=True)


def _row(name: str, seed: int, method: AnyMethod) -> str:
    trained = VICTIMS[name].train(seed)
    observation = observed(trained)
    began = time.process_time()
    found = exhume.reconstruct(observation, method=method, seed=seed)
    seconds = time.process_time() - began
    records = trained.records.inputs.flatten(start_dim=1)
    away = torch.cdist(records, found.inputs.to(records)) / records.norm(dim=1, keepdim=True)
    errors, nearest = away.min(dim=1).values, away.min(dim=0).values
    near, wrong = int((errors < 0.1).sum()), int((nearest > 0.1).sum())
    shown = f"{near} of {len(records)} | {len(found.inputs)} ({wrong}) | {errors.median():.1g} | {errors.max():.1g}"
    return f"| {name} | {seed} | {shown} | {seconds:.0f} |"
