;
return { rules = {} }
-- want 1: ";" with no statement before it: remove it
