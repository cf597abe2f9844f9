package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Limits of executing a policy. A policy with MaxRules rules needs about 2,000 instructions.
const (
	maxInstructions = 20_000
	maxString       = 4 << 10 // bytes of any one string
	maxSeconds      = 10      // of slow steps; long enough that a busy machine rejects no policy
	maxCalls        = 32      // nested calls
	maxDepth        = 100     // nested brackets: the parser and the compiler are recursive
)

// run executes a policy. It returns its table, the position of the table, and the number of instructions.
func run(name string, source []byte) (table *lua.LTable, where position, steps int, findings Findings) {
	wrong := func(line int, format string, args ...any) (*lua.LTable, position, int, Findings) {
		return nil, position{}, 0, Findings{{File: name, Line: line, Message: oneLine(fmt.Sprintf(format, args...))}}
	}
	if len(source) > MaxSize {
		return wrong(0, "larger than %d bytes: a policy is a few rules", MaxSize)
	}
	if len(source) > 0 && source[0] == '\x1b' {
		return wrong(0, "compiled Lua: write the policy as text")
	}
	source = stripPreamble(source)
	if line := tooDeep(source); line > 0 {
		return wrong(line, "more than %d brackets within brackets: is one not closed?", maxDepth)
	}
	if line, what := nonPortable(source); line > 0 {
		return wrong(line, "%s", what)
	}
	// The compiler panics on some errors, for example too many locals, or a break outside a loop.
	defer func() {
		if r := recover(); r != nil {
			table, where, steps, findings = wrong(1, "cannot be compiled: %v: write it more simply", r)
		}
	}()
	chunk, err := parse.Parse(bytes.NewReader(source), name)
	if err != nil {
		if syntax, ok := errors.AsType[*parse.Error](err); ok {
			line, what := syntaxError(syntax, source)
			return wrong(line, "%s", what)
		}
		return wrong(0, "%v", err)
	}
	useHidden(chunk)
	proto, err := lua.Compile(chunk, chunkName)
	if err != nil {
		line, what := splitPosition(err.Error())
		return wrong(line, "%s", what)
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true, CallStackSize: maxCalls, RegistrySize: 8 << 10})
	defer state.Close()
	deadline, cancel := context.WithTimeout(context.Background(), maxSeconds*time.Second)
	defer cancel()
	meter := &meter{Context: deadline, state: state, left: maxInstructions}
	state.SetContext(meter)
	meter.defineHidden()
	state.Push(state.NewFunctionFromProto(proto))
	if err := state.PCall(0, 1, nil); err != nil {
		line, what := splitPosition(runtimeError(err))
		return wrong(line, "%s", what)
	}
	where = returned(chunk)
	result := state.Get(-1)
	table, ok := result.(*lua.LTable)
	if !ok {
		return wrong(max(where.line, 1), "a policy returns a table, and this returns %s: end it with return { rules = { "+
			"{...} } }", describe(result))
	}
	return table, where, maxInstructions - meter.left, nil
}

// meter is a context that ends after maxInstructions: gopher-lua calls Done before each instruction. Done also checks
// the length of the strings in the registers, so that no string exceeds maxString by more than one concatenation.
type meter struct {
	context.Context
	state *lua.LState
	left  int
	err   error
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (m *meter) Done() <-chan struct{} {
	m.left--
	if m.left < 0 {
		m.err = fmt.Errorf("runs for more than %d steps: is there an endless loop?", maxInstructions)
		return closed
	}
	for i := m.state.GetTop(); i > 0; i-- {
		if s, ok := m.state.Get(i).(lua.LString); ok && len(s) > maxString {
			m.err = fmt.Errorf("makes a string of more than %d bytes: no field needs that", maxString)
			return closed
		}
	}
	return m.Context.Done()
}

func (m *meter) Err() error {
	if m.err != nil {
		return m.err
	}
	return fmt.Errorf("runs for more than %d s", maxSeconds)
}

// chunkName is the file name in Lua's messages. It is constant, so that a file name cannot be confused with a position.
const chunkName = "policy"

var positioned = regexp.MustCompile(`(?s)^(?:` + chunkName + `:(\d+): ?|compile error near line\((\d+)\) ` + chunkName +
	`: )(.*)$`)

// splitPosition splits a message of Lua into line and text. Errors that concern the whole file get line 1.
func splitPosition(message string) (line int, what string) {
	m := positioned.FindStringSubmatch(message)
	if m == nil {
		return 1, message
	}
	line, _ = strconv.Atoi(m[1] + m[2])
	return max(line, 1), m[3]
}

const noLibraries = ": a policy has no libraries, and can call only what it defines itself"

// runtimeError returns the message of a Lua error, with a hint about missing libraries.
func runtimeError(err error) string {
	var api *lua.ApiError
	if !errors.As(err, &api) || api.Object == nil {
		return err.Error()
	}
	message := api.Object.String()
	if strings.Contains(message, "stack overflow") {
		message += fmt.Sprintf(": calls within calls, more than %d deep", maxCalls)
	}
	if strings.Contains(message, "attempt to index a non-table") || strings.Contains(message, "attempt to call a "+
		"non-function") {
		message += noLibraries
	}
	return message
}

// bareTable matches a file that begins with a table instead of with return, perhaps after comments of one line.
var bareTable = regexp.MustCompile(`^(\s|--([^\[\n][^\n]*)?\n)*\{`)

func syntaxError(err *parse.Error, source []byte) (line int, what string) {
	what = strings.TrimSpace(err.Message)
	if err.Pos.Line == parse.EOF {
		return bytes.Count(source, []byte("\n")) + 1, what + " at the end of the file: is a bracket or a quote not closed?"
	}
	if err.Token != "" {
		what += " near " + quote(err.Token)
	}
	if bareTable.Match(source) {
		return err.Pos.Line, what + ": a policy begins with return: return { rules = { {...} } }"
	}
	return err.Pos.Line, what + ": is a comma or a bracket missing before it?"
}

// tooDeep returns the line on which brackets are nested too deeply, or 0. It includes brackets in strings and comments.
func tooDeep(source []byte) int {
	depth, line := 0, 1
	for _, c := range source {
		switch c {
		case '\n':
			line++
		case '{', '(', '[':
			if depth++; depth > maxDepth {
				return line
			}
		case '}', ')', ']':
			depth--
		}
	}
	return 0
}

func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
}
