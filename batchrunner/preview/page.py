"""A plan as one HTML page: no scripts, nothing from elsewhere, every text escaped."""

from pathlib import Path

import jinja2

from batchrunner.forecast.duration import time_text
from batchrunner.preview import shapes
from batchrunner.preview.figures import JobFilePlan
from batchrunner.preview.wording import change_text

TEMPLATE = Path(__file__).with_name("page.html")
MOST_PREFIXES = 10


def render_page(plan: JobFilePlan, title: str) -> str:
    """title: the job file, as the user named it."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "number": "{:,}".format,
        "share": "{:.1%}".format,
        "place": "{:.2f}".format,
        "time": time_text,
    }
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        plan=plan,
        forecast=plan.forecast,
        title=title,
        shapes=shapes,
        change=change_text,
        num_rows=sum(job.num_rows for job in plan.jobs),
        num_will_fail=sum(job.num_will_fail for job in plan.jobs),
        widest=max((job.num_tokens_given for job in plan.jobs), default=0),
        most_prefixes=MOST_PREFIXES,
    )
