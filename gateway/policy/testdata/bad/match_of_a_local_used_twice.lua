local buy = { method = "post", path = "v1/sales/*/orders" }
return {
  rules = {
    { name = "ip", key = "ip", rate = "20r/s", burst = 40, match = buy },
    { name = "token", key = "token", rate = "2r/s", burst = 4, match = buy },
  },
}
-- want 1: method "post" is not an HTTP method in capitals such as "POST"
-- want 1: path "v1/sales/*/orders" must begin with a slash
