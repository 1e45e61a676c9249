"""`exhume report`: one page about a run."""

from exhume.cli.output import print_json, say
from exhume.requests.run_folder import ReportRequest


def report(request: ReportRequest, json: bool) -> None:
    """Write report.html (self-contained), report.json and pictures into RUN.

    A report.json, or the folder of an audit, is made into its page again; nothing else is read.

    Example: exhume report runs/a --reveal
    """
    from exhume.experiments.run import RunFolder
    from exhume.report.page import rebuild, write_report

    run = request.run
    content = run / "report.json" if run.is_dir() else run
    if content.is_file() and not (run / "observation.safetensors").exists():
        _refuse_to_reveal(request.reveal)
        say(f"wrote {rebuild(content)}", json)
        if json:
            print_json({"report": str(content.with_suffix(".html"))})
        return
    folder = RunFolder.existing(run)
    path = write_report(folder, request.reveal, request.model)
    say(f"wrote {path}", json)
    if json:
        print_json({**folder.summary(), "report": str(path)})


def _refuse_to_reveal(reveal: bool) -> None:
    from exhume.errors import UsageError

    if reveal:
        raise UsageError("expected no --reveal with a report.json, which holds no more than it was given, found it")
