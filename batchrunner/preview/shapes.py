"""Where the bars, labels and marks of the page's pictures stand, in units of the picture; y grows downwards."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchrunner.forecast.duration import Duration
from batchrunner.preview.figures import Forecast, JobFigures
from batchrunner.preview.histogram import Histogram

MOST_STEPS = 5  # between labels: six numbers of seven digits fit


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle. kind: the class that colours it. hint: what it says when pointed at."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    hint: str


@dataclass(frozen=True, slots=True)
class Label:
    """Text around x. anchor: which of its points is at x, as SVG names it: start, middle, end."""

    x: float
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class DurationMarks:
    """Positions on an axis that begins with no time at all."""

    low: float
    expected: float
    high: float


def histogram_bars(histogram: Histogram, width: float, height: float) -> list[Bar]:
    """One a bin, equally wide even where the bins are not. The fullest is as high as the picture."""
    step = width / len(histogram.counts)
    highest = max(1, *histogram.counts)
    bars = []
    for index, num_values in enumerate(histogram.counts):
        tall = height * num_values / highest
        first, last = histogram.edges[index], histogram.edges[index + 1] - 1
        span = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        hint = f"{span} tokens: {num_values:,}"
        bars.append(Bar(index * step, height - tall, step - min(2.0, step / 4), tall, "value", hint))
    return bars


def histogram_labels(histogram: Histogram, width: float) -> list[Label]:
    """Some of the edges, at equal distances. A bin of one value has it under its middle."""
    num_bins = len(histogram.counts)
    step = -(-num_bins // MOST_STEPS)
    bin_width = width / num_bins
    labels = []
    for index in range(0, num_bins, step):
        is_one_value = histogram.edges[index] + 1 == histogram.edges[index + 1]
        x = (index + 0.5 if is_one_value else index) * bin_width
        labels.append(Label(x, f"{histogram.edges[index]:,}", "start" if x == 0 else "middle"))
    last_is_one_value = histogram.edges[-2] + 1 == histogram.edges[-1]
    if num_bins % step == 0 and not last_is_one_value:
        labels.append(Label(width, f"{histogram.edges[-1]:,}", "end"))
    return labels


def prompt_bars(job: JobFigures, widest: int, width: float, height: float) -> list[Bar]:
    """The tokens given, by what becomes of them. widest: the tokens that fill the width, of the largest job."""
    parts = {
        "computed": job.num_tokens_to_compute,
        "shared": job.num_prompt_tokens - job.num_tokens_to_compute,
        "duplicate": job.num_tokens_given - job.num_prompt_tokens,
    }
    return _side_by_side(parts, widest, width, height)


def memory_bars(forecast: Forecast, width: float, height: float) -> list[Bar]:
    """The pool at the run's fullest moment."""
    parts = {"held": forecast.peak_kv_tokens, "free": max(0, forecast.num_kv_tokens - forecast.peak_kv_tokens)}
    return _side_by_side(parts, sum(parts.values()), width, height)


def saved_bar(num_saved_tokens: int, most_saved: int, width: float, height: float) -> list[Bar]:
    return _side_by_side({"shared": num_saved_tokens}, most_saved, width, height)


def duration_marks(duration: Duration, width: float) -> DurationMarks:
    scale = width / max(duration.high_seconds, duration.seconds) if duration.seconds else 0.0
    return DurationMarks(duration.low_seconds * scale, duration.seconds * scale, duration.high_seconds * scale)


def _side_by_side(parts: Mapping[str, int], whole: int, width: float, height: float) -> list[Bar]:
    """parts: tokens by kind, from left to right."""
    bars = []
    x = 0.0
    for kind, num_tokens in parts.items():
        wide = width * num_tokens / max(1, whole)
        bars.append(Bar(x, 0, wide, height, kind, f"{num_tokens:,} tokens {kind}"))
        x += wide
    return bars
