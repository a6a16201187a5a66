"""What is Lua and what is not: the linter says the same as a real server, which compiles it."""

from __future__ import annotations

import pytest
import redis

from handfast_lint import RULES, check
from handfast_lint.memo import Memo
from tests.gate.lint.test_lint import scripts

REFUSED = r"""
return 1 +
return 1,
return 1;;
return 1 return 2
return a.b.
return a or
return 1..2
return 1LL
return 1or 2
return 0x
#return 1
 #return 1
return 0b1
return !a
return $x
return 'abc
return [[unclosed
return "a" "b" 'c' 1
return function() return ... end
return 2 & 1
return 7 // 2
return 1 << 2
return ~1
--[[ unclosed
x = = 1
x++
x += 1
x = 'it''s'
x = a ? 1 : 2
x = a && b
foo bar
f(
f)
f(function() end
f() = 3
a, f() = 1, 2
'x'
1
x.y
;
;;
x = 1;;
break
goto done
::done::
else
elseif x then
continue
try: x
import x
var x = 1
// comment
local 1x = 2
local x <const> = 1
local x = @
global count
global function f() end
local end = 1
local a.b = 1
local x = if a then 1 end
local t = {a = 1 b = 2}
local function f( return end
local function a.b() end
local function f(..., a) end
local function f(... a) end
local function f(a, 1) end
local function f() return 1 end end
if x then
if a = 1 then end
if a != b then end
if x then else else end
if x then else elseif y then end
if a then b() else if c then d() end
while a do
for k, v = pairs(t) do end
for i = 1, 2 do if i then b() end
for i = 1, 3 do break; f() end
while true do (function() break end)() end
redis.call('GET' KEYS[1])
local s = "two¶lines"
local f = g¶(1)
local x = {1, 2¶return x
foo()¶end¶bar()
"""

TAKEN = r"""
return
return;
return nil, true, false, ...
return function(...) return ... end
return 1e5, .5, 5., 0xff, 3e-2, 0x1p4
return ('a'):rep(3), #KEYS ^ 2, not not 1, - -1, -x^2, a ~= b
return [==[a]]b]==], '\65', "\\\n", 'a\\\'b'
return '[^\.]+', "\%d \s", '\i', "\]]"
return {1; 2, 3, x = 4, [5] = 6}
return --[[x]] 1 -- y
return --[=[ x ]] ]=] 1
local x; local y
x = 1; y = 2;
(f)(1)
f'x' f{...} f[[x]]
a.b['c'](1)
a:b().c = 3
a.b, c[1] = 1, 2
function a.b:c() end
local function f(a, ...) end
do return 1 end return 2
local global = {global = 1} global.x = global(1)
return {1, f¶(2)}
do end
repeat break until x
if a then elseif b then else end
if x then return; end
for i = 1, 3 do break; end
for i = 3, 1, -1 do if i then break else f() end end
for k in pairs(t) do end
local f = g;¶(f)(1)
local s = "two\¶lines"
#!lua¶return 1
"""


def lines(text):
    """The scripts of a list, one a line; a ¶ is a new line within one."""
    return [line.replace("¶", "\n") for line in text.strip().split("\n")]


def is_taken(raw, source):
    """Whether the server compiles it."""
    try:
        raw.script_load(source)
    except redis.ResponseError as error:
        if "compiling script" not in str(error):
            raise
        return False
    return True


def rules_of(source):
    return [finding.rule for finding in check(source)]


@pytest.mark.parametrize("source", lines(REFUSED))
def test_syntax_that_a_server_refuses_is_found(raw, source):
    assert not is_taken(raw, source)
    found = check(source)
    assert {finding.rule for finding in found} == {"syntax"}
    assert all(1 <= finding.line <= source.count("\n") + 1 for finding in found)


@pytest.mark.parametrize("source", lines(TAKEN))
def test_syntax_that_a_server_accepts_has_no_findings(raw, source):
    if not source.startswith("#!"):  # the oldest know no such line
        assert is_taken(raw, source)
    assert "syntax" not in rules_of(source)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("syntax", "too-new")])
def test_cases_of_the_other_rules_are_valid_lua(raw, rule):
    for title, source in scripts(rule):
        assert is_taken(raw, source), title


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("if a then\n  b()\n", 1, "this 'if' is never closed: its 'end' is missing"),
        ("f(\n  {1, 2)\n", 2, "this '{' is not closed: '}' is missing before line 2"),
        ("f()\nend\n", 2, "this 'end' closes nothing"),
        ("if a then b()\nelse if c then d() end", 1, "'else if' opens one more, and elseif does not"),
        ("return 1\nreturn 2", 1, "return must be the last statement of its block"),
        ("local s = 'abc\nreturn s", 1, "the string that begins with ' here is not closed"),
        ("--[[ never\nreturn 1", 1, "this comment is not closed"),
        ("\n\nx += 1", 3, "write x = x + 1"),
        ("if a != b then end", 1, "write ~= for 'not equal'"),
        ("return a\n(1)", 2, "separate them with a ';'"),
        ("return '\\x41'", 1, "three decimal digits"),
        ("\ufeffreturn 1", 1, "byte order mark"),
        ("for i = 1, 2 do goto next ::next:: end", 1, "goto came with Lua 5.2"),
    ],
)
def test_message_names_the_error_and_the_remedy(source, line, words):
    found = check(source)
    assert found[0].line == line
    assert words in found[0].message


def test_syntax_error_skips_the_other_rules():
    assert rules_of("-- KEYS a b\nx = redis.call('KEYS', '*'") == ["syntax"]


def many(text, count, joint=""):
    return joint.join(text.format(n=number) for number in range(count))


LIMITS = {
    "locals": (200, lambda count: f"local {many('a{n}', count, ', ')}\nreturn 1"),
    "locals of a function": (200, lambda count: f"local function f()\nlocal {many('a{n}', count, ', ')}\nend"),
    "locals beside ...": (199, lambda count: f"local function f(...)\nlocal {many('a{n}', count, ', ')}\nend"),
    "locals in a loop": (196, lambda count: f"for i = 1, 2 do\nlocal {many('a{n}', count, ', ')}\nend"),
    "local functions": (200, lambda count: many("local function a{n}() end\n", count)),
    "parameters": (200, lambda count: f"local function f({many('a{n}', count, ', ')}) end"),
    "upvalues": (
        60,
        lambda count: f"{many('local a{n} = 1 ', count)}\nlocal function f() return {many('a{n}', count, '+')} end",
    ),
    "concatenations": (199, lambda count: "return " + many("'a'", count, "..")),
    "parentheses": (198, lambda count: "return " + "(" * count + "1" + ")" * count),
    "signs": (198, lambda count: "return " + "not " * count + "1"),
    "calls in calls": (198, lambda count: "return " + "tostring(" * count + "1" + ")" * count),
    "functions in functions": (99, lambda count: "return " + "function() return " * count + "1" + " end" * count),
    "values of a call": (248, lambda count: f"return tostring({many('1', count, ',')})"),
    "values beside locals": (
        198,
        lambda count: f"local {many('a{n}', 50, ',')} return tostring({many('1', count, ',')})",
    ),
    "variables in an assignment": (200, lambda count: f"local t = {{}} {many('t.a{n}', count, ',')} = 1"),
    "the value of an escape": (255, lambda count: f"return '\\{count}'"),
}


@pytest.mark.parametrize("what", LIMITS)
def test_what_is_too_much_for_the_compiler_of_the_server_is_a_finding(raw, what):
    most, make = LIMITS[what]
    raw.script_load(make(most))
    assert "syntax" not in [finding.rule for finding in check(make(most))]
    with pytest.raises(redis.ResponseError, match="ompiling script"):
        raw.script_load(make(most + 1))
    assert [finding.rule for finding in check(make(most + 1))] == ["syntax"]


def test_what_is_long_and_not_deep_is_no_finding(raw):
    for source in (
        "return " + many("1", 900, " + "),
        "if 1 then return 1 " + many("elseif {n} then return 2 ", 900) + "end",
        "return #{" + many("{n}", 900, ", ") + "}",
        many("do local a{n} = 1 end ", 300),
    ):
        raw.script_load(source)
        assert "error" not in [finding.severity for finding in check(source)]


def test_a_text_that_is_not_unicode_is_a_finding():
    (finding,) = check("return 1\nreturn '\ud800'")
    assert (finding.rule, finding.line) == ("syntax", 2)


def test_time_does_not_grow_with_the_square_of_the_lines():
    """Of what one variable is asked about, in the number of questions: time itself differs from run to run."""
    asked = []

    def questions(lines):
        script = "local n = 0\n" + "n = n + 1\n" * lines + "return 'n' .. n"
        with pytest.MonkeyPatch.context() as patch:
            count = [0]
            get = Memo.get
            patch.setattr(
                Memo, "get", lambda *args, **named: (count.__setitem__(0, count[0] + 1), get(*args, **named))[1]
            )
            check(script)
        return count[0]

    asked = [questions(lines) for lines in (100, 200, 400)]
    assert asked[2] - asked[1] < 2.5 * (asked[1] - asked[0])
