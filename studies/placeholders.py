"""Placeholders of the example files that have to be filled in before a study starts."""

from __future__ import annotations

import re

from protometry.studies.bundle import Bundle

CONSENT = re.compile(r"\b(?:NAME|INSTITUTION|COMMITTEE|NUMBER|ADDRESS)\b")  # of configs/study/consent.md
CODE = "FILL-IN"  # a completion code of configs/study/cub200.yaml


def placeholders(bundle: Bundle) -> str:
    """Which files still hold which words of the example, as one line; empty if none do.

    Example:
        >>> from types import SimpleNamespace as Some
        >>> study = Some(platform=Some(completed="C1", screened="C2"))
        >>> placeholders(Some(folder="birds", consent="Done by NAME. Write to NAME, ADDRESS.", study=study))
        'birds/consent.md still has NAME, ADDRESS of the example'
    """
    places = []
    if words := dict.fromkeys(CONSENT.findall(bundle.consent)):
        places.append(f"{bundle.folder}/consent.md still has {', '.join(words)} of the example")
    codes = [name for name in ("completed", "screened") if getattr(bundle.study.platform, name) == CODE]
    if codes:
        names = " and ".join(f"platform.{name}" for name in codes)
        places.append(f"{bundle.folder}/study.json still has {CODE} as {names}")
    return "; ".join(places)
