"""What the papers are measured with: victims, sweeps over them, figures, benches and studies.

It is made on exhume, which knows nothing of it. `exhume train`, `sweep`, `reproduce`, `bench` and the other
commands from here are found through entry points of the group `exhume.commands`.
"""
