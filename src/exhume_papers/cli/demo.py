"""`exhume demo`: faces into a model, and out of its weights again."""

from pathlib import Path
from typing import Annotated, ClassVar

from exhume.cli.output import attack_bar, print_json, say
from exhume.requests.request import Option, Request

SAMPLES = 20
RATIO = 4


class DemoRequest(Request):
    command: ClassVar[str] = "demo"

    out: Annotated[Path, Option("The run folder to make.")] = Path("demo")


def demo(request: DemoRequest, json: bool) -> None:
    """Train on real faces, dig them out of the weights, and write a picture and a report.

    Example: exhume demo --out demo
    """
    from exhume.cli.attack import say_attack
    from exhume.cli.evaluate import say_scores
    from exhume.data.load import load
    from exhume.experiments.attack_request import AttackRequest
    from exhume.experiments.attacking import attack_run
    from exhume.experiments.run import RunFolder
    from exhume.experiments.scoring import score_run
    from exhume.report.page import write_report
    from exhume_papers.making.training_run import train_run
    from exhume_papers.making.victim_request import RandomFeaturesRequest

    out, asked = request.out, RandomFeaturesRequest(data="faces", samples=SAMPLES, ratio=RATIO)
    faces = load(asked.data_config())
    n, d = faces.inputs.shape
    say(f"1. Training: {faces.description}.", json)
    train_run(out, asked.data_config(), asked.config(faces), faces, request=asked.kept())
    say(f"   The model is {RATIO * d * n:,} weights. The faces are put away.", json)
    run = RunFolder.existing(out)
    prepared = AttackRequest().prepare(run, run.observation(), seed=0)
    say("2. Digging.", json)
    with attack_bar(prepared.method.iterations) as show:
        attacked = attack_run(run, prepared, show)
    say_attack(attacked.summary, json)
    say("3. Holding what was found against the faces.", json)
    scores = score_run(run)
    say_scores(scores, json)
    run.update_summary(scores.summary())
    page = write_report(run, reveal=True)
    summary = run.update_summary({"report": page.name})
    say(f"4. Look: {out / 'pairs.png'} (faces above, what came back below) and {page}", json)
    summary = run.update_summary(_ordinary_network(out, json))
    if json:
        print_json(summary | {"report": str(page)})


def _ordinary_network(out: Path, json: bool) -> dict[str, float | int]:
    """The second act: the first layer of a plain PyTorch network, before and after training."""
    from safetensors.torch import save_file

    from exhume.report.figures import draw_pairs
    from exhume_papers.studies.ordinary_network import SAMPLES, UNITS, dig_faces

    say(f"5. An ordinary PyTorch network of {UNITS:,} ReLUs, trained on {SAMPLES} faces with SGD.", json)
    dug = dig_faces()
    draw_pairs(dug.truth, dug.recovered, out / "network-pairs.png")
    near, worst = int((dug.errors < 0.1).sum()), float(dug.errors.max())
    say(
        f"   {dug.found.outcome.value}: {near} of {SAMPLES} faces in {dug.found.seconds:.1f} s, from the change of its "
        f"first layer alone; worst relative error {worst:.1e}",
        json,
    )
    say(f"   Look: {out / 'network-pairs.png'}", json)
    network = out / "network"
    network.mkdir()
    for name, state in (("before", dug.before), ("after", dug.after)):
        save_file(state, network / f"{name}.safetensors")
    states = f"{network / 'after.safetensors'} --initial {network / 'before.safetensors'}"
    say(f"   Audit it as you would your own: exhume audit {states} --image-shape 1,25,25 --out audit", json)
    return {"network_recovered": near, "network_worst_error": worst, "network_seconds": round(dug.found.seconds, 3)}
