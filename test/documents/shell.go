package documents

import "strings"

// Calls returns the calls of a program in a line of shell, each as its arguments: the line `x=$(sluice token --user
// ann) && sluice up &` has two. It ignores a prompt, leading assignments, redirections and comments. Expansions are not
// evaluated.
func Calls(program, line string) [][]string {
	var calls [][]string
	words, inner := split(line)
	for _, text := range inner {
		calls = append(calls, Calls(program, text)...)
	}
	var command []string
	for _, word := range append(words, ";") {
		if word != ";" {
			command = append(command, word)
			continue
		}
		if args, ok := called(program, command); ok {
			calls = append(calls, args)
		}
		command = nil
	}
	return calls
}

// called returns the arguments of a command if it calls the program. It skips prompts, keywords and assignments.
func called(program string, words []string) ([]string, bool) {
	for len(words) > 0 {
		name, _, assigns := strings.Cut(words[0], "=")
		switch {
		case words[0] == "$" || words[0] == "do" || words[0] == "then" || words[0] == "time" || words[0] == "export":
		case assigns && strings.ToUpper(name) == name || assigns && !strings.ContainsAny(name, "-/"):
		case words[0] == "go" && len(words) > 2 && words[1] == "run" && strings.HasSuffix(words[2], "/"+program):
			return words[3:], true
		default:
			return words[1:], words[0] == program || strings.HasSuffix(words[0], "/"+program)
		}
		words = words[1:]
	}
	return nil, false
}

// split returns the words of a line, with ";" for every operator that ends a command, and the contents of $(...).
func split(line string) (words, inner []string) {
	var word strings.Builder
	begun, redirected := false, false
	end := func() {
		if begun && !redirected {
			words = append(words, word.String())
		}
		if begun {
			redirected = false
		}
		word.Reset()
		begun = false
	}
	var quote byte
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '$' && quote != '\'' && strings.HasPrefix(line[i:], "$("):
			text := parenthesis(line[i+2:])
			inner = append(inner, text)
			i += len(text) + 2
			begun = true
			word.WriteString("$()")
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == '#' && !begun:
			end()
			return words, inner
		case c == ' ' || c == '\t':
			end()
		case c == '|' || c == ';' || c == '&' || c == '(' || c == ')':
			end()
			redirected = false
			words = append(words, ";")
		case c == '>' || c == '<':
			if begun && strings.Trim(word.String(), "0123456789") == "" {
				word.Reset()
				begun = false
			}
			end()
			redirected = true
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	end()
	return words, inner
}

// parenthesis returns the text before the closing parenthesis.
func parenthesis(text string) string {
	depth := 1
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[:i]
			}
		}
	}
	return text
}
