return
{
  rules =
  {
    {
      name = "a",
      key =
        "nothing",
      rate
        =
        "0r/s",
      burst =
        -1,
      brust =

        1,
    },
  },
}
-- want 7: key must be "ip" or "token", and is "nothing"
-- want 9: rate "0r/s" must be more than zero: "1r/h" admits almost nothing
-- want 12: burst must be a whole number from 0 to 1000000, and is -1
-- want 14: a rule has no field "brust": did you mean "burst"?
