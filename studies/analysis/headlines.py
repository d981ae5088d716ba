"""The results of a study in sentences: one per declared hypothesis, and who took part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from protometry.studies.analysis.names import (
    CONTROLS,
    FLAGS,
    FORMS,
    STATUSES,
    bare,
    is_pair,
    name_of,
    p_value,
    short,
    unit_of,
    with_interval,
)
from protometry.studies.analysis.results import default_test
from protometry.studies.study import Study
from protometry.studies.tasks import task_of

LEVEL = 0.05
Verdict = Literal["above", "below", "same", "equivalent", "undefined"]
Results = Mapping[str, Mapping[str, Any]]  # by arm or pair of arms, then by key, as in summary.json


@dataclass(frozen=True)
class Headline:
    """A tested result in words.

    Attributes:
        verdict: whether the value is above or below what it was tested against, the same as it (not detectably
            different), equivalent to it, or not tested.
    """

    text: str
    verdict: Verdict


def headlines(study: Study, results: Results) -> list[Headline]:
    """One sentence per declared hypothesis; without any, one per arm about its accuracy, not corrected."""
    names = study.quality.family or [f"{arm.id}/study/{study.task}_total" for arm in study.arms]
    return [headline(study, arm, key, results[arm][key]) for arm, _, key in (name.partition("/") for name in names)]


def headline(study: Study, arm: str, key: str, one: Mapping[str, Any]) -> Headline:
    """A tested result in words, with the corrected p value where there is one."""
    value = with_interval(one["value"], one["interval"], unit_of(key, arm))
    verdict, evidence = _verdict(one)
    if is_pair(arm):
        text = _difference(arm, value, one, verdict, evidence)
    elif short(key) == "understanding_change":
        text = _change(arm, value, one["details"], verdict, evidence)
    elif one["value"] is None:
        text = f"With {arm}, “{name_of(key).text}” is undefined: {evidence}"
    else:
        done = task_of(study.task, study.arm(arm).form).done
        text = _share(f"With {arm}, people {name_of(key).did.format(done=done, share=value)}", one, verdict, evidence)
    return Headline(f"{text}.", verdict)


def _verdict(one: Mapping[str, Any]) -> tuple[Verdict, str]:
    """The verdict with its p value, or with the reason why there is none."""
    details = one["details"]
    test, holm = default_test(details) or {}, details.get("holm_p")
    if "p" not in test:
        return "undefined", one["reason"] or test.get("reason", "")
    p = test["p"] if holm is None else holm
    evidence = f"{p_value(p)} {'without correction' if holm is None else 'after Holm'}"
    if p < LEVEL:
        return ("above" if test["t"] > 0 else "below"), evidence
    return ("equivalent" if details.get("equivalence_p", 1.0) < LEVEL else "same"), evidence


def _share(start: str, one: Mapping[str, Any], verdict: Verdict, evidence: str) -> str:
    guessing = f"the {100 * one['details']['chance']:.0f} % of guessing"
    if verdict == "undefined":
        return f"{start}; this cannot be tested against {guessing}: {evidence}"
    if verdict == "same":
        return f"{start}, not detectably different from {guessing} ({evidence}); {_could(one['details'], 'points')}"
    return f"{start}, {verdict} {guessing} ({evidence})"


def _difference(arm: str, value: str, one: Mapping[str, Any], verdict: Verdict, evidence: str) -> str:
    (first, second), details = arm.split(" - "), one["details"]
    if verdict == "undefined":
        number = "" if one["value"] is None else f" of {value}"
        return f"The difference{number} between {first} and {second} cannot be tested: {evidence}"
    margin, p = f"{100 * details['margin']:g} points", details["equivalence_p"]
    equivalent = f"; the difference is smaller than {margin} ({p_value(p)} in the test of equivalence)"
    if verdict == "equivalent":
        start = f"Between {first} and {second}, the difference is smaller than {margin}"
        return f"{start}: {value}, {p_value(p)} in the test of equivalence"
    if verdict == "same":
        nothing = f"No difference between {first} and {second} is detectable"
        return f"{nothing}: {value}, {evidence}; {_could(details, 'points')}"
    more = "more" if verdict == "above" else "less"
    text = f"With {first}, people are right {more} often than with {second}: {value}, {evidence}"
    return text + equivalent if p < LEVEL else text


def _change(arm: str, value: str, details: Mapping[str, Any], verdict: Verdict, evidence: str) -> str:
    start = f"With {arm}, people's rating of their understanding"
    if verdict == "undefined":
        return f"{start} before and after they saw their result cannot be compared: {evidence}"
    if verdict == "same":
        start = f"{start} did not change detectably when they saw their result: {value} of 5, {evidence}"
        return f"{start}; {_could(details, '')}"
    return f"{start} {'rose' if verdict == 'above' else 'fell'} when they saw their result: {value} of 5, {evidence}"


def _could(details: Mapping[str, Any], unit: str) -> str:
    effect = details["detectable"]
    size = f"{100 * effect:.0f} points" if unit else f"{bare(effect, '')} of 5"
    return f"the study could have found {size}"


def arms(study: Study, results: Results) -> list[str]:
    """What was compared: what each arm shows, of which model, to how many people."""
    return [
        f"{arm.id} ({FORMS[arm.form]}{CONTROLS[arm.control or 'none']}; {arm.origin.get('model', 'model')}, "
        f"{arm.accuracy:g} % accurate; n = {results[arm.id][f'study/{study.task}_total']['n']})"
        for arm in study.arms
    ]


def people(summary: Mapping[str, Any]) -> list[str]:
    """How many took part, finished, and were excluded and why, in sentences."""
    some = summary["participants"]
    status, flags, excluded = some["status"], some["flags"], some["analysed"] - some["kept"]
    came = ", ".join(f"{status[name]} {words}" for name, words in STATUSES.items() if name in status)
    sentences = [f"{sum(status.values())} came: {came}." if came else "Nobody took part."]
    if some.get("simulated"):
        sentences.append(f"{some['simulated']} of them are simulated, not people.")
    leading = {name: number for name, number in flags.items() if name in summary["exclude"]}
    if excluded:
        sentences.append(
            f"Of those who finished, {excluded} were excluded by the declared rules ({_flagged(leading)})."
        )
    elif summary["exclude"]:
        sentences.append("Nobody was excluded by the declared rules.")
    else:
        sentences.append("No rule for exclusion was declared.")
    if others := {name: number for name, number in flags.items() if name not in leading}:
        sentences.append(f"Noted, but no reason for exclusion: {_flagged(others)}.")
    return sentences


def _flagged(flags: Mapping[str, int]) -> str:
    return ", ".join(f"{flags[name]} {words}" for name, words in FLAGS.items() if name in flags)
