"""The fixtures of the scripts are those of the gate."""

from tests.gate.lua.conftest import *  # noqa: F403
