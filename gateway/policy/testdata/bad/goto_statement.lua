goto done
::done::
return { rules = {} }
-- want 1: unexpected "goto": a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }
