-- budget_set: set the limit of an account for all, raise the spent sum, or both.
--
-- KEYS account past ends
-- ARGV terms definition what by why
-- PACK terms <ddddd limit least_spent begin_us end_us own_limit
-- REPLY set spent held
-- REPLY period now_us
-- REPLY differs number definition
-- ALONE set 0 0
--
-- limit is -1 to have each caller's own count again, and -2 to leave it. own_limit, the caller's, is
--   noted where the account is new. least_spent only raises; 0 leaves the sum. Period and definition are as in
--   budget_reserve. what, by and why are noted: by is the label of the client, percent-encoded.
-- A limit may be below the spent and the held sum: then nothing fits.
--
-- TWICE the same limit, and the same sum.
-- LATE a limit that another caller has set since is replaced. A sum is only raised.
-- MEMORY the first write is a HSET, refused at maxmemory.
-- CUT a user who lacks a right is refused before the first write, see lib/rights.lua. Behind its first write an
--   account may lack the TTL, which the same call gives it.

-- @include clock

local definition = ARGV[2]
local limit, least_spent, begin_us, end_us, own_limit = struct.unpack('<ddddd', ARGV[1])

-- @include account
-- @include rights

local account = read_account(1, '')
if account.definition ~= definition and now < account.end_us then
  return {'differs', 1, account.definition}
end
if not enter_period(account, begin_us, end_us) then
  return 'period ' .. struct.pack('<d', now)
end
require_rights(account.key, nil, 'hget hset pexpire rename')
account.definition, account.told = definition, account.is_there and account.told or own_limit
account.limit = limit == -2 and account.limit or limit
account.spent = math.max(account.spent, least_spent)
write_account(account, 'last', struct.pack('<d', now) .. ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[5])
outlive(account.key, account.end_us) -- which a script that was cut off may have left out
return 'set ' .. struct.pack('<dd', account.spent, account.held)
