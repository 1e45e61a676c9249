"""Models as people train them, audited as a new user would: what comes back, and is what the page says true?

    python benchmarks/zoo.py --out FOLDER [--only NAME,...] [--seeds K] [--budget S] [--data-dir DIR]
                             [--facts] [--page docs/real-models.md]

Trains each victim of `benchmarks/zoo/` by plain PyTorch, audits it with its records and once more without them, and
prints the table. One file of JSON per victim and seed is kept in the folder; those that are there are not made again.
`--facts` trains only, and prints what is true of each victim: where an attack's obstacle is. `--page` writes the page
of the documentation. CIFAR-10 is looked for in ../shared/data; victims that need it are left out where it is absent.
Without `--budget` an audit has 15 s of a core, and what its row says where an attack that suits the victim needs more;
the two audits of such a row take up to half an hour.
"""

from pathlib import Path

from zoo.running import run  # the package beside this file: a package goes before a module of the same name

if __name__ == "__main__":
    run(None, Path(__file__), __doc__ or "")
