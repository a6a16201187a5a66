-- outcomes: what must hold of the record of each key of `once`, after every script, under all faults.
--
-- Its runs are those of a lock: `invariants` checks them, and says who held and waited before the script. A record counts
-- as it was seen last. `watch.lost` reports lost data, after which it is what is there. The numbers are those of the
-- design pages.
local server, invariants = ...
local peek, heard, format, floor, insert = server.peek, server.heard, string.format, math.floor, table.insert
local unpack_doubles = server.struct.unpack

local ENDED = {done = true, unstored = true} -- the states of a run that is not to be repeated

local keys, by_tag = {}, {}
local is_set_back = false -- whether the server's clock was set back: then what is old may seem new
local complaints = {}

local function complain(number, key, words, ...)
  insert(complaints, 'invariant ' .. number .. ': ' .. key.tag .. ' ' .. format(words, ...))
end

-- Parse a record as lua/lib/outcome.lua describes it.
local function read(text)
  local at, fence, state, token, fingerprint, start = unpack_doubles('<ddBc0Bc0Bc0', text)
  return {at = at, fence = fence, state = state, token = token, fingerprint = fingerprint, value = string.sub(text, start)}
end

-- Return the record as it was seen last, if it has not expired, and its text.
local function known(key, now)
  if key.text and floor(now / 1000) <= key.expires then
    return read(key.text), key.text
  end
end

local function remember(key, found)
  key.text, key.expires = found and found.value, found and (found.expires or math.huge)
  key.latest = key.text or key.latest -- it comes back if it has expired and the clock is set back
end

local function is_stale(record, refresh_ms, now)
  return refresh_ms >= 0 and record.state == 'done' and now - record.at >= refresh_ms * 1000
end

-- Whether it is too early to make a result anew: a run has begun that, or has failed to.
local function is_paused(key, record, now)
  local pause = key.pause
  return pause and pause.at == record.at and pause.from <= now and now < pause.until_us
end

local function begin_pause(key, record, pause_ms, now)
  key.pause = {at = record.at, from = now, until_us = now + pause_ms * 1000}
end

-- Return whether a caller with this token is not to find the record, but to run or wait.
local function goes_on(key, record, token, refresh_ms, now)
  local held = key.name.held
  if record.state == 'begun' then
    return (held[record.token] or 0) > now
  end
  local is_running = false
  for _, its_end in pairs(held) do
    is_running = is_running or its_end > now
  end
  local may_begin = not is_running and not key.name.queue[1] and not is_paused(key, record, now)
  return is_stale(record, refresh_ms, now) and ((held[token] or 0) > now or may_begin)
end

-- Invariants 24, 25, 26 and 27: a record is written by the run that holds the key, once, and over none that counts.
local function check_written(key, before, record, found, argv, is_cut, now)
  local token, outcome, name = argv[1], argv[2], key.name
  local keep_ms = (unpack_doubles('<d', argv[3]))
  if (name.held[token] or 0) <= now then
    complain(25, key, '%s records, and does not hold', token)
  end
  if record.token ~= token or record.state ~= outcome or record.value ~= argv[5] or record.fingerprint ~= argv[4] then
    complain(29, key, '%s records another thing than it was asked to', token)
  elseif record.at ~= now or record.fence ~= name.granted[token] then
    complain(30, key, '%s records the fence %.0f at %.0f', token, record.fence, record.at)
  elseif found.expires and found.expires ~= floor(now / 1000) + keep_ms then
    complain(5, key, 'the record of %s lasts %.0f ms', token, found.expires - now / 1000)
  end
  if not before then
    return
  elseif before.token == token then
    if before.state == outcome and outcome ~= 'begun' and not (key.was_cut or is_cut) then
      complain(24, key, '%s records the same twice', token)
    elseif before.state ~= 'begun' and before.state ~= outcome then
      complain(24, key, '%s is %s, and was %s', token, outcome, before.state)
    end
  elseif before.state == 'begun' then
    complain(27, key, '%s records, and %s has begun', token, before.token)
  elseif outcome ~= 'done' and before.state == 'done' then
    complain(24, key, '%s is %s, which replaces what %s has recorded', token, outcome, before.token)
  elseif not is_stale(before, key.refresh[token] or -1, now) and not is_set_back then
    complain(ENDED[before.state] and 24 or 26, key, '%s records, and %s had recorded that it is %s', token, before.token, before.state)
  end
end

-- Invariants 26, 27 and 28: what a caller is answered is what the record says.
local function check_answer(key, record, reply, argv, now)
  local token, fingerprint, tag = argv[1], argv[3], reply[1]
  local _, _, _, refresh_ms, pause_ms = unpack_doubles('<ddddd', argv[2])
  if tag == 'granted' then
    key.refresh[token], key.told[token] = refresh_ms, true
  end
  if not record then
    if tag == 'done' or tag == 'reused' then
      complain(29, key, '%s is answered %s, and there is no record', token, tag)
    end
    return
  end
  local is_reused = fingerprint ~= '' and record.fingerprint ~= '' and fingerprint ~= record.fingerprint
  if tag == 'reused' or is_reused then
    if tag ~= 'finished' and not (is_reused and tag == 'reused') then
      complain(29, key, '%s is answered %s for a fingerprint', token, tag)
    end
  elseif tag == 'done' then
    local age = math.max(0, now - record.at)
    if reply[2] ~= record.state or reply[3] ~= age or reply[4] ~= record.fence or reply[5] ~= record.value then
      complain(29, key, '%s is answered %s, %.0f us old', token, reply[2], reply[3])
    elseif record.state ~= 'begun' and not server.takes_writes() then
      return -- what is stale serves all, where no run can be granted
    elseif not (key.name.torn or key.name.was_cut) and goes_on(key, record, token, refresh_ms, now) then
      complain(record.state == 'begun' and 27 or 26, key, '%s is answered %s, and is to run or to wait', token, reply[2])
    end
  elseif tag ~= 'finished' and not goes_on(key, record, token, refresh_ms, now) then
    local number = tag ~= 'granted' and 28 or record.state == 'begun' and 27 or 26
    complain(number, key, '%s is answered %s, and %s is %s', token, tag, record.token, record.state)
  end
  if tag == 'granted' and record.state == 'done' and (key.name.held[token] or 0) <= now then
    begin_pause(key, record, pause_ms, now)
  end
end

-- Invariants 4 and 25: what the script replies to a run that records.
local function check_told(key, record, reply, argv, now)
  local token, outcome, name = argv[1], argv[2], key.name
  local held = (name.held[token] or 0) > now
  local has_it = record and record.token == token and (outcome == 'begun' or record.state == outcome)
  if reply[1] == 'lost' then
    if held or has_it then
      complain(4, key, 'the reply to %s is lost, and it %s', token, held and 'holds' or 'has recorded')
    end
  elseif not has_it and not (held and outcome == 'dropped') then
    if not (held and outcome ~= 'done' and outcome ~= 'begun' and record and record.state == 'done') then
      complain(25, key, 'the reply to %s is recorded, and it has not', token)
    end
  end
end

-- Invariant 28: those who waited for the record leave the queue, and get a message to ask for it.
local function check_dismissed(key, before, tag, now)
  local set = peek(key.name.keys.tokens, now)
  local scores = set and set.scores or {}
  local published = {server.messages()}
  for _, token in ipairs(before.queue) do
    local waiter = before.waiters[token]
    if (scores[token] or 0) < 0 then
      complain(28, key, '%s waits, and the reply is %s', token, tag)
    elseif waiter and token ~= before.caller and heard(waiter.inbox) > 0 then
      local start, is_sent = 'granted ' .. token .. ' ', false
      for i = 1, #published, 2 do
        is_sent = is_sent or published[i] == waiter.inbox and string.sub(published[i + 1], 1, #start) == start
      end
      if not is_sent then
        complain(28, key, '%s waited and was sent no message', token)
      end
    end
  end
end

local watch = {}
for name, check in pairs(invariants) do
  watch[name] = check
end

-- Start with these keys.
function watch.begin(...)
  invariants.begin(...)
  keys, by_tag, is_set_back = {}, {}, false
  for _, tag in ipairs({...}) do
    local key = {tag = tag, result = tag .. ':result', name = invariants.by_tag(tag), refresh = {}, told = {}, begun = {}}
    insert(keys, key)
    by_tag[tag] = key
  end
end

-- The same as of `invariants`.
function watch.after(script, is_cut, now)
  complaints = {}
  local asked, argv, reply = server.last()
  local key = by_tag[string.match(asked[1], '^(.*):')]
  if script == 'GET' then
    return
  elseif script == 'DEL' then
    key.text = nil
    return
  end
  local name, before, text = key.name, known(key, now)
  local queue = {queue = name.queue, waiters = name.waiters, caller = argv[1]}
  local found = peek(key.result, now)
  local record = found and read(found.value)
  reply = not is_cut and invariants.read_reply(reply, argv) or nil
  if found and not found.expires then
    complain(5, key, 'the record has no TTL')
  end
  local is_taken_back = script == 'once_cancel' and text and before.state == 'begun' and before.token == argv[1]
  if text and not found and not is_taken_back then
    complain(24, key, 'the record of %s is gone', before.token)
  elseif found and found.value ~= text and not (is_set_back and found.value == key.latest) then
    if script ~= 'once_record' then
      complain(25, key, '%s writes the record', script)
    else
      check_written(key, before, record, found, argv, is_cut, now)
    end
    if record.state == 'begun' then
      key.begun[record.token] = true
    end
  end
  local outcome = script == 'once_record' and argv[2]
  if outcome and outcome ~= 'done' and outcome ~= 'begun' and before and before.state == 'done' and (name.held[argv[1]] or 0) > now then
    begin_pause(key, before, select(3, unpack_doubles('<ddd', argv[3])), now)
  end
  if reply and script == 'once_acquire' then
    check_answer(key, record, reply, argv, now)
  elseif reply and script == 'once_record' then
    check_told(key, record, reply, argv, now)
  end
  local found_more = invariants.after(script, is_cut, now)
  local is_handed_over = outcome == 'dropped' and not before
  local ends = reply and (reply[1] == 'recorded' and outcome ~= 'begun' and not is_handed_over or reply[1] == 'done' or reply[1] == 'reused')
  if ends and not name.torn and not name.was_cut then
    check_dismissed(key, queue, reply[1], now)
  end
  key.was_cut = key.was_cut or is_cut
  remember(key, found)
  if found_more then
    insert(complaints, found_more)
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- Invariant 11: an acquire was refused at maxmemory. Return the violation as text if it was to find a record.
function watch.refused(now)
  complaints = {}
  local asked, argv = server.last()
  local key = by_tag[string.match(asked[1], '^(.*):')]
  local record = known(key, now)
  local _, _, _, refresh_ms = unpack_doubles('<dddd', argv[2])
  if record and not goes_on(key, record, argv[1], refresh_ms, now) then
    complain(11, key, '%s is refused at maxmemory, and %s is %s', argv[1], record.token, record.state)
    return complaints[1]
  end
end

-- Return whether a token was told by a reply that it runs, whether it has recorded that, and the token of a record that
-- counts for it, which is none of its own.
function watch.run(tag, token, now)
  local key = by_tag[tag]
  local record = known(key, now)
  local counts = record and record.token ~= token and not is_stale(record, key.refresh[token] or -1, now)
  return key.told[token] == true, key.begun[token] == true, counts and not is_set_back and record.token or nil
end

function watch.lost(tag, torn, forget_fences, now)
  invariants.lost(tag, torn, forget_fences, now)
  for _, key in ipairs(keys) do
    if not tag or key.tag == tag then
      local state = peek(key.name.keys.state, now)
      local at, from, until_us = unpack_doubles('<ddd', state and state.fields.pause or string.rep('\0', 24))
      key.pause = {at = at, from = from, until_us = until_us} -- what is there by now, of a primary that has the rest
      remember(key, peek(key.result, now))
    end
  end
end

-- The server's clock was set back.
function watch.set_back()
  is_set_back = true
end

-- Return the same as `invariants`, and all that wait for what is recorded.
function watch.idle(now)
  local found = {invariants.idle(now)}
  for _, key in ipairs(keys) do
    local record = known(key, now)
    local runner = record and record.state == 'begun' and invariants.lease_end(key.tag, record.token, now) or 0
    if record and runner <= now then
      for _, token in ipairs(key.name.queue) do
        local waiter = key.name.waiters[token]
        if waiter and waiter.wait_until >= now and heard(waiter.inbox) > 0 then
          insert(found, key.tag .. ' ' .. token)
        end
      end
    end
  end
  table.sort(found)
  return unpack(found)
end

return watch
