goto done
::done::
return { rules = {} }
-- want 1: goto is not read by every edge in the same way: use if, for or while
