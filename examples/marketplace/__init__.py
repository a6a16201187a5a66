"""A marketplace in two versions: with WATCH, MULTI and EXEC, and as two scripts. Start with the README."""
