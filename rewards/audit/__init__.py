"""Audit a reward function: find answers that it pays and should not, or does not pay and should.

>>> from rewards.audit import audit
>>> def last_number(response, gold):
...     return float(response.rstrip("</answer>").endswith(gold))
>>> report = audit(last_number)
>>> report.ok, "negation: not 42" in [finding.probe for finding in report.findings]
(False, True)
"""

from rewards.audit.probes import PROBES, Probe
from rewards.audit.run import Finding, Report, audit, score_each

__all__ = ["PROBES", "Finding", "Probe", "Report", "audit", "score_each"]
