"""The list of names in Django's admin."""

from __future__ import annotations

import re
from html import unescape

import pytest

from handfast import AcquireTimeout, LeaseLost
from tests.deep.frameworks.test_django import shop  # noqa: F401 -- a fixture

pytestmark = pytest.mark.usefixtures("django", "raw")

URL = "/admin/handfast/name/"


@pytest.fixture
def operator(shop):  # noqa: F811 -- it is that fixture
    """Return a function that makes a user with permissions and returns an HTTP client of it."""
    from django.contrib.auth.models import Permission, User
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0)

    def login(*permissions):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        http = Client()
        http.force_login(user)
        return http

    yield login
    User.objects.all().delete()
    for app in ("admin", "auth", "contenttypes", "handfast", "sessions"):
        call_command("migrate", app, "zero", verbosity=0)


def boxes(page):
    return [unescape(value) for value in re.findall(r'name="chosen" value="([^"]*)"', page.content.decode())]


def test_an_operator_releases_and_holds_what_the_list_has_shown(shop, operator):  # noqa: F811
    from django.contrib.admin.models import LogEntry

    hf, _ = shop
    http = operator("view_name", "release_name", "hold_name")
    with hf.lock("order:7").acquire(), pytest.raises(LeaseLost) as lost, hf.lock("<b>") as lease:
        page = http.get(URL, {"q": "<b"})
        assert "&lt;b&gt;" in page.content.decode()
        assert "order:7" not in page.content.decode()
        acted = http.post(URL, {"action": "release", "chosen": boxes(page), "reason": "hangs"}, follow=True)
        assert "Lock &lt;b&gt; was released." in acted.content.decode()
        lease.check()
    assert (lost.value.name, hf.audit()[-1].by, hf.audit()[-1].why) == ("<b>", "ann", "hangs")
    assert [str(entry) for entry in LogEntry.objects.all()] == ["Changed “lock <b>” — Release: hangs"]

    with hf.lock("a"):
        chosen = boxes(http.get(URL))
        http.post(URL, {"action": "hold", "chosen": chosen, "reason": "INC-1", "minutes": "5"})
    with pytest.raises(AcquireTimeout, match="INC-1"):
        hf.lock("a").acquire(timeout=0)
    stale = http.post(URL, {"action": "hold", "chosen": chosen, "reason": "INC-2"}, follow=True).content.decode()
    assert "Lock a: nothing was done: it is not what was shown" in stale
    assert "on hold until" in stale
    http.post(URL, {"action": "unhold", "chosen": boxes(http.get(URL)), "reason": "over"})
    hf.lock("a").acquire(timeout=0).release()


def test_a_lease_that_came_after_the_list_is_not_taken(shop, operator):  # noqa: F811
    hf, _ = shop
    http = operator("view_name", "release_name")
    with hf.lock("a"):
        chosen = boxes(http.get(URL))
    with hf.lock("a") as lease:
        said = http.post(URL, {"action": "release", "chosen": chosen, "reason": "hangs"}, follow=True).content.decode()
        assert "Lock a: there was nothing to do." in said
        lease.check()


def test_a_limiter_is_paused_and_what_cannot_be_held_has_no_box(shop, operator):  # noqa: F811
    hf, _ = shop
    http = operator("view_name", "hold_name")
    hf.limiter("login", "5/h").acquire()
    hf.latch("parts", 2).done("one")
    page = http.get(URL)
    assert [box.split('"')[1] for box in boxes(page)] == ["limiter"]
    assert "parts" in page.content.decode()
    http.post(URL, {"action": "hold", "chosen": boxes(page), "reason": "INC-1", "minutes": "1"})
    assert not hf.limiter("login", "5/h").try_acquire()
    http.post(URL, {"action": "unhold", "chosen": boxes(http.get(URL)), "reason": "over"})
    assert hf.limiter("login", "5/h").try_acquire()


@pytest.mark.parametrize(
    ("permissions", "seen", "offered"),
    [
        ((), 403, []),
        (("view_name",), 200, []),
        (("view_name", "release_name"), 200, ["release"]),
        (("view_name", "hold_name"), 200, ["hold", "unhold"]),
    ],
)
def test_a_user_sees_and_does_only_what_it_may(shop, operator, permissions, seen, offered):  # noqa: F811
    hf, _ = shop
    http = operator(*permissions)
    with hf.lock("a") as lease:
        page = http.get(URL)
        assert page.status_code == seen
        assert re.findall(r'<option value="(\w+)">', page.content.decode()) == offered
        value = f'["lock", "a", {lease.fence}, "0"]'
        for action in {"release", "hold", "unhold", "forget"} - set(offered):
            assert http.post(URL, {"action": action, "chosen": value, "reason": "x"}).status_code == 403
        lease.check()
        assert hf.lock("a").status().hold is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reason": " "}, "give a reason"),
        ({"chosen": []}, "choose names"),
        ({"chosen": "x"}, "not chosen from the list"),
        ({"chosen": '["lock", "a", -1, "0"]'}, "not chosen from the list"),
        ({"chosen": '["lok", "a", 1, "0"]'}, "not chosen from the list"),
        ({"chosen": '["lock", "a", 1]'}, "not chosen from the list"),
        ({"minutes": "0"}, "minutes must be a number"),
        ({"minutes": "nan"}, "minutes must be a number"),
        ({"minutes": "x"}, "minutes must be a number"),
        ({"reason": "x" * 1001}, "at most 1000 bytes"),
    ],
)
def test_what_is_not_as_the_list_has_it_is_refused(shop, operator, changed, said):  # noqa: F811
    hf, _ = shop
    http = operator("view_name", "hold_name")
    asked = {"action": "hold", "chosen": '["lock", "a", 1, "0"]', "reason": "x", "minutes": "1"} | changed
    assert said in http.post(URL, asked, follow=True).content.decode()
    assert hf.lock("a").status().hold is None


def test_an_outage_is_said_and_other_aliases_have_lists_of_their_own(shop, operator):  # noqa: F811
    from django.test import override_settings

    http = operator("view_name")
    assert http.get(URL, {"alias": "none"}).status_code == 404
    assert http.get(URL, {"alias": "cached"}).status_code == 200
    away = {"default": {"URL": "unix:///none", "OPTIONS": {"retry_for": 0}}}
    with override_settings(HANDFAST=away):
        page = http.get(URL)
        assert (page.status_code, "/none" in page.content.decode()) == (503, True)


def test_a_page_without_the_token_of_the_form_does_nothing(shop, operator):  # noqa: F811
    from django.test import Client

    http = Client(enforce_csrf_checks=True)
    http.cookies = operator("view_name", "hold_name").cookies
    asked = {"action": "hold", "chosen": '["lock", "a", 1, "0"]', "reason": "x"}
    assert http.post(URL, asked).status_code == 403


def test_the_setting_of_the_model_is_that_of_its_migration(operator):
    from django.core.management import call_command

    call_command("makemigrations", "handfast", check=True, dry_run=True, verbosity=0)
