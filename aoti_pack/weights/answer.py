"""Waiting for the server's answer to a push: its status file, its metrics, or both."""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aoti_pack.errors import UserError
from aoti_pack.weights.files import Pointer, ServerStatus

_PERIOD_S = 0.05  # how often the status file is read
_METRICS_PERIOD_S = 0.5  # how often the server is asked for its metrics
_METRICS_TIMEOUT_S = 5.0
_SAMPLE = re.compile(r"(aoti_weights_\w+)\{(.*)\}\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Metrics:
    """What a server's metrics say about the weights of one version of a model."""

    version: int
    failures: int


def read_metrics(url: str, model: str, version: int) -> Metrics | None:
    """The metrics at `url` about `model`; None where the server has none of it. UserError when it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=_METRICS_TIMEOUT_S) as answer:
            text = answer.read().decode(errors="replace")
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise UserError(
            f"the metrics at {url} cannot be read: {error}",
            mend="give the server's, such as http://HOST:8002/metrics",
        ) from None
    found = {
        name: int(float(value))
        for name, labels, value in _SAMPLE.findall(text)
        if dict(_LABEL.findall(labels)) == {"model": model, "version": str(version)}
    }
    if "aoti_weights_version" not in found:
        return None
    return Metrics(found["aoti_weights_version"], found.get("aoti_weights_push_failures", 0))


@dataclass(frozen=True)
class Answer:
    """`state` is `swapped`, `refused`, or `unanswered` when no server told in time."""

    state: str
    message: str


def await_answer(
    folder: Path,
    pointer: Pointer,
    metrics: Callable[[], Metrics | None] | None,
    before: Metrics | None,
    timeout_s: float,
) -> Answer:
    """Wait up to `timeout_s` seconds for a server to answer `pointer` in `folder`.

    With `metrics` (and their values `before` the push), they count as an answer where the status file is silent.
    """
    end = time.monotonic() + timeout_s
    next_metrics = 0.0
    while True:
        status = ServerStatus.load(folder)
        if status and (status.version, status.sha256) == (pointer.version, pointer.sha256):
            return Answer(status.state, status.message)
        now = time.monotonic()
        if metrics is not None and now >= next_metrics:
            next_metrics = now + _METRICS_PERIOD_S
            told = _by_metrics(pointer, metrics(), before)
            if told is not None:
                return told
        if now >= end:
            return Answer("unanswered", "")
        time.sleep(min(_PERIOD_S, end - now))


def _by_metrics(pointer: Pointer, now: Metrics | None, before: Metrics | None) -> Answer | None:
    if now is None:
        return None
    if now.version == pointer.version:
        return Answer("swapped", "told by the server's metrics")
    if now.failures > (before.failures if before else 0):
        return Answer("refused", "told by the server's metrics alone: its log says why")
    return None
