-- revoke: taking a lease away.
--
-- USES holder drop_lease add_tombstone
-- GIVES revoke

-- Take a lease, and tell its holder why. Of a holder whose record was evicted, the client is not known. The state is
-- saved.
local function revoke(token, its_record, reason)
  if its_record then -- the message first: a script that is cut off behind it finds no lease when it is sent again
    redis.call('PUBLISH', string.match(its_record, '^%S+ (%S+)', INBOX_AT), 'revoked ' .. token .. ' ' .. reason)
  end
  drop_lease(token)
  if holder == token then
    holder = ''
  end
  add_tombstone(token, true)
end
