"""`ds4chat doctor`: prints what is kept where. What it finds out is `doctor`'s; imported when it runs."""

from __future__ import annotations

import sys
from typing import Any

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option("--data-dir", metavar="DIR", help="Where sessions are kept.")
@click.option("--kv-disk-dir", "--kv-dir", "kv_dir", metavar="DIR", help="Where checkpoints are kept.")
@click.pass_obj
def doctor(flags: dict[str, Any], as_json: bool, data_dir: str | None, kv_dir: str | None) -> int:
    """Show what is kept where, how large it is, whether it is whole, and whether others can read it."""
    import msgspec

    from ds4chat.cli_setup import resolve_paths
    from ds4chat.doctor import examine
    from ds4chat.printing import dump_json, visible

    report = examine(resolve_paths(data_dir or flags["data_dir"], kv_dir or flags["kv_dir"]))
    if as_json:
        click.echo(dump_json(msgspec.to_builtins(report), sys.stdout, indent=2))
        return 1 if report.findings else 0
    width = max(len(place.what) for place in report.places)
    for place in report.places:
        click.echo(visible(f"{place.what:<{width}}  {place.path}"))
        words = [place.holds or ("" if place.exists else "nothing yet")]
        if place.exists:
            words += [f"{place.bytes / 1e6:,.2f} MB", place.mode]
        click.echo(visible(f"{'':<{width}}  {', '.join(filter(None, words))}"))
    click.echo()
    for finding in report.findings or ["All is whole, and nobody but you can read it."]:
        click.echo(visible(finding))
    return 1 if report.findings else 0
