"""The adapter of Django, with a database in memory."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from handfast import AsyncHandfast, Handfast, LeaseLost

pytestmark = pytest.mark.usefixtures("django", "raw")


@pytest.fixture
def shop(django, raw):
    """The client of the settings, and an HTTP client. Both clients end with the test."""
    from django.test import Client

    from handfast.contrib.django import client

    yield client(), Client()
    end(client())


def end(*clients):
    """Close clients of the settings. They would be opened again by ``with``; here others are made."""
    from handfast.contrib.django import clients as made

    made._MADE.clear()
    for one in clients:
        one.close()


def test_a_view_holds_a_lock_around_its_transaction(shop):
    hf, http = shop
    assert http.get("/7").content == b"True True"
    assert not hf.lock("order:7").locked()
    with hf.lock("order:7"):
        busy = http.get("/7")
        assert (busy.status_code, busy.headers["Retry-After"]) == (423, "1")
        assert http.get("/8").status_code == 200
    with pytest.raises(RuntimeError, match=r"within a transaction of the database 'default'.*before the commit"):
        http.get("/inside")


def test_a_view_whose_lock_was_lost_commits_nothing(shop):
    from django.contrib.contenttypes.models import ContentType
    from django.core.management import call_command

    _, http = shop
    call_command("migrate", verbosity=0)
    with pytest.raises(LeaseLost, match="INC-1"):
        http.get("/loses")
    assert not ContentType.objects.filter(app_label="shop").exists()
    call_command("migrate", "contenttypes", "zero", verbosity=0)


def test_a_view_in_a_test_case_is_no_view_in_a_transaction(shop):
    from django.test import TestCase

    _, http = shop
    found = []

    class Case(TestCase):
        def test(self):
            found.append(http.get("/7").status_code)

    case = Case("test")
    case.debug()
    assert found == [200]


async def test_an_async_view_holds_a_lock(django, raw):
    from django.test import AsyncClient

    from handfast.contrib.django import async_client

    hf, http = async_client(), AsyncClient()
    assert (await http.get("/async/7")).content == b"paid"
    async with hf.lock("order:7"):
        assert (await http.get("/async/7")).status_code == 409
    await hf.aclose()
    end()


def test_a_view_with_a_bad_name_is_refused_where_it_is_defined():
    from handfast.contrib.django import locked

    with pytest.raises(ValueError, match="'order'"):
        locked("order:{order}")(lambda order_id: order_id)
    with pytest.raises(TypeError):
        locked("a", timeout="x")


def test_there_is_a_client_for_each_alias(shop, server):
    from django.test import override_settings

    from handfast.contrib.django import async_client, client

    hf, _ = shop
    assert client() is client("default") is hf
    assert isinstance(hf, Handfast)
    assert isinstance(async_client(), AsyncHandfast)
    assert "namespace 'shop'" in repr(hf)
    cached = client("cached")
    assert server.url in repr(cached)
    assert "namespace 'hf'" in repr(cached)
    cached.close()
    with override_settings(HANDFAST={"default": {"URL": "null:"}}):
        assert "null:" in repr(client())
    assert "null:" not in repr(client())
    end(client())


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ([], "must be a mapping"),
        ({"default": "redis://a"}, "must be a mapping"),
        ({"default": {"URI": "redis://a"}}, "unknown 'URI'"),
        ({"default": {"URL": "redis://a", "CACHE": "default"}}, "give one of them"),
        ({"default": {"CACHE": "other"}}, "which CACHES has not"),
        ({"default": {"URL": "http://a"}}, "'default'"),
        ({"default": {"URL": "redis://a", "OPTIONS": {"port": 1}}}, "'port'"),
        ({"default": {"URL": "redis://a", "NAMESPACE": ""}}, "namespace"),
    ],
)
def test_a_setting_that_is_wrong_is_found_by_the_checks(setting, why):
    from django.core.checks import run_checks
    from django.test import override_settings

    with override_settings(HANDFAST=setting):
        (found,) = run_checks(tags=["handfast"])
    assert found.id == "handfast.E001"
    assert why in found.msg


def test_the_server_is_checked_where_it_is_deployed(shop, raw):
    from django.core.checks import run_checks
    from django.test import override_settings

    assert run_checks(tags=["handfast"]) == []
    found = run_checks(tags=["handfast"], include_deployment_checks=True)
    assert {one.id for one in found} == {"handfast.W001"}  # there is no append-only file
    with override_settings(HANDFAST={"default": {"URL": "unix:///nowhere/s", "OPTIONS": {"retry_for": 0}}}):
        (away,) = run_checks(tags=["handfast"], include_deployment_checks=True)
    assert away.id == "handfast.W002"


def test_a_command_runs_once_at_a_time(shop):
    from django.core.management import CommandError, call_command

    from handfast.contrib.django import SingleRunCommand

    hf, _ = shop

    class Command(SingleRunCommand):
        lock_name = "close-month"

        def handle(self, **_):
            assert hf.lock("close-month").locked()
            return str(self.lease.fence > 0)

    class Skipped(Command):
        busy = "skip"

    class Waiting(Command):
        busy, timeout = "wait", 30

    assert call_command(Command()) == "True"
    with ThreadPoolExecutor(1) as pool:
        with hf.lock("close-month"):
            with pytest.raises(CommandError, match="It does not run: 'close-month' is not free: "):
                call_command(Command())
            said = io.StringIO()
            assert call_command(Skipped(), stdout=said) is None
            assert said.getvalue().startswith("It is skipped: ")
            waiting = pool.submit(call_command, Waiting())
            while not hf.lock("close-month").status().waiting:
                pass
        assert waiting.result(30) == "True"
    assert not hf.lock("close-month").locked()
    hf.hold("close-month", 60, kind="lock", reason="INC-1")
    with pytest.raises(CommandError, match=r"It does not run: .* on hold until .*: INC-1"):
        call_command(Command())
    hf.unhold("close-month", kind="lock")


def test_a_database_is_migrated_by_one_and_the_next_one_takes_no_lock(shop):
    from django.core.management import CommandError, call_command
    from django.db import connection

    hf, _ = shop
    with hf.lock("migrate:default"), pytest.raises(CommandError, match="Nothing was migrated within 0 s"):
        call_command("migrate_once", timeout=0)
    said = io.StringIO()
    call_command("migrate_once", stdout=said)
    assert "django_content_type" in connection.introspection.table_names()
    with hf.lock("migrate:default"):
        call_command("migrate_once", stdout=said)
    assert said.getvalue().endswith("Nothing is to be migrated.\n")


def test_the_command_has_the_server_and_the_namespace_of_the_settings(shop, capsys):
    from handfast.contrib.django.management.commands.handfast import Command

    hf, _ = shop
    with hf.lock("order:7"), pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "handfast", "ls", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["name"] == "order:7"
    with pytest.raises(SystemExit):
        Command().run_from_argv(["manage.py", "handfast", "--help"])
    assert "Usage: manage.py handfast " in capsys.readouterr().out


def test_a_decorator_that_cannot_answer_or_has_no_name_is_refused(django):
    from django.utils.decorators import method_decorator
    from django.views import View

    from handfast.contrib.django import locked

    with pytest.raises(ValueError, match="busy, the status of the answer"):
        locked("a", busy=200)
    with pytest.raises(TypeError, match="busy, the status of the answer"):
        locked("a", busy=None)
    with pytest.raises(TypeError, match="needs a name"):
        locked(lambda request: request)
    with pytest.raises(ValueError, match="has the field 'order_id'") as refused:

        @method_decorator(locked("order:{order_id}"), name="get")
        class Orders(View):
            def get(self, request, order_id): ...

    assert refused.value.__notes__ == ["In a class-based view decorate the method itself, without method_decorator()."]
