"""report.html: a finished job on one page, without anything from elsewhere."""

import jinja2

from batchrunner.output.summary import JobSummary

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{ s.name }}</title>
<style>
 body { font: 15px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
 table { border-collapse: collapse; margin: 1rem 0 }
 td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top }
 td.n { text-align: right; font-variant-numeric: tabular-nums } .bar { background: #eee; height: 1rem; width: 100% }
 .bar div { background: {{ "#2a7d4f" if not s.num_failed else "#c8811a" }}; height: 100%; width: {{ answered }}% }
 code { background: #f4f4f4; padding: 0 .2rem }
</style>
<h1>{{ s.name }}</h1>
<p><code>{{ s.output }}</code></p>
<div class="bar" title="{{ answered }} % answered"><div></div></div>
<table>
 <tr><td>rows<td class="n">{{ "{:,}".format(s.num_rows) }}
 <tr><td>answered<td class="n">{{ "{:,}".format(s.num_answered) }}
 <tr><td>failed<td class="n">{{ "{:,}".format(s.num_failed) }}
 <tr><td>prompt tokens<td class="n">{{ "{:,}".format(s.num_prompt_tokens) }}
 <tr><td>of these found in the prefix cache<td class="n">{{ "{:,}".format(s.num_cached_tokens) }}
 <tr><td>output tokens<td class="n">{{ "{:,}".format(s.num_output_tokens) }}
 <tr><td>tokens computed in the last run<td class="n">{{ "{:,}".format(s.run.num_computed_tokens) }}
 <tr><td>memory in the last run<td>{{ s.run.about_memory }}
 <tr><td>seconds of the last run<td class="n">{{ "{:,.1f}".format(s.run.seconds) }}
 <tr><td>computed by<td>{{ s.run.kernels }}
</table>
{% if s.errors %}<h2>Failed rows</h2>
<table><tr><th>kind<th>rows<th>first one
{% for kind, count in s.errors.items() %}
 <tr><td>{{ kind }}<td class="n">{{ "{:,}".format(count) }}<td>{{ s.example_errors[kind] }}
{% endfor %}</table>{% endif %}
<h2>How the answers ended</h2>
<table>{% for reason, count in s.finish_reasons.items() %} <tr><td>{{ reason }}<td class="n">{{ "{:,}".format(count) }}
{% endfor %}</table>
</html>
"""


def render_report(summary: JobSummary) -> str:
    answered = round(100 * summary.num_answered / summary.num_rows, 1) if summary.num_rows else 100
    environment = jinja2.Environment(autoescape=True)
    return environment.from_string(_PAGE).render(s=summary, answered=answered)
