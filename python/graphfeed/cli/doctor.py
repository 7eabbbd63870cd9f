# SPDX-License-Identifier: Apache-2.0
"""``graphfeed doctor``: whether graphfeed can do its job here, what is missing, what mends it."""

from rich.text import Text

import graphfeed
from graphfeed.cli.findings import FAULT, NOTE, OK, Finding, look
from graphfeed.cli.options import Json
from graphfeed.cli.terminal import print_json, print_table


def doctor(as_json: Json = False) -> int:
    """Say what this machine has for graphfeed, and the command that mends what is missing.

    Exit status 1 where there is a GPU and graphfeed cannot work on it.
    """
    findings = look()
    works = not any(finding.status == FAULT for finding in findings)
    if as_json:
        print_json(
            {
                "version": graphfeed.__version__,
                "works": works,
                "gpus": _num_gpus(findings),
                "findings": [vars(finding) for finding in findings],
            }
        )
    else:
        _show(findings)
        print(_verdict(findings, works))
    return 0 if works else 1


def _show(findings: list[Finding]) -> None:
    styles = {OK: "green", NOTE: "yellow", FAULT: "bold red"}
    rows = []
    for finding in findings:
        text = Text(finding.text)
        if finding.remedy is not None:
            text.append(f"\n$ {finding.remedy}", style="bold")
        rows.append((Text(finding.status, style=styles[finding.status]), finding.part, text))
    print_table({"status": "left", "part": "left", "found": "left"}, rows, headed=False)


def _num_gpus(findings: list[Finding]) -> int:
    return sum(finding.part.startswith("cuda:") for finding in findings)


def _verdict(findings: list[Finding], works: bool) -> str:
    name, gpus = f"graphfeed {graphfeed.__version__}", _num_gpus(findings)
    if not works:
        faults = [finding.part for finding in findings if finding.status == FAULT]
        return f"{name} cannot work on this machine's GPU: {', '.join(faults)}"
    if gpus == 0:
        return f"{name} works on CPU tensors; there is no GPU"
    return f"{name} works on {gpus} GPU{'s' if gpus > 1 else ''} and on CPU tensors"
