local burst
return { rules = {} }
-- want 1: unexpected "burst": a local is written as local burst = 40
