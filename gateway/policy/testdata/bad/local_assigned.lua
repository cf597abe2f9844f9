local burst = 40
burst = 50
return { rules = {} }
-- want 2: unexpected "burst": a policy has lines local NAME = VALUE, and ends with return { rules = { {...} } }
