"""A marketplace, twice: with WATCH, MULTI and EXEC, and as two scripts. The README says where to begin."""
