-- === a word that is no name
-- KEYS one two-three
--!^ header
return 1
-- === names as they should be
-- KEYS one two
-- REPLY - what it was
return redis.call('SMOVE', KEYS[1], KEYS[2], 'x')
