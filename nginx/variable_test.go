package nginx

import "testing"

// In place means that the value's memory is the string's own: nginx copies what is set by name.
const setThrice = `
	local ffi, request = require "ffi", require "sluice.request"
	local variable, out = request.variable "tried", {}
	local function try(text, set)
		set("tried", text)
		local value = request.find(variable)
		local where = value.data == ffi.cast("const unsigned char *", text) and "in place" or "copied"
		out[#out + 1] = ngx.var.tried .. " " .. request.length(value) .. " " .. where
	end
	assert(request.arrive() ~= nil)
	try("one", request.set)
	try("another one", request.set)
	try("", request.set)
	try("four and more", function(name, text) request.set_at(name, ffi.cast("const unsigned char *", text), 4) end)
	return table.concat(out, "; ")`

func TestVariablesAreSetInPlace(t *testing.T) {
	s, stop := startLuaWith(t, "eval.conf", "access_log off;", `access_log off;
		map $remote_addr $other { default ""; }
		map $remote_addr $tried { default none; }
		log_format named '$other $request $tried';`)
	defer stop()
	const later = "one 3 in place; another one 11 in place;  0 in place; four 4 in place"
	const first = "one 3 copied; another one 11 in place;  0 in place; four 4 in place"
	firsts := 0
	for range 20 { // with every request its variables are elsewhere
		switch got := s.run(t, setThrice); got {
		case first:
			firsts++
		case later:
		default:
			t.Fatalf("got  %s\nwant %s", got, later)
		}
	}
	if firsts < 1 || firsts > 2 {
		t.Errorf("%d requests set a variable by its name, want one in each of two workers at most", firsts)
	}
}

// An nginx that does not keep the request line among the variables of its configuration cannot say where the others are.
func TestVariablesAreSetByNameWhereTheirPlaceIsNotKnown(t *testing.T) {
	s, stop := startLuaWith(t, "eval.conf", "access_log off;", `access_log off;
		map $remote_addr $tried { default none; }
		log_format named '$tried';`)
	defer stop()
	for range 5 {
		if got, want := s.run(t, setThrice), "one 3 copied; another one 11 copied;  0 copied; four 4 copied"; got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// What a sale's record is read by.
func TestSharedDictsAreReadInMemory(t *testing.T) {
	s := requireLua(t)
	got := s.run(t, `
		local ffi, shared, test, out = require "ffi", require "sluice.shared", ngx.shared.test, {}
		local zone, key = shared.zone(test), ffi.new("unsigned char[5]", "k\0yzz")
		local name = ffi.string(key, 3)
		local function look()
			local n = shared.text(zone, key, 3)
			out[#out + 1] = tostring(n and (n > 9 and n or ffi.string(shared.buffer, n)))
		end
		look()
		test:set(name, 1.5, 0, 7) look()
		test:set(name, "text") look()
		test:set(name, "") look()
		test:set(name, true) look()
		test:set(name, ("x"):rep(1024)) look()
		test:set(name, ("x"):rep(1025)) look()
		test:delete(name)
		test:rpush(name, 1) look()
		test:delete(name)
		return table.concat(out, "; ")`)
	if want := "nil; nil; text; ; nil; 1024; nil; nil"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
