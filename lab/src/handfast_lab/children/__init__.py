"""Child processes of trials and tests: `group` starts and forks them, `child` has the two ends of the pipe to one."""

from __future__ import annotations

from handfast_lab.children.child import ChildProcess, Parent, ProcessFailed, Report
from handfast_lab.children.group import ProcessGroup, run_in_subprocess

__all__ = ["ChildProcess", "Parent", "ProcessFailed", "ProcessGroup", "Report", "run_in_subprocess"]
