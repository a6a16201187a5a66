"""The list of names in Django's admin: the holders of each name, with release and hold behind permissions."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path
from redis.exceptions import RedisError

from handfast import Handfast, HandfastError
from handfast._engine.names import NamePattern
from handfast._engine.validate import MAX_FENCE
from handfast._protocol.names import Search
from handfast._watch.acts import NO_VERSION, Done, Named, acting_as
from handfast._watch.faces import FACES
from handfast._watch.rows import Row, gathered
from handfast._watch.survey import rows_found
from handfast.arguments import Kind
from handfast.cli.operate.words import text_of
from handfast.contrib.django.clients import DEFAULT, aliases, client
from handfast.contrib.django.models import Name

__all__ = ["NameAdmin"]

MOST_ROWS = 200

LISTED = 3
"""Holders of a name that its row shows."""

HOLD_S = 3600.0
"""For how long a name is on hold, where the operator does not say it."""

MOST_HOLD_S = 366 * 86_400.0


class Chosen(NamedTuple):
    """A name chosen by an operator, as the list has shown it."""

    named: Named
    fence: int
    """Of the latest lease: later ones are not taken."""
    version: str
    """Of the hold or the pause; `NO_VERSION` if there was none."""


def _release(operator: Handfast, chosen: Chosen, reason: str, _: float) -> Done:
    if not chosen.fence:  # 0 would take what came since
        return Done(0)
    return chosen.named.release(operator, reason=reason, fence=chosen.fence)


def _hold(operator: Handfast, chosen: Chosen, reason: str, seconds: float) -> Done:
    if "pause" in FACES[chosen.named.kind].acts:
        return chosen.named.pause(operator, reason=reason, seconds=seconds)
    return chosen.named.hold(operator, reason=reason, seconds=seconds, version=chosen.version)


def _unhold(operator: Handfast, chosen: Chosen, reason: str, _: float) -> Done:
    if chosen.version == NO_VERSION:
        return Done(0)
    if "pause" in FACES[chosen.named.kind].acts:
        return chosen.named.resume(operator, reason=reason, version=chosen.version)
    return chosen.named.unhold(operator, reason=reason, version=chosen.version)


class Action(NamedTuple):
    """An operator's possible action on the chosen names."""

    label: str
    permission: str
    acts: frozenset[str]
    """It is for kinds with one of these acts."""
    done: str
    perform: Callable[[Handfast, Chosen, str, float], Done]


ACTIONS = {
    "release": Action("Release", "handfast.release_name", frozenset({"release"}), "was released", _release),
    "hold": Action("Put on hold", "handfast.hold_name", frozenset({"hold", "pause"}), "is on hold", _hold),
    "unhold": Action("End the hold", "handfast.hold_name", frozenset({"hold", "pause"}), "is on hold no more", _unhold),
}


@admin.register(Name)
class NameAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """Lists the names of the server. It has no pages but the list, and no rows in a database."""

    change_list_template = "admin/handfast/name/change_list.html"

    def has_add_permission(self, _: HttpRequest) -> bool:
        """No name is made here."""
        return False

    def get_urls(self) -> list[Any]:
        """Return the URL of the list."""
        return [path("", self.admin_site.admin_view(self.changelist_view), name="handfast_name_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, or perform the requested action and show it again.

        Parameters of the URL: ``q``, a pattern of names as in a shell, or a part of them; and ``alias``, of the settings.
        """
        alias = request.GET.get("alias", DEFAULT)
        if alias not in aliases():
            raise Http404(f"HANDFAST has no alias {alias!r}")
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self._act(request, client(alias))
            return HttpResponseRedirect(request.get_full_path())
        sought, rows, status = request.GET.get("q", "").strip(), list[Row](), 200
        try:
            rows = _found(client(alias), sought)
        except (HandfastError, RedisError, ValueError) as error:
            messages.error(request, str(error))
            status = 503
        shown = heapq.nsmallest(MOST_ROWS, rows, key=lambda row: (*row.facts.rank, row.name))
        context = {
            **self.admin_site.each_context(request),
            "title": "Names that are held or waited for",
            "opts": self.opts,
            "rows": map(_drawn, shown),
            "shown": len(shown),
            "is_known": status == 200,
            "count": len(rows),
            "sought": sought,
            "alias": alias,
            "aliases": [*aliases()],
            "actions": {word: one.label for word, one in ACTIONS.items() if request.user.has_perm(one.permission)},
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, self.change_list_template, context | (extra_context or {}), status=status)

    def _act(self, request: HttpRequest, server: Handfast) -> None:
        """Perform the action on each chosen name, and report each outcome."""
        action = ACTIONS.get(request.POST.get("action", ""))
        # The form shows permitted actions only, but a request may name any.
        if action is None or not request.user.has_perm(action.permission):
            raise PermissionDenied
        try:
            # All are read before the first act: a wrong text ends the request with nothing done.
            chosen = [_read(text) for text in request.POST.getlist("chosen")]
            reason, seconds = request.POST.get("reason", "").strip(), _seconds(request.POST.get("minutes", ""))
        except ValueError as error:
            messages.error(request, f"Nothing was done: {error}")
            return
        if not (chosen and reason):
            messages.error(request, f"Nothing was done: {'give a reason' if chosen else 'choose names'}.")
            return
        with acting_as(server, request.user.get_username()) as operator:
            for one in chosen:
                name = f"{one.named.kind} {one.named.shown}"
                # Each name by itself: an error at one of them does not hide what was done to the others.
                try:
                    done = action.perform(operator, one, reason, seconds)
                except ValueError as error:
                    messages.error(request, f"{name}: {error}")
                except (HandfastError, RedisError, OSError) as error:
                    messages.error(request, f"{name}: not known to be done: {error}")
                else:
                    if not done.taken:
                        messages.warning(request, f"{name}: there was nothing to do.")
                        continue
                    messages.success(request, f"{name} {done.text(action.done)}.")
                    self.log_change(request, Name(name), f"{action.label}: {reason}")


def _found(server: Handfast, sought: str) -> list[Row]:
    """Return the rows of names in use that contain a text or match a pattern."""
    pattern = sought if set(sought) & set("*?[") else f"*{sought}*"
    search = Search(NamePattern(server._namespace, pattern, get_args(Kind)), LISTED, keeps=False)  # noqa: SLF001 -- ours
    return gathered([row for row in rows_found(server, search, pattern) if not row.facts.is_idle])


class Drawn(NamedTuple):
    """A row, as the template has it."""

    kind: str
    name: str
    says: str
    holders: list[str]
    more: int
    stop: str
    value: str
    """Of the box with which it is chosen; empty where nothing can be done with it."""


def _drawn(row: Row) -> Drawn:
    facts, stop = row.facts, row.facts.stop
    value = json.dumps([row.kind, row.name, facts.fence, stop.version if stop else NO_VERSION])
    acts = {act for action in ACTIONS.values() for act in action.acts}
    return Drawn(
        kind=row.kind,
        name=text_of((row.name,), row.at),
        says=text_of(row.face.says(row, facts), row.at),
        holders=[holder.label for holder in facts.holders[:LISTED]],
        more=max(0, facts.holding - LISTED),
        stop=f"{stop.what} until {stop.clock}, by {stop.by}: {stop.why}" if stop else "",
        value=value if acts & {*row.face.acts} else "",
    )


def _read(text: str) -> Chosen:
    """Return a chosen name. Raises ValueError for a text missing from the list."""
    try:
        kind, name, fence, version = json.loads(text)
        if kind in get_args(Kind) and 0 <= fence <= MAX_FENCE and int(version) >= int(NO_VERSION):
            return Chosen(Named.of(kind, name), int(fence), version)
        raise ValueError(text)
    except (TypeError, ValueError):
        raise ValueError("a name was not chosen from the list") from None


def _seconds(minutes: str) -> float:
    """Return the seconds of a number of minutes. Raises ValueError."""
    try:
        seconds = float(minutes or HOLD_S / 60) * 60
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_HOLD_S:
        raise ValueError("minutes must be a number, above 0 and at most 366 days")
    return seconds
