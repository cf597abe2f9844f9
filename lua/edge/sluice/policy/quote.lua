-- quote(text) -> the text as a message shows it, the same bytes as in the Go gateway
return function(text)
  if #text > 40 then
    text = text:sub(1, 40) .. "..."
  end
  return '"' .. text:gsub("[%z\1-\31\127]", "?") .. '"'
end
