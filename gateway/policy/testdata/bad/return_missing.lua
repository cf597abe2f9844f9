-- The limits of the shop.
{
  rules = {
    { name = "ip", key = "ip", rate = "20r/s" },
  },
}
-- want 2: a policy begins with return: return { rules = { {...} } }
