-- invariants: the conditions that must hold for every name after every script, under all faults.
--
-- The checks read the data on the server and compare it with earlier states: the queue, the grants, the finished tokens.
-- `watch.lost` reports lost data, after which they forget what can no longer be known. The numbers are those of the design
-- pages.
local server = ...
local peek, heard, format, floor, insert = server.peek, server.heard, string.format, math.floor, table.insert
local pack, unpack_doubles = server.struct.pack, server.struct.unpack

local QUEUED, FINISHED = -4503599627370496, 4503599627370496 -- as lua/lib/state.lua has them
local HOUR_US, AHEAD_FROM_US = 3600000000, 1000000

local names, by_tag, by_key = {}, {}, {} -- the watched names: in order, by tag, and by the key of their state
local finished = {} -- tokens whose requests have ended: they must neither hold nor wait again
local ghosts = {} -- tokens whose requests had ended when data was lost, and that have not asked since
local turn = 0 -- number of scripts checked
local parsed = {} -- records, each parsed once
local complaints = {}

local function complain(number, name, words, ...)
  insert(complaints, 'invariant ' .. number .. ': ' .. name.tag .. ' ' .. format(words, ...))
end

-- Parse a record as lua/lib/record.lua describes it. Its mark is the fence of a holder, or the end of a wait-lease.
local function read(record)
  local known = parsed[record]
  if not known then
    local mark, weight, limit, claim = unpack_doubles('<dddd', record)
    local inbox = string.match(record, '^%S+', 41)
    known = {fence = mark, wait_until = mark, weight = weight, limit = limit, claim = claim, inbox = inbox}
    known.ahead = tonumber(string.match(record, ' ahead=(%d+)', 41) or 0)
    known.wanted = tonumber(string.match(record, ' wanted=(%d+)', 41) or math.huge)
    parsed[record] = known
  end
  return known
end

-- Whether that is the token of a lock that was released and stays taken for a while, as permit_release.lua has it.
local function rests(token)
  return string.sub(token, 1, 1) == '.'
end

local HOLD = '!hold' -- the token of an operator's hold
local ASKED_US = 500000 -- how long after its time the lease of a holder may end that was asked to end

local NO_SET, NO_HASH = {scores = {}, order = {}, size = 0}, {fields = {}, size = 0}

-- Return whether no request may overtake this waiter, and no script may remove it.
local function is_protected(waiter, most, now)
  return waiter.wait_until >= now and waiter.weight <= most and heard(waiter.inbox) > 0
end

-- Return whether a part of another name's data was lost or not written: a request for both is then granted again.
local function is_torn_elsewhere(name)
  for _, other in ipairs(names) do
    if other ~= name and (other.torn or other.was_cut) then
      return true
    end
  end
  return false
end

-- Each new grant is counted, and so is how long its token has waited: since its ticket, if it had one. A caller's own is
-- the right one: while it was away, a late copy of its request may have entered the queue anew.
local function check_counters(name, state, new, caller, ticket, now)
  local waited = 0
  for _, token in ipairs(new) do
    local since = token == caller and ticket > 0 and ticket or name.tickets[token] or now
    local wait_us = math.max(0, now - since)
    if wait_us >= AHEAD_FROM_US then
      wait_us = math.max(0, wait_us - state.records[token].ahead)
    end
    waited = waited + wait_us
  end
  if not name.torn and not name.was_lost and not name.was_cut and name.grants and state.hash.size > 0 then
    if state.grants ~= name.grants + #new then
      complain('counters', name, '%.0f grants after %.0f and %d', state.grants, name.grants, #new)
    elseif state.waited ~= name.waited + waited then
      complain('counters', name, 'waited %.0f us after %.0f and %.0f', state.waited, name.waited, waited)
    end
  end
  name.grants, name.waited = state.grants, state.waited
end

-- Invariants 1, 2 and 3: each new grant fits the limit, overtakes no waiter, and has the largest fence.
local function check_grants(name, state, caller, caller_moves, ticket, is_cut, now)
  -- A caller with a ticket comes back to its place, before those that came later.
  -- One with a head start passes those that came within it.
  local function came_before(other, token)
    local its_ticket = ticket > 0 and ticket or now + ticket
    return token ~= caller or ticket == 0 or state.queue.scores[other] < its_ticket + QUEUED
  end
  local new, all = nil, state.holders.order
  for i = 1, #all do
    local token = all[i]
    local record = state.records[token]
    if token == HOLD then
      name.granted[token] = nil
    elseif record and rests(token) and name.granted[string.sub(token, 2)] == record.fence then
      name.granted[token] = record.fence
    elseif record and name.granted[token] ~= record.fence then
      new = new or {}
      insert(new, token)
    end
  end
  check_counters(name, state, new or {}, caller, ticket, now)
  if not new then
    return
  end
  table.sort(new, function(one, other)
    return state.records[one].fence < state.records[other].fence
  end)
  for _, token in ipairs(new) do
    local record = state.records[token]
    if (name.hold_until or 0) > now then
      complain(50, name, '%s is granted %.0f us before the end of a hold', token, name.hold_until - now)
    end
    if name.granted[token] and (name.held[token] or 0) > now and not is_torn_elsewhere(name) then
      complain(4, name, '%s is granted a second time, with fence %.0f', token, record.fence)
    end
    if record.fence <= name.fence then
      complain(3, name, '%s was granted with fence %.0f after %.0f', token, record.fence, name.fence)
    end
    name.fence, name.granted[token], name.granted_in[token] = math.max(name.fence, record.fence), record.fence, turn
    local out = 0
    for _, holder in ipairs(state.holders.order) do
      local other = state.records[holder]
      if other and holder ~= HOLD and other.fence <= record.fence and state.holders.scores[holder] > now then
        out = out + other.weight
      end
    end
    local most = state.resized or record.limit
    if out > most then
      complain(1, name, '%s was granted permit %.0f of %.0f', token, out, most)
    end
    for _, before in ipairs(name.queue) do
      if before == token then
        break
      end
      local waiter = state.queue.scores[before] and not (before == caller and caller_moves) and state.records[before]
      if waiter and came_before(before, token) and is_protected(waiter, state.resized or waiter.limit, now) then
        complain(2, name, '%s was granted before %s, which waits', token, before)
      end
    end
    if ghosts[token] then
      complain(6, name, '%s was granted for an older state of the server', token)
    end
    if token ~= caller then
      local waiter = name.waiters[token]
      if waiter and waiter.wait_until < now then
        complain(6, name, '%s was granted after the end of its wait-lease', token)
      end
      local lease = state.holders.scores[token] - now
      local message = 'granted ' .. token .. ' ' .. pack('<ddd', record.fence, now, lease)
      local published, is_sent = {server.messages()}, false
      for i = 1, #published, 2 do
        is_sent = is_sent or published[i] == record.inbox and published[i + 1] == message
      end
      if not is_sent and not is_cut then
        complain(6, name, '%s was granted without a message', token)
      elseif heard(record.inbox) == 0 then
        complain(6, name, '%s was granted without a listener', token)
      end
    end
  end
end

local DISMISSES = {once_acquire = true, once_record = true}

-- Invariants 2 and 6: the queue keeps its order, new requests are at its end or have the place of their ticket, and no
-- protected waiter is removed.
local function check_queue(name, state, script, caller, caller_moves, ticket, unsure, is_cut, now)
  local queue, was = state.queue.order, name.place
  local last, newcomer = 0, nil
  for i = 1, #queue do
    local token = queue[i]
    local place = was[token]
    if token == caller and caller_moves then
      place = nil
    end
    if token == caller and unsure then
      place = nil -- its position depends on the data that was lost
    elseif not place and ticket < 0 then
      if state.waiting < now or state.queue.scores[token] ~= math.max(1, state.waiting + ticket) + QUEUED then
        complain(2, name, '%s is queued with a head start of %.0f us at %.0f', token, -ticket, state.queue.scores[token] - QUEUED)
      end
    elseif not place and ticket > 0 then
      if token ~= caller or state.queue.scores[token] ~= ticket + QUEUED then
        complain(2, name, '%s is queued, and its ticket is %.0f', token, state.queue.scores[token] - QUEUED)
      end
    elseif not place then
      newcomer = token
    elseif newcomer or place < last then
      complain(2, name, '%s is queued behind %s, which came later', token, newcomer or name.queue[last])
    else
      last = place
    end
  end
  local before = name.queue
  if DISMISSES[script] and peek(name.tag .. ':result', now) then
    before = {} -- see outcomes.lua
  end
  for i = 1, #before do
    local token = before[i]
    local waiter = name.waiters[token]
    if script == 'permit_overtake' and i < (was[caller] or 0) then
      waiter = nil -- it is superseded
    end
    if not state.queue.scores[token] and not state.holders.scores[token] and token ~= caller and waiter and not (name.torn or is_cut) then
      if is_protected(waiter, state.resized or waiter.limit, now) then
        complain(6, name, '%s waited and was removed', token)
      end
    end
  end
end

-- A lock that is released early rests until a time that its grant has set.
local function check_rest(name, state, script, reply, caller, argv, now)
  local at_least_us = script == 'permit_release' and tonumber(argv[3]) or 0
  if at_least_us == 0 or not (reply and reply[1] == 'released') or (name.held[caller] or 0) <= now then
    return
  end
  local ends = math.min(name.granted[caller] or 0, now) + at_least_us
  if ends > now and state.holders.scores['.' .. caller] ~= ends and not name.torn then
    complain('rest', name, '%s is released, and its lock does not rest for %.0f us', caller, ends - now)
  end
end

-- Each token has a record and either holds or waits, and the state agrees with the tokens.
local function check_records(name, state, now)
  local out, soonest, torn, inline = 0, math.huge, name.torn or name.was_cut, state.inline
  for _, token in ipairs(state.holders.order) do
    local record, its_end = state.records[token], state.holders.scores[token]
    if token ~= inline then
      out, soonest = out + (record and record.weight or 0), math.min(soonest, its_end)
    end
    if not record and not torn then
      complain('records', name, '%s holds and has no record', token)
    elseif finished[token] and its_end > now then
      complain(7, name, '%s holds after its end', token)
    end
  end
  local latest = 0
  for _, token in ipairs(state.queue.order) do
    latest = math.max(latest, state.queue.scores[token] - QUEUED)
    if state.holders.scores[token] and not torn then
      complain('records', name, '%s holds and waits', token)
    elseif not state.records[token] and not torn then
      complain('records', name, '%s waits and has no record', token)
    elseif finished[token] then
      complain(7, name, '%s waits after its end', token)
    end
  end
  if state.sorted and state.sorted.scores[''] ~= math.huge then
    complain('records', name, 'the sorted set has no last member')
  end
  if torn then
    return
  end
  if state.is_doubled then
    complain('records', name, '%s holds twice', inline)
  end
  local expected = state.holders.size - (inline and 1 or 0) + state.queue.size
  if state.record_count ~= expected then
    complain('records', name, '%d records for %d holders and waiters', state.record_count, expected)
  end
  if state.out ~= out then
    complain('records', name, '%.0f permits are held beside the state, which says %.0f', out, state.out)
  elseif out > 0 and state.soonest > soonest then
    complain('records', name, 'a lease ends %.0f us before the soonest', state.soonest - soonest)
  end
  if state.length ~= state.queue.size then
    complain('records', name, '%d wait, and the state says %d', state.queue.size, state.length)
  elseif latest > state.waiting then
    complain('records', name, 'a ticket is %.0f us after the latest', latest - state.waiting)
  end
  if state.remembered > state.memory then
    complain('records', name, 'a tombstone lasts %.0f us longer than the state says', state.remembered - state.memory)
  end
  if state.has_extra ~= (state.extra == 1) then
    complain('records', name, 'the state has %.0f further fields', state.extra)
  end
  if state.hash.size > 0 and not name.was_lost and state.fence < name.fence then
    complain(3, name, 'the fence is %.0f, and was %.0f', state.fence, name.fence)
  end
end

-- Invariant 50: a hold lasts until its end, or until it is ended; nothing else ends it. An act on the hold that was shown
-- leaves another one as it is.
local function check_hold(name, state, script, reply, argv, is_cut, now)
  local stored = state.holders.scores[HOLD]
  if script == 'permit_hold' and (is_cut or name.torn or not reply) then
    name.hold_until = stored
  elseif script == 'permit_hold' then
    local ttl_ms, grace_ms, shown_us = unpack_doubles('<dddd', argv[1])
    local was = (name.hold_until or 0) > now and name.hold_until or 0
    if reply[1] ~= 'other' and shown_us >= 0 and was ~= shown_us and not (reply[1] == 'ended' and was == 0) then
      complain(50, name, 'the act on the hold until %.0f changed the one until %.0f', shown_us, was)
    end
    if reply[1] ~= 'other' and (ttl_ms > 0 or grace_ms < 0) then
      name.hold_until = ttl_ms > 0 and now + ttl_ms * 1000 or nil
    end
  end
  if (name.hold_until or 0) > now and stored ~= name.hold_until and not name.torn then
    complain(50, name, 'the hold until %.0f is stored as %.0f', name.hold_until, stored or 0)
  elseif (name.hold_until or 0) <= now then
    name.hold_until = nil
  end
end

-- Invariants 48 and 49: a request that overtakes has no one before it. It asks the holders to end, and takes a lease when
-- the time is over that the first such request has left its holder.
-- The same holds where an operator's hold asks the holders.
local function check_asked(name, state, grace_ms, left_us, caller, is_cut, now)
  if is_cut then -- it may have asked some, and not noted it
    for _, token in ipairs(state.holders.order) do
      name.asked[token] = state.records[token] and state.records[token].wanted
    end
  end
  if is_cut or name.torn then
    return
  end
  local first = math.huge
  for token, deadline in pairs(name.held) do
    local before = name.has_record[token]
    if grace_ms >= 0 and deadline > now and not rests(token) and token ~= HOLD and before then
      local its_end, after = math.min(before.wanted, now + grace_ms * 1000), state.records[token]
      if not state.holders.scores[token] then
        name.asked[token] = its_end -- its time has to be over
      elseif after and after.wanted < math.huge then -- of several holders as many are asked as have what the caller lacks
        name.asked[token], first = after.wanted, math.min(first, after.wanted)
        if after.wanted ~= its_end then
          complain(48, name, '%s is to end in %.0f us, and not in %.0f us', token, after.wanted - now, its_end - now)
        elseif its_end <= now or state.holders.scores[token] > its_end + ASKED_US then
          complain(48, name, '%s still holds %.0f us after the end of its time', token, now - its_end)
        end
      elseif before.limit == 1 and not state.resized then
        complain(48, name, '%s is not asked to end', token)
      end
    end
  end
  if left_us ~= (first < math.huge and first - now or -1) then
    complain(48, name, '%s is to come again in %.0f us, and the first end is in %.0f us', caller, left_us, first - now)
  end
end

local function check_overtaken(name, state, reply, caller, argv, is_cut, now)
  local place, grace_ms = name.place[caller], tonumber(argv[2])
  if (name.hold_until or 0) > now then
    grace_ms = -1 -- while an operator holds the name, no one is asked
  end
  if not place or is_cut or name.torn then
    check_asked(name, state, -1, -1, caller, is_cut, now)
    return
  elseif not (reply and reply[1] == 'asked') then
    complain(49, name, '%s waits, and does not overtake', caller)
    return
  end
  local head = state.queue.order[1]
  if reply[3] == 0 and head and (name.place[head] or place) < place then
    complain(49, name, '%s has overtaken all, and %s is before it', caller, head)
  end
  check_asked(name, state, grace_ms, reply[2], caller, is_cut, now)
end

-- A lease ends only by its owner, by its deadline, by a revoke between whose fences its own is, or at the end of the time
-- that a request that overtakes has left it.
local function check_kept(name, state, script, caller, argv, now)
  local most, least = -1, 0
  if script == 'permit_revoke' then
    most, least = tonumber(argv[1]), tonumber(argv[5])
  end
  for token, deadline in pairs(name.held) do
    if deadline > now and not state.holders.scores[token] and token ~= caller and not name.torn then
      local asks = script == 'permit_overtake' or script == 'permit_hold'
      local is_over = asks and (name.asked[token] or math.huge) <= now or token == HOLD
      local granted = name.granted[token]
      if granted and (granted > most or granted < least) and not is_over then
        complain('kept', name, '%s lost its lease with %.0f us left', token, deadline - now)
      end
    end
  end
  if script == 'permit_renew' or script == 'permit_confirm' then
    local deadline, before = state.holders.scores[caller], name.held[caller]
    if deadline and (not before or deadline > math.max(before, now + tonumber(argv[2]) * 1000)) then
      complain(4, name, '%s is renewed for %.0f us', caller, deadline - now)
    end
  end
end

-- Invariant 5: each key has a TTL, and outlives its content by an hour.
local function check_ttls(name, state, now)
  local longest = state.remembered
  for _, its_end in pairs(state.holders.scores) do
    longest = math.max(longest, its_end)
  end
  for _, token in ipairs(state.queue.order) do
    local record = state.records[token]
    longest = math.max(longest, record and record.wait_until or 0)
  end
  for part, key in pairs(name.keys) do
    local found = peek(key, now)
    if found and not found.expires then
      complain(5, name, 'the %s have no TTL', part)
    elseif found and longest > now and found.expires < floor((longest + HOUR_US) / 1000) - 1 then
      complain(5, name, 'the %s expire %.0f ms too early', part, (longest + HOUR_US) / 1000 - found.expires)
    elseif found and not (name.torn or name.was_cut) and found.expires < floor(state.keep / 1000) - 1 then
      complain(5, name, 'the %s expire %.0f ms before the state says', part, state.keep / 1000 - found.expires)
    end
  end
end

local SERVES = {
  permit_acquire = {queued = true},
  permit_release = {released = true},
  permit_cancel = {cancelled = true},
  permit_lower = {lowered = true},
  permit_resize = {resized = true},
  permit_revoke = {revoked = true},
  permit_overtake = {asked = true},
  permit_hold = {ended = true},
  multi_acquire = {queued = true},
  once_acquire = {queued = true},
  once_cancel = {cancelled = true},
}

-- A script that serves the queue leaves no permit free that the first waiter could have.
local function check_served(name, state, script, reply, caller, now)
  local tag = reply and reply[1]
  if not (SERVES[script] and SERVES[script][tag]) or reply.more == 1 then
    return
  end
  local head = state.queue.order[1]
  local waiter = head and state.records[head]
  if not waiter or name.torn or name.was_cut or waiter.claim == 0 then
    return
  end
  local most, out = state.resized or waiter.limit, 0
  for _, record in pairs(state.records) do
    if record.limit ~= most and not state.resized then
      return -- a request with another limit does not serve all others
    end
  end
  for token, _ in pairs(state.holders.scores) do
    local record = state.records[token]
    out = out + (record and record.weight or math.huge)
  end
  if (waiter.wait_until < now or waiter.weight > most or heard(waiter.inbox) == 0) and out < most then
    if head ~= caller then
      complain(6, name, '%s can never be granted, and is first in the queue', head)
    end
  elseif out + waiter.weight <= most then
    complain('service', name, '%s fits and waits: %.0f of %.0f are held', head, out, most)
  end
end

-- Invariants 4 and 8: the reply of a script agrees with the data.
local function check_reply(name, state, script, reply, caller, several, now)
  local tag = reply and reply[1]
  local deadline = state.holders.scores[caller]
  if tag == 'granted' then
    local record = state.records[caller]
    if not deadline or not record or record.fence ~= tonumber(reply[2]) then
      complain(4, name, 'the reply grants %s the fence %s', caller, tostring(reply[2]))
    elseif deadline - now < reply[3] or script ~= 'multi_acquire' and deadline - now > reply[3] then
      complain(8, name, '%s has %.0f us, and the reply says %.0f', caller, deadline - now, reply[3])
    end
  elseif tag == 'renewed' then
    if not deadline or deadline - now < reply[2] then
      complain(8, name, 'the reply gives %s %.0f us', caller, reply[2])
    end
  elseif tag == 'slot' then
    if not deadline or deadline <= now then
      complain(44, name, '%s does not hold, and has the slot %.0f', caller, reply[2])
    end
  elseif tag == 'queued' then
    if state.queue.scores[caller] ~= reply[5] + QUEUED then
      complain(4, name, 'the reply queues %s at %.0f', caller, reply[5])
    end
    name.queued_in[caller] = turn
  elseif tag and tag ~= 'lowered' and tag ~= 'asked' and tag ~= 'begun' and not (tag == 'lost' and name.was_lost) and script ~= 'permit_inspect' and script ~= 'permit_revoke' and script ~= 'permit_hold' then
    -- Of several names, one may have been taken by force. The caller hears of it, and then gives back the others.
    local lost = several and (tag == 'finished' or tag == 'lost' and (script == 'permit_renew' or script == 'permit_release'))
    lost = lost or tag == 'gone' and not state.queue.scores[caller] -- it may have been granted
    if deadline and deadline > now and not lost and not name.torn then
      complain(4, name, '%s holds, and the reply is %s', caller, tag)
    elseif name.was_cut and tag == 'busy' then
      return -- the client knows that its first copy was cut off, and cancels
    elseif state.queue.scores[caller] and script ~= 'permit_release' and script ~= 'permit_renew' and script ~= 'permit_confirm' and not lost then
      complain(4, name, '%s waits, and the reply is %s', caller, tag)
    end
  end
end

local function new_set()
  return {scores = {}, order = {}, size = 0}
end

local function add(set, token, score)
  set.size = set.size + 1
  set.order[set.size], set.scores[token] = token, score
end

-- Return the data of a name, as lua/lib/state.lua describes it.
local function look(name, now)
  local sorted, hash = peek(name.keys.tokens, now), peek(name.keys.state, now) or NO_HASH
  local fields, holders, queue, records = hash.fields, new_set(), new_set(), {}
  local state = {hash = hash, sorted = sorted, holders = holders, queue = queue, records = records}
  state.out, state.soonest, state.memory, state.remembered = 0, 0, 0, 0
  for _, token in ipairs((sorted or NO_SET).order) do
    local score = sorted.scores[token]
    if score < 0 then
      add(queue, token, score)
    elseif score < FINISHED then
      add(holders, token, score)
    elseif score < math.huge then
      state.remembered = score - FINISHED
    end
    local record = score < FINISHED and fields[token]
    records[token] = record and (parsed[record] or read(record)) or nil
  end
  local own, more = fields.s, fields.q
  local others = (own and 1 or 0) + (more and 1 or 0) + (fields.last and 1 or 0)
  others = others + (fields.pause and 1 or 0) + (fields.over and 1 or 0)
  state.record_count, state.has_extra = hash.size - others, more ~= nil
  state.lease_end, state.fence, state.keep, state.extra, state.grants, state.waited = 0, 0, 0, 0, 0, 0
  state.waiting, state.length = 0, 0
  if own then
    local token, at
    state.lease_end, state.fence, state.keep, state.extra, state.grants, state.waited, state.waiting, state.length, token, at =
      unpack_doubles('<ddddddddBc0', own)
    if state.lease_end > 0 then
      state.is_doubled = holders.scores[token] ~= nil
      state.inline, records[token] = token, read(string.sub(own, at))
      add(holders, token, state.lease_end)
      table.sort(holders.order, function(one, other)
        return holders.scores[one] < holders.scores[other] or holders.scores[one] == holders.scores[other] and one < other
      end)
    end
  end
  if more then
    local resized
    state.out, state.soonest, resized, state.memory = unpack_doubles('<dddd', more)
    state.resized = resized > 0 and resized or nil
  end
  return state
end

local function remember(name, state)
  local queue, place, waiters, tickets = {}, {}, {}, {}
  local order = state.queue.order
  for i = 1, #order do
    local token = order[i]
    queue[i], place[token], waiters[token] = token, i, state.records[token]
    tickets[token] = state.queue.scores[token] - QUEUED
  end
  name.queue, name.place, name.waiters, name.tickets = queue, place, waiters, tickets
  name.has_record = state.records
  local deadlines, scores, held = name.deadlines, state.holders.scores, {}
  name.held = held
  for token in pairs(name.asked) do
    name.asked[token] = scores[token] and name.asked[token]
  end
  order = state.holders.order
  for i = 1, #order do
    local token = order[i]
    local deadline, known = scores[token], deadlines[token]
    held[token] = deadline
    if not known or deadline > known then
      deadlines[token] = deadline
    end
  end
end

-- A reply as a table: its tag and its numbers. A number alone is the fence of a grant for the whole ttl.
local function read_reply(reply, argv)
  if type(reply) == 'number' then
    return {'granted', reply, unpack_doubles('<d', argv[2]) * 1000}
  elseif type(reply) ~= 'string' then
    return reply
  end
  local tag, numbers = string.match(reply, '^(%S+) (.*)$')
  local read = {tag}
  for at = 1, #numbers, 8 do
    read[#read + 1] = (unpack_doubles('<d', numbers, at))
  end
  return read
end

local watch = {read_reply = read_reply, by_tag = function(tag)
  return by_tag[tag]
end}

-- Start with these names.
function watch.begin(...)
  names, by_tag, by_key, finished, ghosts, parsed = {}, {}, {}, {}, {}, {}
  for _, tag in ipairs({...}) do
    local name = {tag = tag, keys = {}, queue = {}, place = {}, waiters = {}, tickets = {}, granted = {}, held = {}, deadlines = {}, fence = 0}
    name.granted_in, name.queued_in, name.asked, name.has_record = {}, {}, {}, {}
    name.keys = {state = tag .. ':state', tokens = tag .. ':tokens'}
    insert(names, name)
    by_tag[tag], by_key[name.keys.state] = name, name
  end
end

-- What a batch says of each of its names, as calls of the ordinary script. For a name that it has not served the reply
-- is false, and so it is for all of them if it was cut off.
local function calls_of(script, keys, argv, reply)
  local calls, at = {}, 1
  for i, key in ipairs(keys) do
    local size = string.byte(argv[1], at)
    local call = {script = 'permit_release', keys = {key}, argv = {string.sub(argv[1], at + 1, at + size)}}
    if script == 'locks_acquire' then
      local fence, ttl_ms = reply and unpack_doubles('<d', reply, 8 * i - 7) or 0, tonumber(argv[2])
      call.script, call.argv[2] = 'permit_acquire', pack('<dddd', ttl_ms, 0, 0, 0)
      call.reply = fence > 0 and {'granted', fence, ttl_ms * 1000}
      at = at + size + 9
    else
      call.reply = reply and string.sub(reply, i, i) == '1' and {'released', 0}
      at = at + size + 1
    end
    insert(calls, call)
  end
  return calls
end

local function check(script, keys, argv, reply, is_cut, now)
  turn = turn + 1
  if script == 'once_record' and reply and reply[1] == 'recorded' and argv[2] == 'begun' then
    reply = {'begun'} -- it goes on to hold
  end
  local caller, ticket = argv[1], 0
  if script == 'permit_acquire' or script == 'multi_acquire' or script == 'once_acquire' then
    ticket = (unpack_doubles('<d', argv[2], #argv[2] - 7))
  end
  ghosts[caller] = nil
  local touched, unsure = {}, false
  for i = 1, #keys do
    local name = by_key[keys[i]]
    if name then
      insert(touched, name)
      name.was_cut = name.was_cut or is_cut
      unsure = unsure or name.torn
    end
  end
  local places, its_ticket = 0, nil
  for _, name in ipairs(touched) do
    local place = name.tickets[caller]
    if place and (ticket <= 0 or place == ticket) then
      places, its_ticket = places + 1, place
    end
  end
  -- Unless it is in all queues already, it enters all of them anew, by the ticket that it has in some of them.
  local caller_moves = places < #touched and (script == 'multi_acquire' or ticket > 0)
  if caller_moves and ticket == 0 then
    ticket = its_ticket or 0
  end
  caller_moves = caller_moves or unsure
  if reply and (reply[1] == 'released' or reply[1] == 'cancelled' or reply[1] == 'lowered' or reply[1] == 'resized') then
    reply.more = reply[2]
  elseif reply and (reply[1] == 'revoked' or reply[1] == 'asked' or reply[1] == 'ended') then
    reply.more = reply[3]
  elseif reply and (reply[1] == 'queued' or reply[1] == 'busy') then
    reply.more = reply[reply[1] == 'queued' and 4 or 2] == 0 and 1 or 0
  end
  for _, name in ipairs(touched) do
    local state = look(name, now)
    if script == 'permit_overtake' then
      check_overtaken(name, state, reply, caller, argv, is_cut, now)
    elseif script == 'permit_hold' and reply and reply[1] == 'held' then
      local _, grace_ms = unpack_doubles('<dd', argv[1])
      check_asked(name, state, grace_ms, reply[4], 'an operator', is_cut, now)
    elseif script == 'permit_hold' then
      check_asked(name, state, -1, -1, 'an operator', is_cut, now)
    end
    check_hold(name, state, script, reply, argv, is_cut, now)
    check_queue(name, state, script, caller, caller_moves, ticket, unsure, is_cut, now)
    check_grants(name, state, caller, caller_moves, ticket, is_cut, now)
    check_records(name, state, now)
    check_kept(name, state, script, caller, argv, now)
    check_rest(name, state, script, reply, caller, argv, now)
    check_ttls(name, state, now)
    check_served(name, state, script, reply, caller, now)
    check_reply(name, state, script, reply, caller, #touched > 1, now)
    remember(name, state)
  end
end

-- Check the names of a script after its call, or after what it did until it was cut off. Return the violations as text, or nothing.
function watch.after(script, is_cut, now)
  complaints = {}
  local keys, argv, reply = server.last()
  if script == 'locks_acquire' or script == 'locks_release' then
    for _, call in ipairs(calls_of(script, keys, argv, reply)) do
      check(call.script, call.keys, call.argv, call.reply, is_cut, now)
    end
  else
    check(script, keys, argv, read_reply(reply, argv), is_cut, now)
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- The request of a token has ended: check that it neither holds nor waits, now and after later scripts.
function watch.finish(token, now)
  finished[token] = true
  complaints = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    if (state.holders.scores[token] or 0) > now then
      complain(7, name, '%s holds after its end', token)
    elseif state.queue.scores[token] then
      complain(7, name, '%s waits after its end', token)
    end
  end
  if complaints[1] then
    return table.concat(complaints, '; ')
  end
end

-- Return whether the latest reply or message of a token granted it the name, and the latest deadline of its lease, if
-- it ever had one.
function watch.belief(tag, token)
  local name = by_tag[tag]
  return (name.granted_in[token] or 0) > (name.queued_in[token] or 0), name.deadlines[token]
end

-- Return the end of a token's lease as it is stored now; 0 without one.
function watch.lease_end(tag, token, now)
  return look(by_tag[tag], now).holders.scores[token] or 0
end

-- The server's clock has jumped forward: tombstones and leases may have expired early.
function watch.forget_finished()
  finished = {}
end

-- The data of a name, or of all names, was lost; if `torn`, only some of its keys were.
function watch.lost(tag, torn, forget_fences, now)
  for token in pairs(finished) do
    ghosts[token] = true
  end
  finished = {}
  for _, name in ipairs(names) do
    if not tag or name.tag == tag then
      name.granted = {}
      name.torn, name.was_lost = name.torn or torn, true
      name.fence = forget_fences and 0 or name.fence
      local state = look(name, now)
      for _, token in ipairs(state.holders.order) do
        name.granted[token] = state.records[token] and state.records[token].fence
        name.asked[token] = state.records[token] and state.records[token].wanted
      end
      name.hold_until = state.holders.scores[HOLD]
      remember(name, state)
    end
  end
end

-- The server's clock was set back while the latest fence may have been lost: the one documented exception.
function watch.forget_fences()
  for _, name in ipairs(names) do
    name.fence = 0
  end
end

-- Return the tags and tokens of all current holders and waiters.
function watch.present(now)
  local found = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    for _, token in ipairs(state.holders.order) do
      if state.holders.scores[token] > now and not rests(token) and token ~= HOLD then
        insert(found, name.tag .. ' ' .. token)
      end
    end
    for _, token in ipairs(state.queue.order) do
      if not state.records[token] or state.records[token].wait_until >= now then
        insert(found, name.tag .. ' ' .. token)
      end
    end
  end
  table.sort(found)
  return unpack(found)
end

-- Return each first live waiter that fits and nevertheless waits, as far as a client could know.
function watch.idle(now)
  local found = {}
  for _, name in ipairs(names) do
    local state = look(name, now)
    for _, token in ipairs(state.queue.order) do
      local waiter = state.records[token]
      local most = waiter and (state.resized or waiter.limit)
      if waiter and is_protected(waiter, most, now) then
        local out = 0
        for holder, deadline in pairs(state.holders.scores) do
          local record = state.records[holder]
          out = out + (deadline > now and (record and record.weight or math.huge) or 0)
        end
        if waiter.claim > 0 and out + waiter.weight <= most then
          insert(found, name.tag .. ' ' .. token)
        end
        break
      end
    end
  end
  table.sort(found)
  return unpack(found)
end

return watch
